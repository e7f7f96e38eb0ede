"""OpenSSH's patterns: `*` and `?` stand for something, everything else for itself, brackets too."""

import re
from collections.abc import Sequence
from functools import lru_cache

_NEGATION = "!"


def is_match(patterns: Sequence[str], name: str) -> bool:
    """Whether a list of patterns is about this name: one that begins with `!` speaks against it, whatever else does."""
    if any(_glob(pattern[1:]).fullmatch(name) for pattern in patterns if pattern.startswith(_NEGATION)):
        return False
    return any(_glob(pattern).fullmatch(name) for pattern in patterns if not pattern.startswith(_NEGATION))


@lru_cache(maxsize=4096)
def _glob(pattern: str) -> re.Pattern[str]:
    parts = (".*" if part == "*" else "." if part == "?" else re.escape(part) for part in re.split(r"([*?])", pattern))
    return re.compile("".join(parts), re.DOTALL)
