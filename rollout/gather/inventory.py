"""Reads `ansible-inventory --list`, and writes Nodes in this form.

A connection variable that rollout's own SSH cannot follow is an error: it might lead to the wrong
host.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

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
    is_address_or_name,
    port_of,
)
from rollout.model.text import ssh_path

# Ansible's SSH prefers the names with `ssh`.
_ADDRESS = ("ansible_ssh_host", "ansible_host")
_PORT = ("ansible_ssh_port", "ansible_port")
_USER = ("ansible_ssh_user", "ansible_user")
_KEY = ("ansible_ssh_private_key_file", "ansible_private_key_file")
_ARGUMENTS = ("ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_args")
_PASSWORDS = ("ansible_password", "ansible_ssh_pass", "ansible_ssh_password")

_OWN_SSH_CONNECTIONS = (
    *("", "ssh", "smart", "paramiko", "paramiko_ssh"),
    *("ansible.builtin.ssh", "ansible.builtin.paramiko_ssh"),
)
# They lead to another host, or change the login.
_OPTIONS_OF_TARGET = re.compile(
    r"proxyjump|proxycommand|hostname|\bport\b|\buser\b|identityfile|hostkeyalias"
    r"|(^|\s)-[JWFplibB]",
    re.IGNORECASE,
)
_TEMPLATE = re.compile(r"\{[{%]")
_BY_ANSIBLE_HINT = (
    "Let Ansible connect: --executor ansible. Or write the host's address, port, user and key"
    " without templates."
)


class SshDefaults(Struct, frozen=True):
    user: str = DEFAULT_SSH_USER
    port: int = DEFAULT_SSH_PORT
    key_file: str | None = None


class Inventory(Struct, frozen=True):
    hosts: tuple[Host, ...]
    warnings: tuple[str, ...] = ()


def parse_inventory(
    document: Mapping[str, Any], defaults: SshDefaults, *, by_ansible: bool
) -> Inventory:
    """Return the hosts of all groups, except this machine.

    Raises `InventoryError` for variables that only Ansible understands, unless `by_ansible`:
    Ansible connects.
    """
    variables = document.get("_meta", {}).get("hostvars", {})
    names: dict[str, None] = {}
    for group_name, group in document.items():
        if group_name != "_meta":
            names.update(dict.fromkeys(group.get("hosts", ())))
    for name in names:
        if not name.isprintable():
            raise InventoryError(f"the inventory has a host {name!r}, whose name cannot be printed")
    hosts: list[Host] = []
    warnings: list[str] = []
    for name in names:
        reader = _HostReader(name, variables.get(name, {}), by_ansible)
        host = reader.read(defaults)
        if host is not None:
            hosts.append(host)
        warnings += reader.warnings
    distinct_warnings = dict.fromkeys(warnings)
    return Inventory(tuple(hosts), tuple(distinct_warnings))


@dataclass(slots=True)
class _HostReader:
    name: str
    variables: Mapping[str, Any]
    by_ansible: bool
    warnings: list[str] = field(default_factory=list)

    def read(self, defaults: SshDefaults) -> Host | None:
        """Return None for this machine, which rollout cannot reboot.

        Raises `InventoryError` for what only Ansible can follow.
        """
        connection = self._first_value("ansible_connection")
        if connection == "local":
            why = f"host {self.name} is this machine (ansible_connection=local); left out"
            self.warnings.append(why)
            return None
        if not self.by_ansible:
            self._require_own_ssh(connection)
        return Host(
            name=self.name,
            address=_without_brackets(self._first_value(*_ADDRESS) or self.name),
            port=self._port() or defaults.port,
            user=self._first_value(*_USER) or defaults.user,
            key_file=self._first_value(*_KEY) or defaults.key_file,
        )

    def _require_own_ssh(self, connection: str) -> None:
        if connection not in _OWN_SSH_CONNECTIONS:
            raise self._variable_error("ansible_connection", "rollout's own SSH cannot do this")
        for variable in _ARGUMENTS:
            text = self._first_value(variable)
            if _OPTIONS_OF_TARGET.search(text):
                why = "rollout's own SSH does not support jump hosts or SSH options in an inventory"
                raise self._variable_error(variable, why)
            if text:
                self.warnings.append(f"inventory: {variable} is ignored")
        for variable in _PASSWORDS:
            if variable in self.variables:
                self.warnings.append(f"inventory: {variable} is ignored: only keys are used")

    def _port(self) -> int | None:
        text = self._first_value(*_PORT)
        port = port_of(text)
        if text and port is None:
            variable = next(name for name in _PORT if name in self.variables)
            raise self._variable_error(variable, "not a port")
        return port

    def _first_value(self, *names: str) -> str:
        """Return the first usable value, or empty.

        One that only Ansible can read is skipped if Ansible connects, else an error.
        """
        for name in names:
            value = self.variables.get(name)
            # Values of inventory programs are never templates.
            unsafe_value = value.get("__ansible_unsafe") if isinstance(value, dict) else None
            is_unsafe = unsafe_value is not None
            content = unsafe_value if is_unsafe else value
            is_blank = isinstance(content, str) and not content.strip()
            if content is None or is_blank:
                continue
            problem = _why_only_for_ansible(content, may_be_template=not is_unsafe)
            if problem and self.by_ansible:
                continue
            if problem:
                raise self._variable_error(name, problem)
            return str(content).strip()
        return ""

    def _variable_error(self, variable: str, why: str) -> InventoryError:
        value = self.variables[variable]
        is_encrypted = isinstance(value, dict) and "__ansible_vault" in value
        text = "(encrypted)" if is_encrypted else ascii(value)
        return InventoryError(
            f"inventory: host {self.name}: {variable}={text}: {why}", hint=_BY_ANSIBLE_HINT
        )


def _why_only_for_ansible(content: object, *, may_be_template: bool) -> str:
    is_word = isinstance(content, str | int) and not isinstance(content, bool)
    if not is_word or not str(content).isprintable():
        return "only Ansible reads this value"
    if may_be_template and _TEMPLATE.search(str(content)):
        return "only Ansible evaluates templates"
    return ""


def _without_brackets(address: str) -> str:
    return address[1:-1] if address.startswith("[") and address.endswith("]") else address


_ROLE_PREFIX = "node-role.kubernetes.io/"
_NOT_IN_GROUP_NAMES = re.compile(r"\W", re.ASCII)
ROOT_GROUP = "nodes"

Variables = Mapping[str, object]


class SshOptions(Struct, frozen=True):
    """The operator's, for all hosts."""

    key_file: str = ""
    known_hosts: str = ""
    ssh_config: str = ""

    def arguments(self, host: Host) -> str:
        """Return `ansible_ssh_common_args`.

        Ansible calls ssh with an address, and ssh misses the settings of the name.
        """
        options = [
            *self._host_key_options(host),
            ("HostKeyAlias", host.known_as),
            # ssh replaces tokens here.
            ("ProxyCommand", shlex.join(host.proxy).replace("%", "%%")),
            *self._identity_options(host),
        ]
        words: list[str] = []
        for name, value in options:
            if value:
                words += ["-o", f"{name}={value}"]
        if self.ssh_config:
            words += ["-F", self.ssh_config]
        return shlex.join(words)

    def _host_key_options(self, host: Host) -> Iterator[tuple[str, str]]:
        """The operator's files come before the host's."""
        files = host.known_hosts or HostKeyFiles(())
        if self.known_hosts:
            files = HostKeyFiles((self.known_hosts,))
        user_files = " ".join(ssh_path(file) for file in files.own)
        system_files = " ".join(ssh_path(file, tokens=False) for file in files.system)
        if system_files and not user_files:
            # Else ssh also reads its default files.
            user_files = "none"
        yield "UserKnownHostsFile", user_files
        yield "GlobalKnownHostsFile", system_files

    def _identity_options(self, host: Host) -> Iterator[tuple[str, str]]:
        identities = host.identities
        has_key_file = host.key_file or self.key_file
        # Ansible has a variable for it.
        if not has_key_file:
            for file in identities.files:
                yield "IdentityFile", ssh_path(file)
        # None leaves the choice to ssh; empty means no agent.
        if identities.agent is not None:
            yield "IdentityAgent", ssh_path(identities.agent or "none")
        if identities.only:
            yield "IdentitiesOnly", "yes"


