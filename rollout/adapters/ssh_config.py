"""What an OpenSSH client configuration says of hosts: the few keywords that decide where and as whom to log in.

A host is looked up by its address, as `ssh ADDRESS` would. What flags or the inventory say goes before it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import paramiko

from rollout.errors import InputError
from rollout.model.host import DEFAULT_SSH_PORT, DEFAULT_SSH_USER, Host

_REFUSED = ("proxyjump", "proxycommand")


def with_ssh_config(hosts: Mapping[str, Host], path: Path) -> Mapping[str, Host]:
    """The hosts with the file's HostName, Port, User and IdentityFile; `InputError` where it cannot be followed."""
    config = _read(path)
    return {name: _configured(host, config.lookup(host.address), path) for name, host in hosts.items()}


def _read(path: Path) -> paramiko.SSHConfig:
    try:
        return paramiko.SSHConfig.from_path(str(path))
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}", hint="Name another file with --ssh-config."
        ) from error
    except (paramiko.ConfigParseError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not an OpenSSH client configuration: {error}") from error


def _configured(host: Host, found: Mapping[str, str | list[str]], path: Path) -> Host:
    asked = next((keyword for keyword in _REFUSED if found.get(keyword, "none") != "none"), None)
    if asked:
        raise InputError(
            f"{path} wants {host.name} reached by {asked}, which is not supported",
            hint="Run rollout from a machine that reaches the hosts directly.",
        )
    keys: Sequence[str | None] = [*found.get("identityfile", ()), None]
    return replace(
        host,
        address=str(found["hostname"]),
        port=int(str(found.get("port", host.port))) if host.port == DEFAULT_SSH_PORT else host.port,
        user=str(found.get("user", host.user)) if host.user == DEFAULT_SSH_USER else host.user,
        key_file=host.key_file or keys[0],
    )
