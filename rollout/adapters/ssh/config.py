"""What an OpenSSH client configuration says of hosts: where, as whom, and through what to log in.

What flags or the inventory say goes before it. What cannot be followed and would lead elsewhere, or log in otherwise,
is refused by name where it applies to a host: half of a configuration is worse than none. Jump hosts are left to
OpenSSH's own client, which follows this same file to them.
"""

import getpass
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import paramiko

from rollout.adapters.ssh.config_file import CANONICAL, CERTIFICATE, UNDECIDED, read_lines
from rollout.adapters.ssh.config_values import expanded, is_on, seconds, words
from rollout.adapters.ssh.known_hosts import SYSTEM_FILE, USER_FILE
from rollout.adapters.ssh.sockets import is_literal
from rollout.errors import InputError
from rollout.model.host import DEFAULT_SSH_PORT, DEFAULT_SSH_USER, Host, Identities

_Found = Mapping[str, str | list[str] | None]

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
_MATCH = re.compile(r"^[ \t]*match[ \t=].*?$", re.IGNORECASE | re.MULTILINE)
_MATCHED = re.compile(r"(?<=\s)(?:original)?host (\S+)", re.IGNORECASE)
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
    address = str(found["hostname"])
    reached = replace(
        host,
        # A name of the cluster's without a HostName is no address: the cluster says what is.
        address=host.address if asked == host.name == address else address,
        port=host.port or _port(found, path),
        user=host.user or str(found["user"]),
        known_as=str(found.get("hostkeyalias", "")),
        connect_timeout=_connect_timeout(found, path) or None,
    )
    _check(found, reached, path)
    tokens = _tokens(reached, asked)
    try:
        reached = replace(reached, known_hosts=_known_hosts(found, tokens), identities=_identities(found, tokens))
    except InputError as error:
        raise InputError(f"{path}, for {host.name}: {error.message}") from error
    return replace(reached, proxy=_proxy(reached, found, path, asked_for=asked, tokens=tokens))


def _tokens(host: Host, asked: str) -> Mapping[str, str]:
    """What stands for `%h` and the like; whatever paramiko knows it has put in already."""
    return {
        "%": "%",
        "d": str(Path.home()),
        "h": host.address,
        "i": str(os.getuid()),
        "k": host.known_as or asked,
        "L": socket.gethostname().partition(".")[0],
        "n": asked,
        "p": str(host.port),
        "r": host.user,
        "u": getpass.getuser(),
    }


def _patterns(text: str) -> frozenset[str]:
    """The names that Host lines speak of, rather than of all."""
    named = [word.strip('"') for line in _HOST.finditer(text) for word in line[1].split()]
    criteria = (found[1] for line in _MATCH.finditer(text) for found in _MATCHED.finditer(line[0]))
    named += (pattern for criterion in criteria for word in words(criterion) for pattern in word.split(","))
    return frozenset(word for word in named if word.strip("*?.") and not word.startswith("!"))


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
    if _is_looked_up(found, host.address):
        raise InputError(f"{path} sets canonicalizehostname for {host.name}, which is not supported", hint=_WAY_OUT)


def _is_looked_up(found: _Found, address: str) -> bool:
    """Whether OpenSSH would complete this name: not one that is an address, or has its domain already."""
    told = str(found.get(CANONICAL, "no")).strip('"').lower()
    wanted = told == "always" or (is_on(told) and not any(_way(found)))
    most = str(found.get("canonicalizemaxdots", "1"))
    return wanted and not is_literal(address) and address.count(".") <= (int(most) if most.isdecimal() else 1)


def _port(found: _Found, path: Path) -> int:
    text = str(found.get("port", DEFAULT_SSH_PORT))
    if not (text.isascii() and text.isdecimal()):
        raise InputError(f"{path}: port {text!r} is no number")
    return int(text)


def _connect_timeout(found: _Found, path: Path) -> int:
    text = str(found.get("connecttimeout", "none"))
    told = 0 if text == "none" else seconds(text)
    if told is None:
        raise InputError(f"{path}: connecttimeout {text!r} is no number of seconds, and no time like 1m30s")
    return told


def _known_hosts(found: _Found, tokens: Mapping[str, str]) -> tuple[str, ...]:
    """All files that are named, those of the user first, as new keys are written to the first; else none."""
    own, everybodys = (
        tuple(_file(file, tokens) for file in words(str(found.get(keyword, default))) if file != "none")
        for keyword, default in (("userknownhostsfile", USER_FILE), ("globalknownhostsfile", SYSTEM_FILE))
    )
    is_set = "userknownhostsfile" in found or "globalknownhostsfile" in found
    return (*own, *everybodys) if is_set else ()


def _file(text: str, tokens: Mapping[str, str]) -> str:
    return str(Path(expanded(text, tokens)).expanduser())


def _identities(found: _Found, tokens: Mapping[str, str]) -> Identities:
    files = [expanded(file, tokens) for file in found.get("identityfile") or () if file != "none"]
    return Identities(
        files=tuple(file for file in files if not file.startswith(CERTIFICATE)),
        certificates=tuple(file.removeprefix(CERTIFICATE) for file in files if file.startswith(CERTIFICATE)),
        agent=_agent(str(found.get("identityagent", "SSH_AUTH_SOCK")), tokens),
        only=is_on(str(found.get("identitiesonly", "no"))),
    )


def _agent(value: str, tokens: Mapping[str, str]) -> str | None:
    if value == "SSH_AUTH_SOCK":
        return None
    if value == "none":
        return ""
    return os.environ.get(value[1:], "") if re.fullmatch(r"\$\w+", value) else expanded(value, tokens)


def _way(found: _Found) -> tuple[str, str]:
    """The jump hosts, or the command: of the two the one that comes first; both empty where the way is direct."""
    for keyword, value in found.items():
        if keyword == "proxycommand":
            # paramiko makes nothing of the word none; it ends the search, which a ProxyJump of none does not.
            return "", "" if value in (None, "none") else str(value)
        if keyword == "proxyjump" and value != "none":
            return str(value), ""
    return "", ""


def _proxy(host: Host, found: _Found, path: Path, *, asked_for: str, tokens: Mapping[str, str]) -> tuple[str, ...]:
    """The local command whose input and output are the connection; none where the host is reached directly."""
    jump, command = _way(found)
    if not (jump or command):
        return ()
    for word in (asked_for, host.address, host.user):
        if not _SAFE.fullmatch(word):
            raise InputError(f"{host.name}: {word!r} may not be part of the command that {path} reaches it by")
    if command:
        # What else begins with a $ is the shell's.
        return ("/bin/sh", "-c", f"exec {expanded(command, tokens, environment=False)}")
    *through, last = (hop.strip() for hop in jump.split(","))
    chain = ("-J", ",".join(through)) if through else ()
    target = f"[{host.address}]:{host.port}"
    return ("ssh", "-F", str(path.resolve()), "-o", "BatchMode=yes", *chain, "-W", target, *_hop(last))


def _hop(hop: str) -> tuple[str, ...]:
    """A jump host, `[user@]host[:port]` or a URI, as ssh's command line takes it."""
    return ("--", hop if hop.startswith("ssh://") else f"ssh://{hop}")
