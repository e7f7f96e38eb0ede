"""How to reach hosts, from an Ansible inventory file.

Only what says how a host is reached is taken. A variable that would have Ansible reach it in another way than
this program can is an error, because the host reached instead might be the wrong one.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rollout.errors import InventoryError
from rollout.gather.inventory.ini import parse_ini
from rollout.gather.inventory.tree import Tree, Variable
from rollout.gather.inventory.yaml_files import Encrypted, parse_yaml, read_variable_files
from rollout.model.host import DEFAULT_SSH_PORT, DEFAULT_SSH_USER, Host, port_of

# Of two names for one thing Ansible's SSH connection takes the one with `ssh`.
_ADDRESS = ("ansible_ssh_host", "ansible_host")
_PORT = ("ansible_ssh_port", "ansible_port")
_USER = ("ansible_ssh_user", "ansible_user")
_KEY = ("ansible_ssh_private_key_file", "ansible_private_key_file")
_CONNECTION = ("ansible_connection",)
_ARGUMENTS = ("ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_args")
_PASSWORDS = ("ansible_password", "ansible_ssh_pass", "ansible_ssh_password")

_SSH = frozenset({"ssh", "smart", "paramiko", "paramiko_ssh", "ansible.builtin.ssh", "ansible.builtin.paramiko_ssh"})
_ELSEWHERE = re.compile(
    r"proxyjump|proxycommand|hostname|\bport\b|\buser\b|identityfile|hostkeyalias|(^|\s)-[JWFplibB]", re.IGNORECASE
)
_TEMPLATE = re.compile(r"\{[{%]")
_YAML_SUFFIXES = (".yaml", ".yml", ".json")
_YAML_START = re.compile(r"\s*(?:[#;][^\n]*\n\s*)*(?:---|\{|[\w.-]+:\s*(?:\n|$))")


@dataclass(frozen=True, slots=True)
class SshDefaults:
    """How hosts are reached that say nothing else of themselves."""

    user: str = DEFAULT_SSH_USER
    port: int = DEFAULT_SSH_PORT
    key_file: str | None = None


@dataclass(frozen=True, slots=True)
class Inventory:
    """Hosts in the order of the file, and sentences about what was left out of account."""

    hosts: tuple[Host, ...]
    warnings: tuple[str, ...] = ()


def read_inventory(path: Path, defaults: SshDefaults) -> Inventory:
    """Read a file, INI or YAML, with group_vars/ and host_vars/ beside it; `InventoryError` says what is wrong."""
    tree = _parse(path, _text(path))
    try:
        read_variable_files(tree, path.parent)
    except (OSError, UnicodeDecodeError) as error:
        raise InventoryError(f"inventory {path}: variable files cannot be read: {error}") from error
    if not tree.hosts:
        raise InventoryError(f"inventory {path} names no host", hint="See docs/examples/hosts.yaml for an example.")
    builder = _Builder(defaults, tree.warnings)
    built = (builder.host(name, variables) for name, variables in tree.resolved().items())
    hosts = tuple(host for host in built if host is not None)
    return Inventory(hosts, tuple(dict.fromkeys(builder.warnings)))


def _text(path: Path) -> str:
    if path.is_dir():
        raise InventoryError(f"inventory {path} is a folder", hint="Name one inventory file of it.")
    try:
        data = path.read_bytes()
        script = data.startswith((b"#!", b"\x7fELF")) or (path.suffix == ".py" and os.access(path, os.X_OK))
    except OSError as error:
        raise InventoryError(f"inventory {path}: {error.strerror}", hint="Name another with --inventory.") from error
    if script or path.suffix == ".py":
        raise InventoryError(
            f"inventory {path} is a program, which only Ansible runs",
            hint=f"Write its result to a file: ansible-inventory -i {path} --list --yaml --output hosts.yaml",
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InventoryError(f"inventory {path} is not text: {error.reason} at byte {error.start}") from error


def _parse(path: Path, text: str) -> Tree:
    if path.suffix == ".toml":
        raise InventoryError(f"inventory {path}: TOML is not read here", hint="Write it as INI or YAML.")
    if text.startswith("$ANSIBLE_VAULT"):
        raise InventoryError(f"inventory {path} is encrypted", hint=f"ansible-vault decrypt --output hosts.yaml {path}")
    if path.suffix in _YAML_SUFFIXES or (path.suffix != ".ini" and _YAML_START.match(text)):
        return parse_yaml(text, str(path))
    return parse_ini(text, str(path))


class _Builder:
    """Hosts out of variables; collects what is worth a warning."""

    def __init__(self, defaults: SshDefaults, warnings: list[str]) -> None:
        self._defaults = defaults
        self.warnings = list(warnings)

    def host(self, name: str, variables: Mapping[str, Variable]) -> Host | None:
        """The host; None where it is this very machine, which is no host of a cluster seen from outside."""
        connection = _text_of(name, variables, _CONNECTION)
        if connection == "local":
            self.warnings.append(f"host {name} is this machine (ansible_connection=local); left out")
            return None
        if connection is not None and connection not in _SSH:
            raise _cannot(name, "ansible_connection", variables, "only SSH can be used")
        self._check_arguments(name, variables)
        return Host(
            name=_printable(name, "inventory"),
            address=_text_of(name, variables, _ADDRESS) or name,
            port=_port(name, variables, self._defaults.port),
            user=_text_of(name, variables, _USER) or self._defaults.user,
            key_file=_text_of(name, variables, _KEY) or self._defaults.key_file,
        )

    def _check_arguments(self, host: str, variables: Mapping[str, Variable]) -> None:
        for variable in _ARGUMENTS:
            text = _text_of(host, variables, (variable,))
            if text and _ELSEWHERE.search(text):
                raise _cannot(host, variable, variables, "jump hosts and options of ssh cannot be honoured")
            if text:
                self.warnings.append(f"{variables[variable].origin}: {variable} is ignored")
        for variable in _PASSWORDS:
            if variable in variables:
                self.warnings.append(f"{variables[variable].origin}: {variable} is ignored: only keys are used")


def _cannot(host: str, variable: str, variables: Mapping[str, Variable], why: str) -> InventoryError:
    written = variables[variable]
    return InventoryError(
        f"{written.origin}: host {host}: {variable}={_shown(written.value)}: {why}",
        hint="Reach the host directly (address, port, user, key), or leave it out of this inventory.",
    )


def _shown(value: object) -> str:
    return "(encrypted)" if isinstance(value, Encrypted) else str(value)


def _text_of(host: str, variables: Mapping[str, Variable], names: tuple[str, ...]) -> str | None:
    """The text of the first of these variables that is set to anything."""
    for name in names:
        value = variables[name].value if name in variables else None
        if isinstance(value, Encrypted):
            raise _cannot(host, name, variables, "ansible-vault values cannot be read here")
        if isinstance(value, str) and _TEMPLATE.search(value):
            raise _cannot(host, name, variables, "templates are not evaluated here")
        if isinstance(value, list | dict | bool):
            raise _cannot(host, name, variables, "a text is expected")
        if value is not None and str(value).strip():
            return _printable(str(value).strip(), variables[name].origin)
    return None


def _printable(text: str, where: str) -> str:
    """What is going to stand in messages may not steer the terminal."""
    if not text.isprintable():
        raise InventoryError(f"{where}: {text!r} has characters that cannot be printed")
    return text


def _port(host: str, variables: Mapping[str, Variable], default: int) -> int:
    text = _text_of(host, variables, _PORT)
    if text is None:
        return default
    port = port_of(text)
    if port is not None:
        return port
    name = next(name for name in _PORT if name in variables)
    raise _cannot(host, name, variables, "not a port")
