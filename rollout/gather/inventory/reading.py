"""How to reach hosts, from what `ansible-inventory --list` prints.

Only what says how a host is reached is taken. Where Ansible itself carries the commands, the rest is its business. A
variable that would have it reach a host in another way than rollout's own SSH can is an error there, because the host
reached instead might be the wrong one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rollout.errors import InventoryError
from rollout.model.host import DEFAULT_SSH_PORT, DEFAULT_SSH_USER, Host, port_of

# Of two names for one thing Ansible's SSH connection takes the one with `ssh`.
_ADDRESS = ("ansible_ssh_host", "ansible_host")
_PORT = ("ansible_ssh_port", "ansible_port")
_USER = ("ansible_ssh_user", "ansible_user")
_KEY = ("ansible_ssh_private_key_file", "ansible_private_key_file")
_ARGUMENTS = ("ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_args")
_PASSWORDS = ("ansible_password", "ansible_ssh_pass", "ansible_ssh_password")

_SSH = ("", "ssh", "smart", "paramiko", "paramiko_ssh", "ansible.builtin.ssh", "ansible.builtin.paramiko_ssh")
_ELSEWHERE = re.compile(
    r"proxyjump|proxycommand|hostname|\bport\b|\buser\b|identityfile|hostkeyalias|(^|\s)-[JWFplibB]", re.IGNORECASE
)
_TEMPLATE = re.compile(r"\{[{%]")
_BY_ANSIBLE = "Have Ansible reach it: --executor ansible. Or say its address, port, user and key as they are."


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


def inventory_of(document: Mapping[str, Any], defaults: SshDefaults, *, by_ansible: bool) -> Inventory:
    """Return the hosts of every group but this machine itself; `InventoryError` names a host that cannot be reached so.

    With `by_ansible` Ansible connects: what only it can evaluate or follow is left to it.
    """
    variables = document.get("_meta", {}).get("hostvars", {})
    groups = (group.get("hosts", ()) for name, group in document.items() if name != "_meta")
    names = dict.fromkeys(name for group in groups for name in group)
    readers = [_HostReader(name, variables.get(name, {}), by_ansible=by_ansible) for name in names]
    hosts = [host for reader in readers if (host := reader.host(defaults)) is not None]
    return Inventory(tuple(hosts), tuple(dict.fromkeys(warning for reader in readers for warning in reader.warnings)))


class _HostReader:
    """One host's variables; collects what is worth a warning."""

    def __init__(self, name: str, variables: Mapping[str, Any], *, by_ansible: bool) -> None:
        if not name.isprintable():
            raise InventoryError(f"the inventory has a host {name!r}, whose name cannot be printed")
        self._name = name
        self._variables = variables
        self._by_ansible = by_ansible
        self.warnings: list[str] = []

    def host(self, defaults: SshDefaults) -> Host | None:
        """Return the host; None where it is this very machine, which is no host of a cluster seen from outside."""
        connection = self._text("ansible_connection")
        if connection == "local":
            self.warnings.append(f"host {self._name} is this machine (ansible_connection=local); left out")
            return None
        if not self._by_ansible:
            self._check(connection)
        return Host(
            name=self._name,
            address=self._text(*_ADDRESS) or self._name,
            port=self._port() or defaults.port,
            user=self._text(*_USER) or defaults.user,
            key_file=self._text(*_KEY) or defaults.key_file,
        )

    def _check(self, connection: str) -> None:
        if connection not in _SSH:
            raise self._refusal("ansible_connection", "rollout's own SSH cannot do this")
        for variable in _ARGUMENTS:
            if _ELSEWHERE.search(text := self._text(variable)):
                raise self._refusal(variable, "rollout's own SSH follows no jump hosts and options of an inventory")
            if text:
                self.warnings.append(f"inventory: {variable} is ignored")
        ignored = (variable for variable in _PASSWORDS if variable in self._variables)
        self.warnings += [f"inventory: {variable} is ignored: only keys are used" for variable in ignored]

    def _port(self) -> int:
        """Return the port; 0 where none is said."""
        text = self._text(*_PORT)
        port = port_of(text)
        if text and port is None:
            raise self._refusal(next(name for name in _PORT if name in self._variables), "not a port")
        return port or 0

    def _text(self, *names: str) -> str:
        """Return the first of these that is set; what a program said is marked as unsafe, and no template."""
        for name in names:
            value = self._variables.get(name)
            unsafe = value.get("__ansible_unsafe") if isinstance(value, dict) else None
            text = value if unsafe is None else unsafe
            if text is None or (isinstance(text, str) and not text.strip()):
                continue
            if isinstance(text, bool) or not isinstance(text, str | int) or not str(text).isprintable():
                problem = "only Ansible reads this value"
            elif unsafe is None and _TEMPLATE.search(str(text)):
                problem = "only Ansible evaluates templates"
            else:
                return str(text).strip()
            if not self._by_ansible:
                raise self._refusal(name, problem)
        return ""

    def _refusal(self, variable: str, why: str) -> InventoryError:
        value = self._variables[variable]
        shown = "(encrypted)" if isinstance(value, dict) and "__ansible_vault" in value else ascii(value)
        return InventoryError(f"inventory: host {self._name}: {variable}={shown}: {why}", hint=_BY_ANSIBLE)
