"""Parses the output of hosts, which may be cut off, binary or full of terminal escapes."""

import re
from collections import defaultdict
from collections.abc import Mapping

from rollout.gather.hosts.probe_command import EXIT_MARKER, MARKER

# Exit statuses of `timeout`, and of a shell for an unknown command.
TIMED_OUT = 124
NOT_FOUND = 127
_MARKED = re.compile(rf"^{MARKER} (.+)$", re.MULTILINE)
_EXIT = re.compile(rf"^{EXIT_MARKER} (\d{{1,3}})$", re.MULTILINE)
_KEY_VALUE = re.compile(r"\s*([A-Z][A-Z0-9_]*)=(.*)")
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_~-]{0,63}")
_WORD = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,63}")
_SINGLE_QUOTED = re.compile(r"'(.*)'")
_DOUBLE_QUOTED = re.compile(r'"(.*)"')


# Printed on stdout or stderr, by section.
Sections = Mapping[str, str]


def split_sections(text: str) -> Sections:
    """Return the text after each marker line, by the name in the marker.

    A probe is one shell script, which prints a marker before the output of each command.
    """
    contents = defaultdict[str, str](str)
    lines = [line.rstrip("\r") for line in text.split("\n")]
    # The output of the login shell, then alternately a name and the text after its marker.
    _login_output, *parts = _MARKED.split("\n".join(lines))
    names = parts[::2]
    texts = parts[1::2]
    for name, content in zip(names, texts, strict=True):
        # A command may print a marker itself, so a name may come twice.
        contents[name] += content
    return {name: content.strip() for name, content in contents.items()}


def parse_assignments(text: str) -> Mapping[str, str]:
    """Parse `KEY=value` lines, as of os-release; the last value of a key counts."""
    matches = (_KEY_VALUE.fullmatch(line) for line in text.split("\n"))
    return {match[1]: _unquote(match[2].strip()) for match in matches if match}


def _unquote(value: str) -> str:
    """Remove the quotes of a shell assignment, and the backslashes in double quotes."""
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
    """Return a section's last exit status: the command may print others. None if cut off."""
    statuses = _EXIT.findall(section)
    return int(statuses[-1]) if statuses else None


def output_of(section: str) -> str:
    """Return what a command printed before its exit status; empty without the status."""
    return section.rpartition(f"\n{EXIT_MARKER}")[0]


def not_run_message(output: str) -> str:
    return f"the host did not run the command, and printed: {output or 'nothing'}"
