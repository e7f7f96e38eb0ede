"""The line of a tool's output that says why the tool failed.

Tools print banners before the reason, and their log prefixes change from one release to the next.
So nothing here depends on a prefix: the last line that says something is shown as it is. Only lines
that never are a reason count less, and warnings count less than what else is printed before or
after them.
"""

import re
from collections.abc import Sequence

from rollout.model.text import excerpt

_LIMIT = 160
_WORD = re.compile(r"[^\W\d_]{2}|\d")
# A line as glog prints it, with its level first; the level and the place in the code say nothing to
# an operator.
_GLOG = re.compile(r"[IWEF]\d{4} [\d:.]+\s+\d+ [\w./-]+:\d+\] ?")
# What tools log in passing, in their usual spellings; and what ssh says at the end of any
# connection.
_IN_PASSING = re.compile(
    r"I\d{4} [\d:.]+\s"
    r"|[^a-z]{0,60}\b(?:INFO|DEBUG|TRACE|VERBOSE\d?)\b"
    r"|\W{0,3}(?:info|debug\d?|trace)\b\W"
    r"|.{0,80}\blevel=\"?(?:info|debug|trace)\b"
    r"|(?:Shared c|C)onnection to .* closed\.?$"
    r"|Connection (?:closed|reset) by UNKNOWN\b"
    r"|(?:ssh|kex)_exchange_identification: (?:read: )?Connection (?:closed|reset) by"
    r"|Killed by signal \d+"
    r"|.*: terminating, \d+ bad configuration options?$"
)
# Warnings of OpenSSH, Ansible, Python, shells, glog and structured logs; the last is how OpenSSH
# frames its notices.
_WARNING = re.compile(
    r"(?:\x1b\[[\d;]*m)?(?:"
    r"\W{0,4}(?:deprecation )?warning\b"
    r"|[\w./-]{1,80}: warning: "
    r"|.{0,300}: (?-i:\w+Warning): "
    r"|W\d{4} [\d:.]+\s"
    r"|(?-i:[^a-z]{0,60}\bWARN(?:ING)?\b)"
    r"|.{0,80}\blevel=\"?warn"
    r"|\*\* "
    r")",
    re.IGNORECASE,
)


def last_line(text: str, limit: int = _LIMIT) -> str:
    """Return the last line that says something, safe to show; empty when no line does.

    Of a line that is too long the middle is left out: the cause often stands at its end.
    """
    telling = [line for line in text.splitlines() if _WORD.search(line)]
    reasons = [line for line in telling if not _IN_PASSING.match(line.strip())]
    last = (_without_warnings(reasons) or reasons or telling or [""])[-1].strip()
    return _fit(_without_prefix(last), limit)


def _without_warnings(lines: Sequence[str]) -> list[str]:
    """Leave out warnings, and the indented lines in which they go on, such as the code that Python quotes."""
    kept = list[str]()
    is_warning = False
    for line in lines:
        goes_on = is_warning and line[:1].isspace()
        is_warning = goes_on or _WARNING.match(line.strip()) is not None
        if not is_warning:
            kept.append(line)
    return kept


def _without_prefix(line: str) -> str:
    """Drop a known prefix if what follows says something by itself."""
    rest = _GLOG.sub("", line, count=1)
    return rest if _WORD.search(rest) else line


def _fit(line: str, limit: int) -> str:
    shown = excerpt(line, max(limit, len(line)))
    if len(shown) <= limit:
        return shown
    head = (limit - 3) // 2
    tail = limit - 3 - head
    return f"{shown[:head].rstrip()} … {shown[-tail:].lstrip()}"
