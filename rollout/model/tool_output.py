"""The line of a tool's output that says why the tool failed.

Tools print banners before the reason, and their log prefixes change from one release to the next. So nothing here
depends on a prefix: the last line that says something is shown as it is. Only lines that never are a reason count less.
"""

import re

from rollout.model.text import excerpt

_LIMIT = 160
_WORD = re.compile(r"[^\W\d_]{2}|\d")
# A line as glog prints it, with its level first; the level and the place in the code say nothing to an operator.
_GLOG = re.compile(r"[IWEF]\d{4} [\d:.]+\s+\d+ [\w./-]+:\d+\] ?")
# What tools log in passing, in their usual spellings; and what ssh says at the end of any connection.
_IN_PASSING = re.compile(
    r"I\d{4} [\d:.]+\s"
    r"|[^a-z]{0,60}\b(?:INFO|DEBUG|TRACE|VERBOSE\d?)\b"
    r"|\W{0,3}(?:info|debug\d?|trace)\b\W"
    r"|.{0,80}\blevel=\"?(?:info|debug|trace)\b"
    r"|(?:Shared c|C)onnection to .* closed\.?$"
    r"|Connection (?:closed|reset) by UNKNOWN\b"
    r"|(?:ssh|kex)_exchange_identification: (?:read: )?Connection (?:closed|reset) by"
    r"|Killed by signal \d+"
)


def last_words(text: str, limit: int = _LIMIT) -> str:
    """Return the last line that says something, safe to show; empty when no line does.

    Of a line that is too long the middle is left out: the cause often stands at its end.
    """
    lines = [line.strip() for line in text.splitlines()]
    telling = [line for line in lines if _WORD.search(line)]
    reasons = [line for line in telling if not _IN_PASSING.match(line)]
    last = (reasons or telling or [""])[-1]
    return _fitted(_without_prefix(last), limit)


def _without_prefix(line: str) -> str:
    """Drop a known prefix if what follows says something by itself."""
    rest = _GLOG.sub("", line, count=1)
    return rest if _WORD.search(rest) else line


def _fitted(line: str, limit: int) -> str:
    shown = excerpt(line, max(limit, len(line)))
    if len(shown) <= limit:
        return shown
    head = (limit - 3) // 2
    tail = limit - 3 - head
    return f"{shown[:head].rstrip()} … {shown[-tail:].lstrip()}"
