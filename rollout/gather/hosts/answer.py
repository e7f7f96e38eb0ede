"""Parses hosts' output: cut off, binary or with terminal escapes."""

import re
from collections import defaultdict
from collections.abc import Mapping

from rollout.gather.hosts.probe_command import EXIT_MARKER, MARKER

# Exit statuses of `timeout` and a shell.
TIMED_OUT = 124
NOT_FOUND = 127
_MARKED = re.compile(rf"^{MARKER} (.+)$", re.MULTILINE)
_EXIT = re.compile(rf"^{EXIT_MARKER} (\d{{1,3}})$", re.MULTILINE)
_KEY_VALUE = re.compile(r"\s*([A-Z][A-Z0-9_]*)=(.*)")
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_~-]{0,63}")
_WORD = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,63}")
_SINGLE_QUOTED = re.compile(r"'(.*)'")
_DOUBLE_QUOTED = re.compile(r'"(.*)"')


# Output by section.
Sections = Mapping[str, str]


def split_sections(text: str) -> Sections:
    """Return the text after each marker line, by name.

    A probe is a shell script, which prints a marker before each command's output.
    """
    contents = defaultdict[str, str](str)
    lines = [line.rstrip("\r") for line in text.split("\n")]
    # A login shell's output, then names and texts in turn.
    _login_output, *parts = _MARKED.split("\n".join(lines))
    names = parts[::2]
    texts = parts[1::2]
    for name, content in zip(names, texts, strict=True):
        # A command may print a marker, too.
        contents[name] += content
    return {name: content.strip() for name, content in contents.items()}


def parse_assignments(text: str) -> Mapping[str, str]:
    """Parse `KEY=value` lines; the last value counts."""
    matches = (_KEY_VALUE.fullmatch(line) for line in text.split("\n"))
    return {match[1]: _unquote(match[2].strip()) for match in matches if match}


def _unquote(value: str) -> str:
    """Remove quotes, and backslashes in double quotes."""
    match = _SINGLE_QUOTED.fullmatch(value)
    if match:
        return match[1]
    match = _DOUBLE_QUOTED.fullmatch(value)
    if match:
        return re.sub(r'\\([$`"\\])', r"\1", match[1])
    return value


def word_or_empty(text: str) -> str:
    return text if _WORD.fullmatch(text) else ""


def version_or_empty(text: str) -> str:
    return text if _VERSION.fullmatch(text) else ""


def last_exit_status(section: str) -> int | None:
    """Return the last: commands may print others. None if cut off."""
    statuses = _EXIT.findall(section)
    return int(statuses[-1]) if statuses else None


def output_of(section: str) -> str:
    """Return the output; empty without an exit status."""
    return section.rpartition(f"\n{EXIT_MARKER}")[0]


def not_run_message(output: str) -> str:
    return f"the host did not run the command, and printed: {output or 'nothing'}"
