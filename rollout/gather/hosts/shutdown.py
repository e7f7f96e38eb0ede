"""What on a host stands against rebooting it now, or reboots it by itself: locks, shutdowns, Zincati, and who is there.

Locks in mode `delay` (a kubelet's) only have logind wait for a few seconds. One in any other mode
is somebody's word that the host is not to go down, whether this systemd would obey it or not:
`systemctl reboot` as root, by sudo too, is let past `block-weak`, which came with 257, and past
`block` before 257; since then `block` holds root as well.

Of Zincati's fragments of one name the one in the directory that comes last counts; then they are
read by their names, and a later value replaces an earlier one.

A login counts where somebody can sit at it: at a terminal. The session of the one who asks is left
out by its terminal; without one, `who` either does not list it, or (where it asks systemd) lists it
by the name of its service.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from rollout.gather.hosts.answer import parse_assignments
from rollout.gather.hosts.probe_command import EXIT_MARKER, FILE_MARKER
from rollout.model.host import LoggedInUser
from rollout.model.text import excerpt, shortened
from rollout.model.timestamps import elapsed

_STRING = r'"((?:[^"\\]|\\.)*)"'
_ROW = re.compile(rf"{_STRING} {_STRING} {_STRING} {_STRING} \d{{1,10}} \d{{1,10}}")
_OCTETS = re.compile(rb"\\(?:([0-7]{3})|(.))", re.DOTALL)
_ONLY_DELAYS = "delay"
_USUAL = "block"
_MICROSECONDS = re.compile(r"[0-9]{1,20}")
_MODES = ("reboot", "kexec", "soft-reboot", "poweroff", "halt", "exit")
_MOST = 3
RUNNING = frozenset({"active", "activating", "reloading"})
_DEFAULT = "immediate"
_STRATEGY = re.compile(r"[a-z][a-z_-]{0,31}")
_LONGEST_SECTION = 65536


def inhibition(text: str) -> str:
    """Who blocks a shutdown and why, out of busctl's answer to ListInhibitors; empty where nobody does.

    With the mode of a lock where that is not the usual one.
    """
    blocking = []
    for match in _ROW.finditer(text):
        what, who, why, mode = map(_unescape, match.groups())
        if mode != _ONLY_DELAYS and "shutdown" in what.split(":"):
            details = ": ".join(filter(None, ("" if mode == _USUAL else mode, why)))
            blocking.append(f"{who or 'another process'}{f' ({details})' if details else ''}")
    return shortened(blocking, _MOST, separator=" and ")


def _unescape(text: str) -> str:
    """Return a string as busctl writes it, in C's escapes, made safe to print."""

    def octet(match: re.Match[bytes]) -> bytes:
        if match[1]:
            return bytes((int(match[1], 8) & 0xFF,))
        return b" " if match[2] in b"abfnrtv" else match[2]

    return excerpt(_OCTETS.sub(octet, text.encode(errors="replace")).decode(errors="replace"), 60)


def pending_shutdown(text: str) -> str:
    """Which shutdown is scheduled and when, out of logind's file and the host's time; empty where none is."""
    values = parse_assignments(text)
    mode = values.get("MODE", "")
    said = excerpt(values.get("WALL_MESSAGE", ""), 60)
    if mode not in _MODES:
        return ""
    at = values.get("USEC", "")
    now = values.get("NOW", "")
    known = _MICROSECONDS.fullmatch(at) and _MICROSECONDS.fullmatch(now)
    when = f" in {elapsed(int(at) // 1_000_000 - int(now))}" if known else ""
    return f"a {mode} is scheduled on the host{when}{f': {said}' if said else ''}"


def zincati_strategy(section: str) -> str:
    """Its strategy, `immediate` or `fleet_lock` for example; empty where it does not run, or is not to reboot."""
    state, _, rest = section[:_LONGEST_SECTION].partition("\n")
    if state.strip() not in RUNNING:
        return ""
    updates: dict[str, Any] = {}
    for fragment in _fragments(rest):
        updates |= fragment
    if updates.get("enabled") is False:
        return ""
    strategy = updates.get("strategy", _DEFAULT)
    return strategy if isinstance(strategy, str) and _STRATEGY.fullmatch(strategy) else "unknown"


def _fragments(text: str) -> Iterator[Mapping[str, Any]]:
    """Return the `[updates]` tables, in the order in which they count; what is no TOML is left out."""
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


# A `who` that asks systemd names the service before the terminal.
_LINE = re.compile(r"(\S+)\s+(?:sshd\s+)?(\S+)(?:\s.*)?")
_TERMINAL = re.compile(
    r"pts/\d{1,6}|tty[A-Za-z]{0,8}\d{1,4}|[hx]vc\d{1,3}|console|:\d{1,3}(?:\.\d{1,3})?"
)
# What no name of a user has, though a host may say so; a directory's names have backslashes and
# signs for mail.
_STRANGE = re.compile(r"[^\w.@\\+$…-]")
_LONGEST_NAME = 32
_MOST_LOGINS = 100


def parse_logins(section: str) -> tuple[LoggedInUser, ...] | None:
    """Return the logins of a section in its order, at most 100; None where `who` is not on the host, or failed."""
    lines = section.splitlines()
    if f"{EXIT_MARKER} 0" not in lines:
        return None
    own = parse_assignments(section).get("TTY", "").removeprefix("/dev/")
    matches = filter(None, (_LINE.fullmatch(line.strip()) for line in lines))
    logins = [
        match.groups() for match in matches if match[2] != own and _TERMINAL.fullmatch(match[2])
    ]
    shown = (
        LoggedInUser(_STRANGE.sub("?", excerpt(name, _LONGEST_NAME)), at)
        for name, at in logins[:_MOST_LOGINS]
    )
    return tuple(shown)
