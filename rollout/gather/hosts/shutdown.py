"""Reads what prevents a host's reboot, or reboots it.

An inhibitor lock in mode `delay`, such as the kubelet's, only delays logind. Any other counts: as
root, `systemctl reboot` ignores `block-weak` (since 257) and ignored `block` before 257.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from rollout.gather.hosts.answer import parse_assignments
from rollout.gather.hosts.probe_command import EXIT_MARKER, FILE_MARKER
from rollout.model.host import LoggedInUser
from rollout.model.text import excerpt, joined, shortened
from rollout.model.timestamps import elapsed

_STRING = r'"((?:[^"\\]|\\.)*)"'
_ROW = re.compile(rf"{_STRING} {_STRING} {_STRING} {_STRING} \d{{1,10}} \d{{1,10}}")
_OCTETS = re.compile(rb"\\(?:([0-7]{3})|(.))", re.DOTALL)
_ONLY_DELAYS = "delay"
_USUAL = "block"
_NUMBER = re.compile(r"[0-9]{1,20}")
_MODES = ("reboot", "kexec", "soft-reboot", "poweroff", "halt", "exit")
_MOST_BLOCKERS = 3
RUNNING = frozenset({"active", "activating", "reloading"})
_DEFAULT = "immediate"
_STRATEGY = re.compile(r"[a-z][a-z_-]{0,31}")
_LONGEST_SECTION = 65536


def inhibition(text: str) -> str:
    """Return who blocks a shutdown and why; empty if nobody does."""
    blocking = []
    for match in _ROW.finditer(text):
        what, who, why, mode = map(_unescape, match.groups())
        if mode == _ONLY_DELAYS or "shutdown" not in what.split(":"):
            continue
        details = why if mode == _USUAL else joined(": ", mode, why)
        blocker = who or "another process"
        blocking.append(f"{blocker} ({details})" if details else blocker)
    return shortened(blocking, _MOST_BLOCKERS, separator=" and ")


def _unescape(text: str) -> str:
    """Decode C's escapes, as busctl writes them, and make the text safe to print."""

    def octet(match: re.Match[bytes]) -> bytes:
        if match[1]:
            return bytes((int(match[1], 8) & 0xFF,))
        # A letter stands for a control character.
        return b" " if match[2] in b"abfnrtv" else match[2]

    return excerpt(_OCTETS.sub(octet, text.encode(errors="replace")).decode(errors="replace"), 60)


def pending_shutdown(text: str) -> str:
    """Return which shutdown is scheduled and when; empty if none is.

    The text holds logind's file and the host's time.
    """
    values = parse_assignments(text)
    mode = values.get("MODE", "")
    if mode not in _MODES:
        return ""
    at = values.get("USEC", "")
    now = values.get("NOW", "")
    sentence = f"a {mode} is scheduled on the host"
    if _NUMBER.fullmatch(at) and _NUMBER.fullmatch(now):
        sentence += f" in {elapsed(int(at) // 1_000_000 - int(now))}"
    return joined(": ", sentence, excerpt(values.get("WALL_MESSAGE", ""), 60))


def zincati_strategy(section: str) -> str:
    """Return the strategy of a Zincati that updates the host, or an empty text."""
    state = section.partition("\n")[0]
    updates = _zincati_updates(section)
    if state.strip() not in RUNNING or updates.get("enabled") is False:
        return ""
    strategy = updates.get("strategy", _DEFAULT)
    return strategy if isinstance(strategy, str) and _STRATEGY.fullmatch(strategy) else "unknown"


def has_disabled_updates(section: str) -> bool:
    """Whether Zincati's configuration turns updates off."""
    return _zincati_updates(section).get("enabled") is False


def _zincati_updates(section: str) -> Mapping[str, Any]:
    """Return Zincati's `updates` table, merged from its files."""
    updates: dict[str, Any] = {}
    for fragment in _fragments(section[:_LONGEST_SECTION]):
        updates |= fragment
    return updates


def _fragments(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the `updates` tables in Zincati's order.

    Of files with the same name the one in the last directory counts.
    """
    files: dict[str, str] = {}
    for part in text.split(f"{FILE_MARKER} ")[1:]:
        path, _, content = part.partition("\n")
        files[path.rpartition("/")[2]] = content
    for name in sorted(files):
        try:
            table = tomllib.loads(files[name]).get("updates", {})
        except (tomllib.TOMLDecodeError, RecursionError):
            continue
        if isinstance(table, dict):
            yield table


# A `who` that uses systemd prints the service before the terminal.
_LINE = re.compile(r"(\S+)\s+(?:sshd\s+)?(\S+)(?:\s.*)?")
_TERMINAL = re.compile(
    r"pts/\d{1,6}|tty[A-Za-z]{0,8}\d{1,4}|[hx]vc\d{1,3}|console|:\d{1,3}(?:\.\d{1,3})?"
)
# Names from a directory server contain backslashes and @.
_STRANGE = re.compile(r"[^\w.@\\+$…-]")
_LONGEST_NAME = 32
_MOST_LOGINS = 100


def parse_logins(section: str) -> tuple[LoggedInUser, ...] | None:
    """Return at most 100 logins on other terminals; None if `who` is missing or failed."""
    lines = section.splitlines()
    if f"{EXIT_MARKER} 0" not in lines:
        return None
    own = parse_assignments(section).get("TTY", "").removeprefix("/dev/")
    users: list[LoggedInUser] = []
    for line in lines:
        match = _LINE.fullmatch(line.strip())
        if match and match[2] != own and _TERMINAL.fullmatch(match[2]):
            name = _STRANGE.sub("?", excerpt(match[1], _LONGEST_NAME))
            users.append(LoggedInUser(name, match[2]))
    return tuple(users[:_MOST_LOGINS])
