"""What an OpenSSH client configuration says of hosts: where, as whom, and through what to log in.

OpenSSH's own client is asked what its configuration means. What flags or the inventory say goes before it. What cannot
be followed and would lead elsewhere, or log in otherwise, is refused by name where it applies to a host: half of a
configuration is worse than none. Jump hosts are left to the client as well, which follows the same files to them.
"""

import getpass
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from rollout.adapters.ssh.config_blocks import read_blocks
from rollout.adapters.ssh.config_client import Question, Settings, ask_client
from rollout.adapters.ssh.config_source import CLIENT, Source, source
from rollout.adapters.ssh.config_values import expanded
from rollout.adapters.ssh.known_hosts import USUAL_FILES
from rollout.errors import InputError
from rollout.model.host import (
    DEFAULT_SSH_PORT,
    DEFAULT_SSH_USER,
    HIGHEST_PORT,
    Host,
    HostKeyFiles,
    Identities,
    is_address,
    port_of,
)

# Ignored, these would send the connection elsewhere, log in with something else, or trust a key that is not to be.
_REFUSED = (
    "bindaddress",
    "bindinterface",
    "knownhostscommand",
    "pkcs11provider",
    "proxyusefdpass",
    "revokedhostkeys",
    "securitykeyprovider",
)
_OFF = ("none", "no", "internal")
_NONE = "none"
# So many take about a second.
_MANY = 200
_WAY_OUT = "Give rollout a configuration without it: --ssh-config FILE, or none to go without."
# These become words of a local command, and addresses come from the cluster.
_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")
# As `valid_ruser` of OpenSSH's ssh.c, which its older versions lack: a user is a word of local commands, too.
_USER = re.compile(r"(?!-)(?!.*\s-)[^'`\";&<>|(){}\x00-\x1f\x7f]*(?<!\\)")


def with_ssh_config(
    hosts: Mapping[str, Host], path: Path | None, announce: Callable[[str], None] = lambda _: None
) -> Mapping[str, Host]:
    """The hosts as the file has them reached; `InputError` where it cannot be followed.

    `path` None stands for the files that `ssh` goes by. An empty user and port 0 are those that nobody has told: the
    configuration's, else all defaults. A wait that takes seconds is announced.
    """
    files = source(path)
    if files.says_nothing:
        return {name: _unconfigured(host) for name, host in hosts.items()}
    questions = {name: _question(host, files) for name, host in hosts.items() if host.address}
    if len(questions) >= _MANY:
        announce(f"asking ssh what {files} means for {len(questions)} hosts, which may take seconds")
    answers = _answers(questions.values(), files)
    return {
        name: _configured(host, questions[name], answers[questions[name]], files)
        if name in questions
        else _unconfigured(host)
        for name, host in hosts.items()
    }


def _unconfigured(host: Host) -> Host:
    return replace(host, port=host.port or DEFAULT_SSH_PORT, user=host.user or DEFAULT_SSH_USER)


def _question(host: Host, files: Source) -> Question:
    asked = host.name if files.names(host.name) else host.address
    if not is_address(asked):
        raise InputError(f"{host.name}: {asked!a} is not a host name: the SSH configuration is not asked about it")
    if not _USER.fullmatch(host.user):
        raise InputError(f"{host.name}: user {host.user!a} has characters that a shell would take for its own")
    return Question(asked, host.user, host.port)


def _answers(questions: Iterable[Question], files: Source) -> Mapping[Question, Settings]:
    return ask_client(questions, files) if shutil.which(CLIENT) else read_blocks(questions, files)


def _configured(host: Host, question: Question, settings: Settings, files: Source) -> Host:
    _check(host, settings, files)
    try:
        return _reached(host, question, settings, files)
    except InputError as error:
        raise InputError(f"{files}, for {host.name}: {error.message}", hint=error.hint) from error


def _reached(host: Host, question: Question, settings: Settings, files: Source) -> Host:
    address = _value(settings, "hostname", question.name)
    reached = replace(
        host,
        # A name of the cluster's without a HostName is no address: the cluster says what is.
        address=host.address if question.name == host.name == address else address,
        port=host.port or _port(settings),
        user=host.user or _value(settings, "user", DEFAULT_SSH_USER),
        known_as=_value(settings, "hostkeyalias").lower(),
        connect_timeout=_connect_timeout(settings),
    )
    tokens = _tokens(reached, question.name, _value(settings, "proxyjump"))
    return replace(
        reached,
        known_hosts=_known_hosts(settings, tokens),
        identities=_identities(settings, tokens),
        proxy=_proxy(reached, settings, files, tokens),
    )


