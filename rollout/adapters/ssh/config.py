"""What an OpenSSH client configuration says of hosts: where, as whom, and through what to log in.

What flags or the inventory say goes before it. What cannot be followed and would lead elsewhere, or log in otherwise,
is refused by name where it applies to a host: half of a configuration is worse than none. Jump hosts are left to
OpenSSH's own client, which follows this same file to them.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import paramiko

from rollout.adapters.ssh.config_file import UNDECIDED, read_lines
from rollout.adapters.ssh.known_hosts import SYSTEM_FILE, USER_FILE
from rollout.errors import InputError
from rollout.model.host import DEFAULT_SSH_PORT, DEFAULT_SSH_USER, Host, Identities

_Found = Mapping[str, str | list[str]]

_FILE = Path("~/.ssh/config")
# As `ssh -F none`.
_NO_FILE = Path("none")

_FOLLOWED = (
    "certificatefile",
    "connecttimeout",
    "globalknownhostsfile",
    "hostkeyalias",
    "hostname",
    "identitiesonly",
    "identityagent",
    "identityfile",
    "port",
    "proxycommand",
    "proxyjump",
    "user",
    "userknownhostsfile",
)
# Ignored, these would send the connection elsewhere, log in with something else, or trust a key that is not to be.
_REFUSED = (
    "bindaddress",
    "bindinterface",
    "include",
    "knownhostscommand",
    "pkcs11provider",
    "proxyusefdpass",
    "revokedhostkeys",
    "securitykeyprovider",
)
_OFF = ("none", "no", "internal")
_WAY_OUT = "Give rollout a configuration without it: --ssh-config FILE, or none to go without."
# Ours, where the file names none; paramiko's would be the operator's.
_LAST = f"Host *\nUser {DEFAULT_SSH_USER}\n"
_HOST = re.compile(r"^[ \t]*host[ \t=]+(.*)$", re.IGNORECASE | re.MULTILINE)
# These become words of a local command, and addresses come from the cluster.
_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")


def with_ssh_config(hosts: Mapping[str, Host], path: Path | None) -> Mapping[str, Host]:
    """The hosts as the file has them reached; `InputError` where it cannot be followed.

    `path` None is the operator's own file, if there is one. An empty user and port 0 are those that nobody has told:
    the file's, else the usual ones.
    """
    file = _chosen(path)
    text = _read(file) if file is not None else ""
    patterns = _patterns(text)
    configs: dict[str, paramiko.SSHConfig] = {}
    found = {}
    for name, host in hosts.items():
        told = _told(host)
        if told not in configs:
            configs[told] = _parsed(f"{told}{text}\n{_LAST}", file or _NO_FILE)
        asked = host.name if any(fnmatchcase(host.name, pattern) for pattern in patterns) else host.address
        found[name] = _configured(host, configs[told], asked, file or _NO_FILE)
    return found


def _chosen(path: Path | None) -> Path | None:
    if path == _NO_FILE:
        return None
    return path or next((file for file in (_FILE.expanduser(),) if file.is_file()), None)


def _told(host: Host) -> str:
    """What flags or the inventory say, in front: the first value counts, also where a ProxyCommand asks for it."""
    port = f"Port {host.port}\n" if host.port else ""
    user = f"User {host.user}\n" if _SAFE.fullmatch(host.user) else ""
    return f"Host *\n{port}{user}Host *\n"


def _read(path: Path) -> str:
    try:
        return "\n".join(read_lines(path, (*_FOLLOWED, *_REFUSED)))
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}", hint="Name another file with --ssh-config."
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not an OpenSSH client configuration: {error}", hint=_WAY_OUT) from error


def _parsed(text: str, path: Path) -> paramiko.SSHConfig:
    try:
        return paramiko.SSHConfig.from_text(text)
    except paramiko.ConfigParseError as error:
        raise InputError(f"{path} is not an OpenSSH client configuration: {error}", hint=_WAY_OUT) from error


def _configured(host: Host, config: paramiko.SSHConfig, asked: str, path: Path) -> Host:
    if not asked:
        return replace(host, port=host.port or DEFAULT_SSH_PORT, user=host.user or DEFAULT_SSH_USER)
    try:
        found: _Found = config.lookup(asked)
    except paramiko.SSHException as error:
        raise InputError(f"{path}, for {host.name}: {error}") from error
    _check(found, host, path)
    address = str(found["hostname"])
    reached = replace(
        host,
        # A name of the cluster's without a HostName is no address: the cluster says what is.
        address=host.address if asked == host.name == address else address,
        port=host.port or _number(found, "port", DEFAULT_SSH_PORT, path),
        user=host.user or str(found["user"]),
        known_as=str(found.get("hostkeyalias", "")),
        known_hosts=_known_hosts(found),
        connect_timeout=_number(found, "connecttimeout", 0, path) or None,
        identities=_identities(found),
    )
    return replace(reached, proxy=_proxy(reached, found, path, asked_for=asked))


def _patterns(text: str) -> frozenset[str]:
    """The names that Host lines speak of, rather than of all."""
    words = (word.strip('"') for line in _HOST.finditer(text) for word in line[1].split())
    return frozenset(word for word in words if word.strip("*?.") and not word.startswith("!"))


def _check(found: _Found, host: Host, path: Path) -> None:
    refused = next((keyword for keyword in _REFUSED if found.get(keyword, "none") not in _OFF), None)
    if refused:
        raise InputError(f"{path} sets {refused} for {host.name}, which is not supported", hint=_WAY_OUT)
    if UNDECIDED in found:
        raise InputError(
            f"{path} sets {found[UNDECIDED]} for {host.name} under a Match that cannot be decided here: only host,"
            " originalhost, user and localuser can, and no command about hosts of the cluster is run",
            hint=_WAY_OUT,
        )


def _number(found: _Found, keyword: str, default: int, path: Path) -> int:
    text = str(found.get(keyword, default))
    if text == "none":
        return 0
    if not (text.isascii() and text.isdecimal()):
        raise InputError(f"{path}: {keyword} {text!r} is no number")
    return int(text)


def _known_hosts(found: _Found) -> tuple[str, ...]:
    """All files that are named, those of the user first, as new keys are written to the first; else none."""
    own, everybodys = (
        tuple(str(Path(file).expanduser()) for file in str(found.get(keyword, default)).split() if file != "none")
        for keyword, default in (("userknownhostsfile", USER_FILE), ("globalknownhostsfile", SYSTEM_FILE))
    )
    is_set = "userknownhostsfile" in found or "globalknownhostsfile" in found
    return (*own, *everybodys) if is_set else ()


def _identities(found: _Found) -> Identities:
    files = found.get("identityfile", ())
    certificate = str(found.get("certificatefile", "none"))
    return Identities(
        files=tuple(file for file in files if file != "none"),
        certificates=() if certificate == "none" else (certificate,),
        agent=_agent(str(found.get("identityagent", "SSH_AUTH_SOCK"))),
        only=found.get("identitiesonly", "no") == "yes",
    )


def _agent(value: str) -> str | None:
    if value == "SSH_AUTH_SOCK":
        return None
    if value == "none":
        return ""
    return os.environ.get(value[1:].strip("{}"), "") if value.startswith("$") else value


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
