"""What an OpenSSH client configuration says of hosts: where, as whom, and through what to log in.

A host is looked up by its address, as `ssh ADDRESS` would. What flags or the inventory say goes before it. What
cannot be followed and would lead elsewhere, or log in otherwise, is refused by name: half of a configuration is worse
than none. Jump hosts are left to OpenSSH's own client, which follows this same file to them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import paramiko

from rollout.errors import InputError
from rollout.model.host import DEFAULT_SSH_PORT, DEFAULT_SSH_USER, Host

_Found = Mapping[str, str | list[str]]

# Ignored, these would send the connection elsewhere or log in with something else.
_REFUSED = (
    "bindaddress",
    "bindinterface",
    "certificatefile",
    "identityagent",
    "include",
    "pkcs11provider",
    "proxyusefdpass",
    "securitykeyprovider",
)
_OFF = ("none", "no", "SSH_AUTH_SOCK")
_INCLUDE = re.compile(r"\s*include[\s=]+(.*)", re.IGNORECASE)
_BLOCK = re.compile(r"\s*(?:host|match)[\s=]", re.IGNORECASE)
_RUNS_A_COMMAND = re.compile(r"\s*match\s.*\bexec\b.*", re.IGNORECASE)
_MOST_NESTED = 16
# Ours, where the file names none; paramiko's would be the operator's.
_LAST = f"Host *\nUser {DEFAULT_SSH_USER}\n"
# Both become words of a local command, and addresses come from the cluster.
_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")


def with_ssh_config(hosts: Mapping[str, Host], path: Path) -> Mapping[str, Host]:
    """The hosts as the file has them reached; `InputError` where it cannot be followed."""
    text = _read(path)
    configs: dict[str, paramiko.SSHConfig] = {}
    found = {}
    for name, host in hosts.items():
        told = _told(host)
        if told not in configs:
            configs[told] = _parsed(f"{told}{text}\n{_LAST}", path)
        found[name] = _configured(host, _look_up(configs[told], host, path), path)
    return found


def _told(host: Host) -> str:
    """What flags or the inventory say, in front: the first value counts, also where a ProxyCommand asks for it."""
    port = f"Port {host.port}\n" if host.port != DEFAULT_SSH_PORT else ""
    user = f"User {host.user}\n" if host.user != DEFAULT_SSH_USER and _SAFE.fullmatch(host.user) else ""
    return f"Host *\n{port}{user}Host *\n"


def _read(path: Path) -> str:
    try:
        return "\n".join(_lines(path, 0))
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}", hint="Name another file with --ssh-config."
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not an OpenSSH client configuration: {error}") from error


def _parsed(text: str, path: Path) -> paramiko.SSHConfig:
    try:
        return paramiko.SSHConfig.from_text(text)
    except paramiko.ConfigParseError as error:
        raise InputError(f"{path} is not an OpenSSH client configuration: {error}") from error


def _lines(path: Path, depth: int) -> Iterator[str]:
    """The file's lines with those of the files that it includes before its first block: paramiko reads no others."""
    if depth > _MOST_NESTED:
        raise InputError(f"{path}: its files include each other")
    in_block = False
    for line in path.read_text(encoding="utf-8").splitlines():
        if _RUNS_A_COMMAND.fullmatch(line):
            raise InputError(f"{path} has a `Match exec`: commands about hosts of the cluster are not run here")
        include = None if in_block else _INCLUDE.fullmatch(line)
        in_block = in_block or bool(_BLOCK.match(line))
        if include is None:
            yield line
            continue
        for file in _included(include[1]):
            yield from _lines(file, depth + 1)
            # What follows is not part of the included file's last block.
            yield "Host *"


def _included(patterns: str) -> Iterator[Path]:
    """Files of an Include line: relative ones are in ~/.ssh, and a pattern without matches is none."""
    for pattern in patterns.split():
        absolute = Path("~/.ssh").expanduser() / Path(pattern.strip('"')).expanduser()
        yield from sorted(Path("/").glob(str(absolute).lstrip("/")))


def _look_up(config: paramiko.SSHConfig, host: Host, path: Path) -> _Found:
    try:
        return config.lookup(host.address)
    except paramiko.SSHException as error:
        raise InputError(f"{path}, for {host.name}: {error}") from error


def _configured(host: Host, found: _Found, path: Path) -> Host:
    asked = next((keyword for keyword in _REFUSED if found.get(keyword, "none") not in _OFF), None)
    if asked:
        raise InputError(
            f"{path} sets {asked} for {host.name}, which is not supported",
            hint="Give rollout a configuration without it: --ssh-config.",
        )
    keys = [*found.get("identityfile", ()), None]
    reached = replace(
        host,
        address=str(found["hostname"]),
        port=_number(found, "port", host.port, path) if host.port == DEFAULT_SSH_PORT else host.port,
        user=str(found.get("user", host.user)) if host.user == DEFAULT_SSH_USER else host.user,
        key_file=host.key_file or keys[0],
        known_as=str(found.get("hostkeyalias", "")),
        known_hosts=_known_hosts(found),
        connect_timeout=_number(found, "connecttimeout", 0, path) or None,
    )
    return replace(reached, proxy=_proxy(reached, found, path, asked_for=host.address))


def _number(found: _Found, keyword: str, default: int, path: Path) -> int:
    text = str(found.get(keyword, default))
    if text == "none":
        return 0
    if not (text.isascii() and text.isdecimal()):
        raise InputError(f"{path}: {keyword} {text!r} is no number")
    return int(text)


def _known_hosts(found: _Found) -> str | None:
    """The first of the files, as new keys are written to it; None where the configuration names none."""
    files = str(found.get("userknownhostsfile", "")).split()
    return str(Path(files[0]).expanduser()) if files else None


def _proxy(host: Host, found: _Found, path: Path, *, asked_for: str) -> tuple[str, ...]:
    """The local command whose input and output are the connection; none where the host is reached directly."""
    jump, command = str(found.get("proxyjump", "none")), str(found.get("proxycommand", "none"))
    if jump == "none" and command == "none":
        return ()
    for word in (asked_for, host.address, host.user):
        if not _SAFE.fullmatch(word):
            raise InputError(f"{host.name}: {word!r} may not be part of the command that {path} reaches it by")
    if command != "none":
        return ("/bin/sh", "-c", f"exec {command}")
    *through, last = (hop.strip() for hop in jump.split(","))
    chain = ("-J", ",".join(through)) if through else ()
    target = f"[{host.address}]:{host.port}"
    return ("ssh", "-F", str(path.resolve()), "-o", "BatchMode=yes", *chain, "-W", target, *_hop(last))


def _hop(hop: str) -> tuple[str, ...]:
    """A jump host, `[user@]host[:port]` or a URI, as ssh's command line takes it."""
    return ("--", hop if hop.startswith("ssh://") else f"ssh://{hop}")
