"""Inventories for Ansible, and what Ansible says of the user's own.

What comes from the cluster may be anything, and Ansible takes every text for a template: such values are tagged
`!unsafe`, and an address that is none is refused before it becomes an argument of ssh.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from rollout.adapters.ansible.settings import AnsibleSettings, programs
from rollout.errors import InputError, InventoryError
from rollout.gather.inventory.reading import Inventory
from rollout.model.host import DEFAULT_SSH_PORT, DEFAULT_SSH_USER, Host, port_of
from rollout.model.text import excerpt

TARGETS: Final = "rollout_targets"
_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:%-]*")
_SECONDS: Final = 120


class _Unsafe(str):
    """A text that Ansible is not to take for a template."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Writes such texts with Ansible's tag."""


_Dumper.add_representer(_Unsafe, lambda dumper, text: dumper.represent_scalar("!unsafe", str(text)))


def write_inventory(folder: Path, settings: AnsibleSettings, hosts: Iterable[Host]) -> Path:
    """A file with the hosts as one group: their names alone beside a user's inventory, else how to reach them."""
    members = {host.name: {} if settings.inventory else _connection(host, settings) for host in hosts}
    path = folder / "targets.yaml"
    _write(path, {TARGETS: {"hosts": members}})
    return path


def write_variables(folder: Path, variables: Mapping[str, object]) -> Path:
    """A file of variables for `-e @FILE`."""
    path = folder / "variables.yaml"
    _write(path, _unsafe(variables))
    return path


def is_reachable_by_name(host: Host) -> bool:
    """Whether name, address and user are what they should be: all three become arguments of a program."""
    return all(_SAFE.fullmatch(word) for word in (host.name, host.address, host.user or DEFAULT_SSH_USER))


def _connection(host: Host, settings: AnsibleSettings) -> dict[str, object]:
    variables: dict[str, object] = {"ansible_host": _Unsafe(host.address)}
    # What was not said is left to ssh's own configuration.
    if settings.port is not None:
        variables["ansible_port"] = host.port
    if settings.user is not None:
        variables["ansible_user"] = _Unsafe(host.user)
    return variables


def _write(path: Path, document: object) -> None:
    text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def _unsafe(value: object) -> object:
    if isinstance(value, str):
        return _Unsafe(value)
    if isinstance(value, Mapping):
        return {key: _unsafe(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_unsafe(item) for item in value]
    return value


def read_inventory(path: Path, settings: AnsibleSettings) -> Inventory:
    """The hosts of any inventory that Ansible reads: files, folders, programs, plugins; `InventoryError` otherwise."""
    command = [str(programs() / "ansible-inventory"), "-i", str(path.absolute()), "--list"]
    environment = {**settings.environment, **settings.variables()}
    try:
        ended = subprocess.run(  # noqa: S603 - Ansible's own program
            command,
            cwd=settings.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InventoryError(f"inventory {path}: ansible-inventory does not answer: {error}") from error
    if ended.returncode != 0:
        raise InventoryError(
            f"inventory {path}: {excerpt(ended.stderr, 400)}", hint=f"Try: ansible-inventory -i {path} --list"
        )
    hosts = _hosts(json.loads(ended.stdout), settings)
    if not hosts:
        output = excerpt(ended.stderr, 400)
        raise InventoryError(f"inventory {path} names no host{': ' + output if output else ''}")
    return Inventory(hosts)


def _hosts(document: Mapping[str, Any], settings: AnsibleSettings) -> tuple[Host, ...]:
    """Every host of every group, but for this machine itself; variables that are templates are Ansible's business."""
    variables = document.get("_meta", {}).get("hostvars", {})
    groups = (group.get("hosts", ()) for name, group in document.items() if name != "_meta")
    names = dict.fromkeys(name for group in groups for name in group)
    hosts = (_host(name, variables.get(name, {}), settings) for name in names)
    return tuple(host for host in hosts if host is not None)


def _host(name: str, variables: Mapping[str, Any], settings: AnsibleSettings) -> Host | None:
    if variables.get("ansible_connection") == "local":
        return None
    if not name.isprintable():
        raise InputError(f"the inventory has a host {name!r}, whose name cannot be printed")
    address = _text(variables, "ansible_ssh_host", "ansible_host") or name
    port = _text(variables, "ansible_ssh_port", "ansible_port")
    user = _text(variables, "ansible_ssh_user", "ansible_user") or settings.user or DEFAULT_SSH_USER
    if port.isdecimal() and port_of(port) is None:
        raise InventoryError(f"the inventory gives host {name} port {port}", hint="Ports are from 1 to 65535.")
    return Host(name, address, port_of(port) or settings.port or DEFAULT_SSH_PORT, user)


def _text(variables: Mapping[str, Any], *names: str) -> str:
    """The first that is set to a plain value; `ansible-inventory` marks what a program said as unsafe."""
    for name in names:
        value = variables.get(name)
        if isinstance(value, dict):
            value = value.get("__ansible_unsafe")
        if isinstance(value, str | int) and str(value).isprintable() and "{{" not in str(value):
            return str(value)
    return ""
