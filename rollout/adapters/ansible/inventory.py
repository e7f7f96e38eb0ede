import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import yaml
from msgspec.structs import replace

from rollout.adapters.ansible.answers import split_messages, why_inventory_failed
from rollout.adapters.ansible.settings import AnsibleSettings, check_inventory, find_programs
from rollout.adapters.input_trust import hint_of
from rollout.adapters.programs import run_program
from rollout.errors import InventoryError
from rollout.gather.inventory import Inventory, SshDefaults, parse_inventory
from rollout.model.host import DEFAULT_SSH_USER, Host
from rollout.model.text import joined

TARGETS: Final = "rollout_targets"
_SAFE_ARGUMENT = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:%-]*")
_PROGRAM_SECONDS: Final = 120
_ANOTHER_HINT: Final = "Specify another inventory with --inventory."


class _UnsafeText(str):
    """Not to be taken for a template."""

    __slots__ = ()


class _InventoryDumper(yaml.SafeDumper):
    """Uses Ansible's `!unsafe` tag."""


_InventoryDumper.add_representer(
    _UnsafeText, lambda dumper, text: dumper.represent_scalar("!unsafe", str(text))
)


def write_inventory(folder: Path, settings: AnsibleSettings, hosts: Iterable[Host]) -> Path:
    """Write one group, with addresses unless the user has an inventory."""
    members: dict[str, dict[str, object]] = {}
    for host in hosts:
        members[host.name] = {} if settings.inventory else _connection_variables(host, settings)
    path = folder / "targets.yaml"
    _write_yaml(path, {TARGETS: {"hosts": members}})
    return path


def write_variables(folder: Path, variables: Mapping[str, object]) -> Path:
    """Write a file for `-e @FILE`."""
    path = folder / "variables.yaml"
    _write_yaml(path, _mark_unsafe(variables))
    return path


def has_safe_names(host: Host) -> bool:
    """Whether name, address and user are safe arguments."""
    words = (host.name, host.address, host.user or DEFAULT_SSH_USER)
    return all(_SAFE_ARGUMENT.fullmatch(word) for word in words)


def _connection_variables(host: Host, settings: AnsibleSettings) -> dict[str, object]:
    variables: dict[str, object] = {"ansible_host": _UnsafeText(host.address)}
    # Else ssh's configuration decides.
    if settings.port is not None:
        variables["ansible_port"] = host.port
    if settings.user is not None:
        variables["ansible_user"] = _UnsafeText(host.user)
    return variables


def _write_yaml(path: Path, document: object) -> None:
    text = yaml.dump(document, Dumper=_InventoryDumper, sort_keys=False, allow_unicode=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def _mark_unsafe(value: object) -> object:
    if isinstance(value, str):
        return _UnsafeText(value)
    if isinstance(value, Mapping):
        return {key: _mark_unsafe(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mark_unsafe(item) for item in value]
    return value


def read_inventory(
    path: Path, settings: AnsibleSettings, defaults: SshDefaults, *, by_ansible: bool
) -> Inventory:
    """Read an inventory through Ansible, or raise `InventoryError`.

    `by_ansible`: Ansible also runs the commands.
    """
    if not path.exists():
        raise InventoryError(f"inventory {path}: no such file", hint=_ANOTHER_HINT)
    try:
        check_inventory(path, settings.folder)
    except OSError as error:
        message = f"cannot read inventory {path}: {error.strerror}"
        raise InventoryError(message, hint=hint_of(error, _ANOTHER_HINT)) from error
    completed = _run_ansible_inventory(path, settings)
    hint = f"Try: ansible-inventory -i {path} --list"
    stderr = completed.stderr.decode(errors="replace")
    document = None
    if completed.returncode == 0:
        with suppress(ValueError, RecursionError):
            document = json.loads(completed.stdout)
    if document is None:
        reason = why_inventory_failed(stderr) or "ansible-inventory did not print JSON"
        raise InventoryError(f"inventory {path}: {reason}", hint=hint)
    inventory = parse_inventory(document, defaults, by_ansible=by_ansible)
    if not inventory.hosts:
        reason = why_inventory_failed(stderr)
        raise InventoryError(joined(": ", f"inventory {path} has no hosts", reason), hint=hint)
    messages = (f"inventory {path}: {message}" for message in split_messages(stderr))
    return replace(inventory, warnings=(*messages, *inventory.warnings))


def _run_ansible_inventory(
    path: Path, settings: AnsibleSettings
) -> "subprocess.CompletedProcess[bytes]":
    try:
        return run_program(
            [str(find_programs() / "ansible-inventory"), "-i", str(path.absolute()), "--list"],
            seconds=_PROGRAM_SECONDS,
            environment={**settings.environment, **settings.variables()},
            folder=settings.folder,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        message = f"inventory {path}: ansible-inventory did not respond: {error}"
        raise InventoryError(message) from error
