"""The cluster's Nodes as an Ansible inventory, in the JSON that Ansible expects of an inventory script.

Every host comes with its variables in `_meta`, so that Ansible asks once and not once a host. Names of groups
consist of letters, digits and underscores: with others Ansible warns, or refuses.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.host import Host, HostFacts, HostKeyFiles, HostObservation, is_address
from rollout.model.text import ssh_path

_ROLE_PREFIX = "node-role.kubernetes.io/"
_NOT_IN_NAMES = re.compile(r"\W", re.ASCII)
ROOT_GROUP = "nodes"

Variables = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Connection:
    """What the command line says about reaching every host; paths, empty where it says nothing."""

    key_file: str = ""
    known_hosts: str = ""
    ssh_config: str = ""

    def arguments(self, host: Host) -> str:
        """Return the same for OpenSSH, which Ansible connects with, and what its own configuration may not find.

        It is given an address, where a configuration may speak of a name: the way that was found there goes along.
        """
        own_key = host.key_file or self.key_file
        files = HostKeyFiles((self.known_hosts,)) if self.known_hosts else host.known_hosts or HostKeyFiles(())
        options = (
            ("UserKnownHostsFile", " ".join(map(ssh_path, files.own)) or ("none" if files.system else "")),
            ("GlobalKnownHostsFile", " ".join(ssh_path(file, tokens=False) for file in files.system)),
            ("HostKeyAlias", host.known_as),
            ("ProxyCommand", shlex.join(host.proxy).replace("%", "%%")),
            *(("IdentityFile", ssh_path(file)) for file in host.identities.files if not own_key),
            ("IdentityAgent", "" if host.identities.agent is None else ssh_path(host.identities.agent or "none")),
            ("IdentitiesOnly", "yes" if host.identities.only else ""),
        )
        words = [word for name, value in options if value for word in ("-o", f"{name}={value}")]
        return shlex.join((*words, *(("-F", self.ssh_config) if self.ssh_config else ())))


def inventory_document(
    nodes: Sequence[Node],
    hosts: Mapping[str, Host],
    observations: Mapping[str, HostObservation],
    connection: Connection,
) -> Mapping[str, object]:
    """Return what `--list` prints: groups of hosts, and every host's variables.

    A Node whose host was not asked, or did not answer, is in no group that depends on the answer.
    """
    groups: dict[str, list[str]] = {}
    for node in nodes:
        for group in (ROOT_GROUP, *_groups(node, observations.get(node.name))):
            groups.setdefault(group, []).append(node.name)
    variables = {
        node.name: {
            **_reached(hosts.get(node.name), connection),
            **_about(node),
            **_facts(observations.get(node.name)),
        }
        for node in nodes
    }
    return {
        "_meta": {"hostvars": variables},
        "all": {"children": sorted({"ungrouped", *groups})},
        **{name: {"hosts": groups[name]} for name in sorted(groups)},
    }


def _reached(host: Host | None, connection: Connection) -> Variables:
    """Only what is known: an empty address would send Ansible to this machine."""
    if host is None or not is_address(host.address):
        return {}
    known = {
        "ansible_ssh_private_key_file": host.key_file or connection.key_file,
        "ansible_ssh_common_args": connection.arguments(host),
    }
    return {
        "ansible_host": host.address,
        "ansible_port": host.port,
        "ansible_user": host.user,
        **{name: value for name, value in known.items() if value},
    }


def _about(node: Node) -> Variables:
    ours = {
        key.removeprefix(marks.PREFIX): text for key, text in node.annotations.items() if key.startswith(marks.PREFIX)
    }
    return {
        "rollout_ready": node.is_ready,
        "rollout_schedulable": not node.unschedulable,
        "rollout_control_plane": node.is_control_plane,
        "rollout_roles": list(_roles(node)),
        "rollout_zone": node.zone,
        "rollout_os_image": _untemplated(node.os_image),
        "rollout_kubelet_version": _untemplated(node.kubelet_version),
        "rollout_labels": dict(node.labels),
        # a value that came from the cluster is data: Ansible must not take it for a template
        "rollout_annotations": {key: _untemplated(text) for key, text in sorted(ours.items())},
    }


def _facts(observation: HostObservation | None) -> Variables:
    if not isinstance(observation, HostFacts):
        return {}
    detection = observation.detection
    return {
        **({} if detection.unanswered else {"rollout_needs_reboot": detection.needs_reboot}),
        "rollout_detected_by": list(detection.by),
        "rollout_operation": observation.update.operation.value,
        "rollout_running_version": observation.running_version,
        "rollout_staged_version": detection.version,
        "rollout_boot_id": observation.boot_id,
    }


def _untemplated(text: str) -> object:
    return {"__ansible_unsafe": text}


def _roles(node: Node) -> Iterable[str]:
    return sorted(label.removeprefix(_ROLE_PREFIX) for label in node.labels if label.startswith(_ROLE_PREFIX))


def _groups(node: Node, observation: HostObservation | None) -> Iterable[str]:
    roles = list(_roles(node))
    yield from (_group("role", role) for role in roles)
    if node.zone:
        yield _group("zone", node.zone)
    version = observation.running_version if isinstance(observation, HostFacts) else _version_of(node.os_image)
    if version:
        yield _group("os_version", version)
    if isinstance(observation, HostFacts) and not observation.detection.unanswered:
        yield "needs_reboot" if observation.detection.needs_reboot else "needs_no_reboot"
    if node.unschedulable:
        yield "cordoned"


def _version_of(os_image: str) -> str:
    """Return the version in what a kubelet reports: `Flatcar Container Linux by Kinvolk 4081.2.0 (Oklo)`."""
    version = re.search(r"\b\d+\.\d+\.\d+\b", os_image)
    return version[0] if version else ""


def _group(kind: str, value: str) -> str:
    return f"{kind}_{_NOT_IN_NAMES.sub('_', value)}"
