"""How to reach hosts, from what `ansible-inventory --list` prints; and the cluster's Nodes in the JSON that it expects.

Only what says how a host is reached is taken. Where Ansible itself carries the commands, the rest
is its business. A variable that would have it reach a host in another way than rollout's own SSH
can is an error there, because the host reached instead might be the wrong one.

Of the Nodes every host comes with its variables in `_meta`, so that Ansible asks once and not once
a host. Names of groups consist of letters, digits and underscores: with others Ansible warns, or
refuses.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rollout.errors import InventoryError
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.host import (
    DEFAULT_SSH_PORT,
    DEFAULT_SSH_USER,
    Host,
    HostFacts,
    HostKeyFiles,
    HostObservation,
    is_address,
    port_of,
)
from rollout.model.text import ssh_path

# Of two names for one thing Ansible's SSH connection takes the one with `ssh`.
_ADDRESS = ("ansible_ssh_host", "ansible_host")
_PORT = ("ansible_ssh_port", "ansible_port")
_USER = ("ansible_ssh_user", "ansible_user")
_KEY = ("ansible_ssh_private_key_file", "ansible_private_key_file")
_ARGUMENTS = ("ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_args")
_PASSWORDS = ("ansible_password", "ansible_ssh_pass", "ansible_ssh_password")

_SSH = (
    "",
    "ssh",
    "smart",
    "paramiko",
    "paramiko_ssh",
    "ansible.builtin.ssh",
    "ansible.builtin.paramiko_ssh",
)
_ELSEWHERE = re.compile(
    r"proxyjump|proxycommand|hostname|\bport\b|\buser\b|identityfile|hostkeyalias|(^|\s)-[JWFplibB]",
    re.IGNORECASE,
)
_TEMPLATE = re.compile(r"\{[{%]")
_BY_ANSIBLE = (
    "Have Ansible reach it: --executor ansible. Or say its address, port, user and key as they are."
)


@dataclass(frozen=True, slots=True)
class SshDefaults:
    """How hosts are reached that say nothing else of themselves."""

    user: str = DEFAULT_SSH_USER
    port: int = DEFAULT_SSH_PORT
    key_file: str | None = None


@dataclass(frozen=True, slots=True)
class Inventory:
    """Hosts in Ansible's order, and sentences about what was left out of account."""

    hosts: tuple[Host, ...]
    warnings: tuple[str, ...] = ()


def inventory_of(
    document: Mapping[str, Any], defaults: SshDefaults, *, by_ansible: bool
) -> Inventory:
    """Return the hosts of every group but this machine itself; `InventoryError` names a host that cannot be reached so.

    With `by_ansible` Ansible connects: what only it can evaluate or follow is left to it.
    """
    variables = document.get("_meta", {}).get("hostvars", {})
    groups = (group.get("hosts", ()) for name, group in document.items() if name != "_meta")
    names = dict.fromkeys(name for group in groups for name in group)
    if strange := [name for name in names if not name.isprintable()]:
        raise InventoryError(
            f"the inventory has a host {strange[0]!r}, whose name cannot be printed"
        )
    readers = [_HostReader(name, variables.get(name, {}), by_ansible) for name in names]
    hosts = [host for reader in readers if (host := reader.host(defaults)) is not None]
    return Inventory(
        tuple(hosts),
        tuple(dict.fromkeys(warning for reader in readers for warning in reader.warnings)),
    )


