"""Reads what blocks a reboot, what else reboots, and who is logged in.

Inhibitor locks in mode `delay`, such as the kubelet's, only delay logind. Others count: as root,
`systemctl reboot` ignores `block-weak` (since 257) and ignored `block` before 257.
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

# Possessive, and after a space: the search must not be quadratic.
_BUS_STRING = r'(?<= )"((?:[^"\\]|\\.)*+)"'
_INHIBITOR = re.compile(
    rf"{_BUS_STRING} {_BUS_STRING} {_BUS_STRING} {_BUS_STRING} \d{{1,10}} \d{{1,10}}"
)
_ESCAPES = re.compile(rb"\\(?:([0-7]{3})|(.))", re.DOTALL)
_DELAY_MODE = "delay"
_BLOCK_MODE = "block"
_NUMBER = re.compile(r"[0-9]{1,20}")
_SHUTDOWN_MODES = ("reboot", "kexec", "soft-reboot", "poweroff", "halt", "exit")
_MOST_BLOCKERS = 3
ACTIVE_STATES = frozenset({"active", "activating", "reloading"})
_DEFAULT_STRATEGY = "immediate"
_STRATEGY = re.compile(r"[a-z][a-z_-]{0,31}")
_LONGEST_SECTION = 65536


def describe_inhibitors(text: str) -> str:
    blocking = []
    for match in _INHIBITOR.finditer(text):
        what, who, why, mode = match.groups()
        blocks_shutdown = "shutdown" in what.split(":")
        if mode == _DELAY_MODE or not blocks_shutdown:
            continue
        reason = _unescape(why)
        details = reason if mode == _BLOCK_MODE else joined(": ", _unescape(mode), reason)
        blocker = _unescape(who) or "another process"
        blocking.append(f"{blocker} ({details})" if details else blocker)
    return shortened(blocking, _MOST_BLOCKERS, separator=" and ")


def _unescape(text: str) -> str:
    r"""Decode `\"` or `\303\274`, and make the text printable."""

    def decode_escape(match: re.Match[bytes]) -> bytes:
        octal, letter = match.groups()
        if octal:
            return bytes([int(octal, 8) & 0xFF])
        is_control_character = letter in b"abfnrtv"
        return b" " if is_control_character else letter

    decoded_text = _ESCAPES.sub(decode_escape, text.encode(errors="replace"))
    return excerpt(decoded_text.decode(errors="replace"), 60)


def describe_scheduled_shutdown(text: str) -> str:
    """Return which shutdown is scheduled, or empty.

    `text` is logind's file with the host's time.
    """
    values = parse_assignments(text)
    mode = values.get("MODE", "")
    if mode not in _SHUTDOWN_MODES:
        return ""
    # Microseconds, and seconds.
    at = values.get("USEC", "")
    now = values.get("NOW", "")
    sentence = f"a {mode} is scheduled on the host"
    if _NUMBER.fullmatch(at) and _NUMBER.fullmatch(now):
        seconds_left = int(at) // 1_000_000 - int(now)
        sentence += f" in {elapsed(seconds_left)}"
    return joined(": ", sentence, excerpt(values.get("WALL_MESSAGE", ""), 60))


def zincati_strategy(section: str) -> str:
    """Return the strategy; empty unless Zincati runs and updates."""
    state, _, _ = section.partition("\n")
    updates = _zincati_updates(section)
    is_running = state.strip() in ACTIVE_STATES
    if not is_running or updates.get("enabled") is False:
        return ""
    strategy = updates.get("strategy", _DEFAULT_STRATEGY)
    if isinstance(strategy, str) and _STRATEGY.fullmatch(strategy):
        return strategy
    return "unknown"


def has_disabled_updates(section: str) -> bool:
    return _zincati_updates(section).get("enabled") is False


def _zincati_updates(section: str) -> Mapping[str, Any]:
    updates: dict[str, Any] = {}
    for fragment in _update_tables(section[:_LONGEST_SECTION]):
        updates |= fragment
    return updates


def _update_tables(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield `updates` tables in Zincati's order."""
    content_by_name: dict[str, str] = {}
    _state, *parts = text.split(f"{FILE_MARKER} ")
    for part in parts:
        path, _, content = part.partition("\n")
        # The last directory's file of a name counts.
        _, _, file_name = path.rpartition("/")
        content_by_name[file_name] = content
    for name in sorted(content_by_name):
        try:
            table = tomllib.loads(content_by_name[name]).get("updates", {})
        # `ValueError`: a number of thousands of digits.
        except (ValueError, RecursionError):
            continue
        if isinstance(table, dict):
            yield table


# With systemd, the service comes before the terminal.
_WHO_LINE = re.compile(r"(\S+)\s+(?:sshd\s+)?(\S+)(?:\s.*)?")
_TERMINAL = re.compile(
    r"pts/\d{1,6}|tty[A-Za-z]{0,8}\d{1,4}|[hx]vc\d{1,3}|console|:\d{1,3}(?:\.\d{1,3})?"
)
# A directory server's names have backslashes and @.
_NOT_IN_NAMES = re.compile(r"[^\w.@\\+$…-]")
_LONGEST_NAME = 32
_MOST_LOGINS = 100


def parse_logins(section: str) -> tuple[LoggedInUser, ...] | None:
    """Return up to 100 logins on other terminals; None if `who` failed."""
    lines = section.splitlines()
    if f"{EXIT_MARKER} 0" not in lines:
        return None
    own_terminal = parse_assignments(section).get("TTY", "").removeprefix("/dev/")
    users: list[LoggedInUser] = []
    for line in lines:
        match = _WHO_LINE.fullmatch(line.strip())
        if match is None:
            continue
        user = match[1]
        terminal = match[2]
        if terminal != own_terminal and _TERMINAL.fullmatch(terminal):
            name = _NOT_IN_NAMES.sub("?", excerpt(user, _LONGEST_NAME))
            users.append(LoggedInUser(name, terminal))
    return tuple(users[:_MOST_LOGINS])