def inventory_document(
    nodes: Sequence[Node],
    hosts: Mapping[str, Host],
    observations: Mapping[str, HostObservation],
    connection: SshOptions,
) -> Mapping[str, object]:
    groups: dict[str, list[str]] = {}
    for node in nodes:
        for group in (ROOT_GROUP, *_groups_of_node(node, observations.get(node.name))):
            groups.setdefault(group, []).append(node.name)
    variables: dict[str, Variables] = {}
    for node in nodes:
        variables[node.name] = {
            **_address_variables(hosts.get(node.name), connection),
            **_node_variables(node),
            **_host_variables(observations.get(node.name)),
        }
    return {
        "_meta": {"hostvars": variables},
        "all": {"children": sorted({"ungrouped", *groups})},
        **{name: {"hosts": groups[name]} for name in sorted(groups)},
    }


def _address_variables(host: Host | None, connection: SshOptions) -> Variables:
    if host is None or not is_address_or_name(host.address):
        return {}
    variables: dict[str, object] = {
        "ansible_host": host.address,
        "ansible_port": host.port,
        "ansible_user": host.user,
    }
    key_file = host.key_file or connection.key_file
    if key_file:
        variables["ansible_ssh_private_key_file"] = key_file
    arguments = connection.arguments(host)
    if arguments:
        variables["ansible_ssh_common_args"] = arguments
    return variables