@dataclass(slots=True)
class _HostReader:
    """One host's variables; collects what is worth a warning."""

    name: str
    variables: Mapping[str, Any]
    by_ansible: bool
    warnings: list[str] = field(default_factory=list)

    def host(self, defaults: SshDefaults) -> Host | None:
        """Return the host; None where it is this very machine, which is no host of a cluster seen from outside."""
        connection = self._text("ansible_connection")
        if connection == "local":
            self.warnings.append(
                f"host {self.name} is this machine (ansible_connection=local); left out"
            )
            return None
        if not self.by_ansible:
            self._check(connection)
        return Host(
            name=self.name,
            address=_without_brackets(self._text(*_ADDRESS) or self.name),
            port=self._port() or defaults.port,
            user=self._text(*_USER) or defaults.user,
            key_file=self._text(*_KEY) or defaults.key_file,
        )

    def _check(self, connection: str) -> None:
        if connection not in _SSH:
            raise self._refusal("ansible_connection", "rollout's own SSH cannot do this")
        for variable in _ARGUMENTS:
            if _ELSEWHERE.search(text := self._text(variable)):
                raise self._refusal(
                    variable, "rollout's own SSH follows no jump hosts and options of an inventory"
                )
            if text:
                self.warnings.append(f"inventory: {variable} is ignored")
        ignored = (variable for variable in _PASSWORDS if variable in self.variables)
        self.warnings += [
            f"inventory: {variable} is ignored: only keys are used" for variable in ignored
        ]

    def _port(self) -> int:
        """Return the port; 0 where none is said."""
        text = self._text(*_PORT)
        port = port_of(text)
        if text and port is None:
            raise self._refusal(
                next(name for name in _PORT if name in self.variables), "not a port"
            )
        return port or 0

    def _text(self, *names: str) -> str:
        """Return the first of these that is set; what a program said is marked as unsafe, and no template."""
        for name in names:
            value = self.variables.get(name)
            unsafe = value.get("__ansible_unsafe") if isinstance(value, dict) else None
            text = value if unsafe is None else unsafe
            if text is None or (isinstance(text, str) and not text.strip()):
                continue
            if (
                isinstance(text, bool)
                or not isinstance(text, str | int)
                or not str(text).isprintable()
            ):
                problem = "only Ansible reads this value"
            elif unsafe is None and _TEMPLATE.search(str(text)):
                problem = "only Ansible evaluates templates"
            else:
                return str(text).strip()
            if not self.by_ansible:
                raise self._refusal(name, problem)
        return ""

    def _refusal(self, variable: str, why: str) -> InventoryError:
        value = self.variables[variable]
        shown = (
            "(encrypted)"
            if isinstance(value, dict) and "__ansible_vault" in value
            else ascii(value)
        )
        return InventoryError(
            f"inventory: host {self.name}: {variable}={shown}: {why}", hint=_BY_ANSIBLE
        )


def _without_brackets(address: str) -> str:
    """Return an address as sockets and ssh take it: without the brackets of a URL."""
    return address[1:-1] if address.startswith("[") and address.endswith("]") else address


_ROLE_PREFIX = "node-role.kubernetes.io/"
_NOT_IN_NAMES = re.compile(r"\W", re.ASCII)
ROOT_GROUP = "nodes"

Variables = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class SshOptions:
    """What the command line says about reaching every host; paths, empty where it says nothing."""

    key_file: str = ""
    known_hosts: str = ""
    ssh_config: str = ""

    def arguments(self, host: Host) -> str:
        """Return the same for OpenSSH, which Ansible connects with, and what its own configuration may not find.

        It is given an address, where a configuration may speak of a name: the way that was found
        there goes along.
        """
        own_key = host.key_file or self.key_file
        files = (
            HostKeyFiles((self.known_hosts,))
            if self.known_hosts
            else host.known_hosts or HostKeyFiles(())
        )
        options = (
            (
                "UserKnownHostsFile",
                " ".join(map(ssh_path, files.own)) or ("none" if files.system else ""),
            ),
            (
                "GlobalKnownHostsFile",
                " ".join(ssh_path(file, tokens=False) for file in files.system),
            ),
            ("HostKeyAlias", host.known_as),
            ("ProxyCommand", shlex.join(host.proxy).replace("%", "%%")),
            *(("IdentityFile", ssh_path(file)) for file in host.identities.files if not own_key),
            (
                "IdentityAgent",
                "" if host.identities.agent is None else ssh_path(host.identities.agent or "none"),
            ),
            ("IdentitiesOnly", "yes" if host.identities.only else ""),
        )
        words = [word for name, value in options if value for word in ("-o", f"{name}={value}")]
        return shlex.join((*words, *(("-F", self.ssh_config) if self.ssh_config else ())))


def inventory_document(
    nodes: Sequence[Node],
    hosts: Mapping[str, Host],
    observations: Mapping[str, HostObservation],
    connection: SshOptions,
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
            **_address_variables(hosts.get(node.name), connection),
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


def _address_variables(host: Host | None, connection: SshOptions) -> Variables:
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
        key.removeprefix(marks.PREFIX): text
        for key, text in node.annotations.items()
        if key.startswith(marks.PREFIX)
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
    return sorted(
        label.removeprefix(_ROLE_PREFIX) for label in node.labels if label.startswith(_ROLE_PREFIX)
    )


def _groups(node: Node, observation: HostObservation | None) -> Iterable[str]:
    roles = list(_roles(node))
    yield from (_group("role", role) for role in roles)
    if node.zone:
        yield _group("zone", node.zone)
    version = (
        observation.running_version
        if isinstance(observation, HostFacts)
        else _version_of(node.os_image)
    )
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
