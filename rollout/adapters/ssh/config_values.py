"""Values of an OpenSSH client configuration: comments, words, tokens, variables, times, as OpenSSH reads them.

paramiko knows few tokens, and none of the rest.
"""

import os
import re
import shlex
from collections.abc import Mapping

from rollout.errors import InputError

# What is in quotes, or has a # within a word, is no comment.
_BEFORE_COMMENT = re.compile(r"""(?:[^"'\s]+|"[^"]*"|'[^']*'|\s+(?!\#))*""")
_TOKEN = re.compile(r"%(.)|\$\{(\w+)\}")
_TIME = re.compile(r"(?:[0-9]{1,9}[smhdw]?)+", re.IGNORECASE)
_PART = re.compile(r"([0-9]+)([smhdw]?)", re.IGNORECASE)
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def without_comment(line: str) -> str:
    """The line without a comment at its end; as it is where its quotes do not pair."""
    found = _BEFORE_COMMENT.match(line.strip())
    text, rest = (found[0], found.string[found.end() :]) if found else (line, "")
    return text.rstrip() if rest.lstrip().startswith("#") else line


def words(text: str) -> list[str]:
    """The words of a value, some of which may be in quotes; `ValueError` where quotes do not pair."""
    return shlex.split(text)


def expanded(text: str, tokens: Mapping[str, str], *, environment: bool = True) -> str:
    """The text with `%h` and the like, and `${VARIABLE}`; `InputError` where a variable is not set."""

    def value(match: re.Match[str]) -> str:
        if match[2] is None:
            return tokens.get(match[1], match[0])
        if not environment:
            return match[0]
        if match[2] not in os.environ:
            raise InputError(f"${{{match[2]}}} is not set")
        return os.environ[match[2]]

    return _TOKEN.sub(value, text)


def is_on(text: str) -> bool:
    """Whether a switch is on."""
    return text.lower() in ("yes", "true")


def seconds(text: str) -> int | None:
    """A time, as in `90` and `1m30s`; None where it is none."""
    if not _TIME.fullmatch(text):
        return None
    return sum(int(number) * _UNITS[unit.lower()] for number, unit in _PART.findall(text))
