"""Who is logged in on a host: the parser of a section of the probe.

A login counts where somebody can sit at it: at a terminal. The session of the one who asks is left out by its
terminal; without one, `who` either does not list it, or (where it asks systemd) lists it by the name of its service.
"""

import re
from collections.abc import Iterator

from rollout.gather.hosts.answer import assignments
from rollout.gather.hosts.probe_command import EXIT_MARKER
from rollout.model.host import LoggedInUser
from rollout.model.text import excerpt

# A `who` that asks systemd names the service before the terminal.
_LINE = re.compile(r"(\S+)\s+(?:sshd\s+)?(\S+)(?:\s.*)?")
_TERMINAL = re.compile(r"pts/\d{1,6}|tty[A-Za-z]{0,8}\d{1,4}|[hx]vc\d{1,3}|console|:\d{1,3}(?:\.\d{1,3})?")
# What no name of a user has, though a host may say so; a directory's names have backslashes and signs for mail.
_STRANGE = re.compile(r"[^\w.@\\+$…-]")
_LONGEST_NAME = 32
_MOST = 100


def logged_in(section: str) -> tuple[LoggedInUser, ...] | None:
    """Return the logins of a section in its order, at most 100; None where `who` is not on the host, or failed."""
    if f"{EXIT_MARKER} 0" not in section.splitlines():
        return None
    own = assignments(section).get("TTY", "").removeprefix("/dev/")
    return tuple(_logins(section, own))[:_MOST]


def _logins(section: str, own: str) -> Iterator[LoggedInUser]:
    for line in section.splitlines():
        match = _LINE.fullmatch(line.strip())
        if match and match[2] != own and _TERMINAL.fullmatch(match[2]):
            yield LoggedInUser(_STRANGE.sub("?", excerpt(match[1], _LONGEST_NAME)), match[2])