def _node_variables(node: Node) -> Variables:
    annotations: dict[str, object] = {}
    for key, text in sorted(node.annotations.items()):
        if key.startswith(marks.PREFIX):
            annotations[key.removeprefix(marks.PREFIX)] = _mark_unsafe(text)
    return {
        "rollout_ready": node.is_ready,
        "rollout_schedulable": not node.unschedulable,
        "rollout_control_plane": node.is_control_plane,
        "rollout_roles": list(_roles(node)),
        "rollout_zone": node.zone,
        "rollout_os_image": _mark_unsafe(node.os_image),
        "rollout_kubelet_version": _mark_unsafe(node.kubelet_version),
        "rollout_labels": dict(node.labels),
        "rollout_annotations": annotations,
    }


def _host_variables(observation: HostObservation | None) -> Variables:
    if not isinstance(observation, HostFacts):
        return {}
    detection = observation.detection
    variables: dict[str, object] = {}
    # If a source has not answered, it is unknown.
    if not detection.unanswered:
        variables["rollout_needs_reboot"] = detection.needs_reboot
    variables["rollout_detected_by"] = list(detection.needed_by)
    variables["rollout_operation"] = observation.update.operation.value
    variables["rollout_running_version"] = observation.running_version
    variables["rollout_staged_version"] = detection.staged_version
    variables["rollout_boot_id"] = observation.boot_id
    return variables


def _mark_unsafe(text: str) -> object:
    return {"__ansible_unsafe": text}


def _roles(node: Node) -> Iterable[str]:
    return sorted(
        label.removeprefix(_ROLE_PREFIX) for label in node.labels if label.startswith(_ROLE_PREFIX)
    )


def _groups_of_node(node: Node, observation: HostObservation | None) -> Iterable[str]:
    """Yield groups such as `role_worker`, `os_version_4152_2_0` and `cordoned`."""
    roles = list(_roles(node))
    yield from (_group_name("role", role) for role in roles)
    if node.zone:
        yield _group_name("zone", node.zone)
    version = _version_in(node.os_image)
    if isinstance(observation, HostFacts):
        version = observation.running_version
    if version:
        yield _group_name("os_version", version)
    if isinstance(observation, HostFacts) and not observation.detection.unanswered:
        yield "needs_reboot" if observation.detection.needs_reboot else "needs_no_reboot"
    if node.unschedulable:
        yield "cordoned"


def _version_in(os_image: str) -> str:
    version = re.search(r"\b\d+\.\d+\.\d+\b", os_image)
    return version[0] if version else ""


def _group_name(kind: str, value: str) -> str:
    return f"{kind}_{_NOT_IN_GROUP_NAMES.sub('_', value)}"
