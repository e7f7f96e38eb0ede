"""Values of an OpenSSH client configuration: tokens, variables, times, as OpenSSH reads them."""

import os
import re
from collections.abc import Mapping

from rollout.errors import InputError

_TOKEN = re.compile(r"%(.?)|\$\{(\w+)\}")
_TIME = re.compile(r"(?:[0-9]{1,9}[smhdw]?)+", re.IGNORECASE)
_PART = re.compile(r"([0-9]+)([smhdw]?)", re.IGNORECASE)
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def expanded(text: str, tokens: Mapping[str, str], *, environment: bool = True) -> str:
    """The text with `%h` and the like, and `${VARIABLE}`; `InputError` where one of them stands for nothing."""

    def value(match: re.Match[str]) -> str:
        if match[2] is None:
            if match[1] not in tokens:
                raise InputError(f"{match[0]} in {text!a} is not supported")
            return tokens[match[1]]
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