def _value(settings: Settings, keyword: str, default: str = "") -> str:
    return settings.get(keyword, (default,))[0]


def _check(host: Host, settings: Settings, files: Source) -> None:
    refused = next((keyword for keyword in _REFUSED if _value(settings, keyword, _NONE) not in _OFF), None)
    if refused:
        raise InputError(f"{files} sets {refused} for {host.name}, which is not supported", hint=_WAY_OUT)


def _tokens(host: Host, asked: str, jump: str) -> Mapping[str, str]:
    """What stands for `%h` and the like."""
    name = socket.gethostname()
    return {
        "%": "%",
        "d": str(Path.home()),
        "h": host.address,
        "i": str(os.getuid()),
        "j": jump,
        "k": host.known_as or asked,
        "L": name.partition(".")[0],
        "l": name,
        "n": asked,
        "p": str(host.port),
        "r": host.user,
        "u": getpass.getuser(),
    }


def _port(settings: Settings) -> int:
    text = _value(settings, "port", str(DEFAULT_SSH_PORT))
    port = port_of(text)
    if port is None:
        raise InputError(f"port {text!a} is not a port: it takes a number from 1 to {HIGHEST_PORT}")
    return port


def _connect_timeout(settings: Settings) -> int | None:
    text = _value(settings, "connecttimeout", _NONE)
    if text != _NONE and not (text.isascii() and text.isdecimal()):
        raise InputError(f"connecttimeout {text!a} is not a number of seconds")
    return None if text == _NONE else int(text) or None


def _known_hosts(settings: Settings, tokens: Mapping[str, str]) -> HostKeyFiles | None:
    """The files of each kind, or none of it; None where the configuration does not say."""
    keywords = ("userknownhostsfile", "globalknownhostsfile")
    if not any(keyword in settings for keyword in keywords):
        return None
    own, system = (
        tuple(_file(file, tokens) for file in settings.get(keyword, usual) if file != _NONE)
        for keyword, usual in zip(keywords, (USUAL_FILES.own, USUAL_FILES.system), strict=True)
    )
    return HostKeyFiles(own, system)


def _file(text: str, tokens: Mapping[str, str]) -> str:
    return str(Path(expanded(text, tokens)).expanduser())


def _identities(settings: Settings, tokens: Mapping[str, str]) -> Identities:
    files, certificates = (
        tuple(_file(file, tokens) for file in settings.get(keyword, ()))
        for keyword in ("identityfile", "certificatefile")
    )
    return Identities(
        # Of none alone something is left: not even the usual files are to be tried.
        files=tuple(file for file in files if file != _NONE) or files[:1],
        certificates=tuple(file for file in certificates if file != _NONE),
        agent=_agent(_value(settings, "identityagent", "SSH_AUTH_SOCK"), tokens),
        only=_value(settings, "identitiesonly") in ("yes", "true"),
    )


def _agent(value: str, tokens: Mapping[str, str]) -> str | None:
    if value == "SSH_AUTH_SOCK":
        return None
    if value == _NONE:
        return ""
    return os.environ.get(value[1:], "") if re.fullmatch(r"\$\w+", value) else expanded(value, tokens)


def _proxy(host: Host, settings: Settings, files: Source, tokens: Mapping[str, str]) -> tuple[str, ...]:
    """The local command whose input and output are the connection; none where the host is reached directly."""
    jump, command = (_value(settings, keyword, _NONE) for keyword in ("proxyjump", "proxycommand"))
    if jump == command == _NONE:
        return ()
    for word in (tokens["n"], host.address, host.user):
        if not _SAFE.fullmatch(word):
            raise InputError(f"{word!a} may not be part of the command that it is reached by")
    # What else begins with a $ is the shell's.
    way = expanded(command if jump == _NONE else jump, tokens, environment=False)
    if jump == _NONE:
        return ("/bin/sh", "-c", f"exec {way}")
    *through, last = (hop.strip() for hop in way.split(","))
    chain = ("-J", ",".join(through)) if through else ()
    target = f"[{host.address}]:{host.port}"
    return (CLIENT, *files.arguments, "-o", "BatchMode=yes", *chain, "-W", target, *_hop(last))


def _hop(hop: str) -> tuple[str, ...]:
    """A jump host, `[user@]host[:port]` or a URI, as ssh's command line takes it."""
    return ("--", hop if hop.startswith("ssh://") else f"ssh://{hop}")
