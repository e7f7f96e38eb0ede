"""Tokens and variables in the values of an OpenSSH client configuration."""

import os
import re
from collections.abc import Mapping

from rollout.errors import InputError

_TOKEN = re.compile(r"%(.?)|\$\{(\w+)\}")


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
