import re
from collections.abc import Sequence

from msgspec import Struct

from rollout.model.text import excerpt

_LIMIT = 160
_OMISSION = " … "
_WORD = re.compile(r"[^\W\d_]{2}|\d")
_GLOG = re.compile(r"[IWEF]\d{4} [\d:.]+\s+\d+ [\w./-]+:\d+\] ?")
# Messages below warnings, and what ssh says at any end.
_NO_REASON = re.compile(
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
# OpenSSH, Ansible, Python, shells, glog, structured logs, OpenSSH's notices.
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


class CommandEnd(Struct, frozen=True):
    """How a command ended."""

    # Why it did not exit with 0, or empty.
    problem: str
    reason: str = ""
    output: tuple[str, ...] = ()


def last_line(text: str, limit: int = _LIMIT) -> str:
    """Return why a tool failed: its last error, warning, or line with a word.

    A long line loses its middle.
    """
    lines = [line for line in text.splitlines() if _WORD.search(line)]
    errors_and_warnings = [line for line in lines if not _NO_REASON.match(line.strip())]
    errors = _without_warnings(errors_and_warnings)
    candidates = errors or errors_and_warnings or lines
    if not candidates:
        return ""
    last = candidates[-1].strip()
    return _fit(_without_prefix(last), limit)


def last_lines(text: str, most: int) -> tuple[str, ...]:
    """Return meaningful lines, safe to show."""
    lines = [line.strip() for line in text.splitlines() if _WORD.search(line)]
    return tuple(_fit(line, _LIMIT) for line in lines[-most:])


def _without_warnings(lines: Sequence[str]) -> list[str]:
    other_lines = list[str]()
    is_in_warning = False
    for line in lines:
        is_indented = line[:1].isspace()
        continues_warning = is_in_warning and is_indented
        starts_warning = _WARNING.match(line.strip()) is not None
        is_in_warning = continues_warning or starts_warning
        if not is_in_warning:
            other_lines.append(line)
    return other_lines


def _without_prefix(line: str) -> str:
    """Remove glog's `E1130 01:10:54.1 7 main.go:5]`."""
    rest = _GLOG.sub("", line, count=1)
    return rest if _WORD.search(rest) else line


def _fit(line: str, limit: int) -> str:
    # This limit is too high to shorten the line.
    safe = excerpt(line, max(limit, len(line)))
    if len(safe) <= limit:
        return safe
    kept = limit - len(_OMISSION)
    kept_at_start = kept // 2
    kept_at_end = kept - kept_at_start
    start = safe[:kept_at_start].rstrip()
    end = safe[-kept_at_end:].lstrip()
    return f"{start}{_OMISSION}{end}"
