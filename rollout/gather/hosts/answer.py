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
_KEY_VALUE = re.compile(r"^[^\S\n]*([A-Z][A-Z0-9_]*)=(.*)$", re.MULTILINE)
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_~-]{0,63}")
_WORD = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,63}")
_QUOTED = re.compile(r"""(['"])(.*)\1""")


Sections = Mapping[str, str]


def split_sections(text: str) -> Sections:
    """Return the text after each marker line, by name.

    A probe prints a marker before each command's output.
    """
    contents = defaultdict[str, str](str)
    if "\r" in text:
        text = "\n".join(line.rstrip("\r") for line in text.split("\n"))
    _login_output, *parts = _MARKED.split(text)
    names = parts[::2]
    texts = parts[1::2]
    for name, content in zip(names, texts, strict=True):
        # A command may print a marker, too.
        contents[name] += content
    return {name: content.strip() for name, content in contents.items()}


def parse_assignments(text: str) -> Mapping[str, str]:
    """Parse `KEY=value` lines; the last value counts."""
    return {key: _unquote(value.strip()) for key, value in _KEY_VALUE.findall(text)}


def _unquote(value: str) -> str:
    match = _QUOTED.fullmatch(value)
    if match is None:
        return value
    quote, content = match.groups()
    return content if quote == "'" else re.sub(r'\\([$`"\\])', r"\1", content)


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
