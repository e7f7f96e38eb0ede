"""Text hygiene for what hosts print.

A host is not trusted: its output may be cut off, binary, or full of terminal escapes, and parts of
it reach the operator's screen. Everything that becomes a value or a message passes one of these
functions.
"""

import re
from collections import defaultdict
from collections.abc import Mapping

from rollout.gather.hosts.probe_command import EXIT_MARKER, MARKER

# The statuses of `timeout` for a command that it cut off, and of a shell for one that it does not
# find.
CUT_OFF = 124
NOT_FOUND = 127
_MARKED = re.compile(rf"^{MARKER} (.+)$", re.MULTILINE)
_EXIT = re.compile(rf"^{EXIT_MARKER} (\d{{1,3}})$", re.MULTILINE)
_KEY_VALUE = re.compile(r"\s*([A-Z][A-Z0-9_]*)=(.*)")


def split_sections(text: str) -> Mapping[str, str]:
    """Return the text after each marker line, by the marker's name; what stands before the first is noise."""
    contents = defaultdict[str, str](str)
    lines = (line.rstrip("\r") for line in text.split("\n"))
    _noise, *parts = _MARKED.split("\n".join(lines))
    for name, content in zip(parts[::2], parts[1::2], strict=True):
        # a command may print a marker of its own: what stood in that section before stays in it
        contents[name] += content
    return {name: content.strip() for name, content in contents.items()}


def parse_assignments(text: str) -> Mapping[str, str]:
    """`KEY=value` lines as shells and os-release write them; the last one of a key counts."""
    matches = (_KEY_VALUE.fullmatch(line) for line in text.split("\n"))
    return {match[1]: _unquote(match[2].strip()) for match in matches if match}


def _unquote(value: str) -> str:
    quote = value[:1]
    if len(value) >= 2 and quote in ("'", '"') and value[-1] == quote:  # noqa: PLR2004 - a pair of quotes
        value = value[1:-1]
        return re.sub(r'\\([$`"\\])', r"\1", value) if quote == '"' else value
    return value


def exit_status(section: str) -> int | None:
    """Return the last one in it, None for none: what came before may be the command's own."""
    statuses = _EXIT.findall(section)
    return int(statuses[-1]) if statuses else None
