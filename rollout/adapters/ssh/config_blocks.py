"""Configurations that consist of Host blocks, for where no OpenSSH client is installed to ask.

What takes more than the first value of each keyword to follow (Match, Include in a block, CanonicalizeHostname), or
the client itself (ProxyJump), is refused: it is better not to connect than to connect elsewhere.
"""

import socket
from collections.abc import Iterable
from contextlib import suppress

from rollout.adapters.ssh.config_client import Question, Settings
from rollout.adapters.ssh.config_source import Source
from rollout.adapters.ssh.config_text import Line
from rollout.adapters.ssh.config_values import expanded
from rollout.adapters.ssh.patterns import is_match
from rollout.errors import InputError

_WAY_OUT = "Install OpenSSH's client (openssh-client), or go without: --ssh-config none."
_COLLECTED = ("identityfile", "certificatefile")
_LISTS = ("userknownhostsfile", "globalknownhostsfile")
# Whose value is taken as it stands, with quotes and #.
_RAW = ("proxycommand", "knownhostscommand", "localcommand", "remotecommand")
_JUMP = "proxyjump"
# A comment begins with one of them, or none; the other escapes, or does not.
_MARKS = {"#", "\\"}


def read_blocks(questions: Iterable[Question], source: Source) -> dict[Question, Settings]:
    """What Host blocks say to each question; `InputError` where there is more than Host blocks."""
    for line in source.lines:
        _check(line)
    return {question: _settings(question, source.lines) for question in questions}


def _check(line: Line) -> None:
    completes = line.keyword == "canonicalizehostname" and line.value != "no"
    if line.keyword in ("", "match", "include") or completes or (line.keyword not in _RAW and set(line.value) & _MARKS):
        raise _beyond(line)


def _settings(question: Question, lines: Iterable[Line]) -> Settings:
    settings: dict[str, tuple[str, ...]] = {}
    is_about = True
    for line in lines:
        if line.keyword == "host":
            is_about = is_match(line.words, question.name)
        elif is_about:
            _add(settings, line)
    if question.user:
        settings["user"] = (question.user,)
    if question.port:
        settings["port"] = (str(question.port),)
    if "hostname" in settings:
        tokens = {"h": question.name, "%": "%"}
        settings["hostname"] = (_in_full(expanded(settings["hostname"][0], tokens, environment=False)),)
    return settings


def _in_full(address: str) -> str:
    """An address that is cut short, like 127.1, as the client writes it."""
    with suppress(OSError):
        return socket.inet_ntoa(socket.inet_aton(address))
    return address


def _add(settings: dict[str, tuple[str, ...]], line: Line) -> None:
    """The first value counts, of keywords that may be given several times each."""
    value = (line.value.lstrip("= \t"),) if line.keyword in _RAW else tuple(line.words)
    if not any(value):
        raise InputError(f"{line.place}: {line.keyword} has no value", hint=_WAY_OUT)
    if line.keyword in _COLLECTED:
        settings[line.keyword] = tuple(dict.fromkeys((*settings.get(line.keyword, ()), value[0])))
    elif line.keyword not in settings and not (line.keyword == _JUMP and "proxycommand" in settings):
        if line.keyword == _JUMP and line.value != "none":
            raise _beyond(line)
        settings[line.keyword] = value if line.keyword in _LISTS else value[:1]


def _beyond(line: Line) -> InputError:
    return InputError(
        f"{line.place}: {line.keyword or line.value} needs OpenSSH's client, which is not installed",
        hint=_WAY_OUT,
    )
