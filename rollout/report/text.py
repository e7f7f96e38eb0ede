"""Pieces of text that every report shares, and the guard between foreign text and the terminal.

Node names are checked by the API server, but messages, versions and addresses are whatever a host or a webhook
wrote: printed as they are, they could move the cursor, rename the window or hide what stands before them.
"""

import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime

from rollout.model.json_text import UNSAFE_CATEGORIES

_SPACES = str.maketrans({"\n": " ", "\r": " ", "\t": " "})
NOTHING = "-"


def printable(text: str) -> str:
    """One line that is safe to print: control and direction characters become visible escapes."""
    line = text.translate(_SPACES)
    if line.isascii() and line.isprintable():
        return line
    return "".join(_visible(character) for character in line)


def _visible(character: str) -> str:
    if unicodedata.category(character) not in UNSAFE_CATEGORIES:
        return character
    return character.encode("unicode_escape").decode("ascii")


def or_nothing(text: str) -> str:
    """The text made safe, or a dash where there is none."""
    return printable(text) or NOTHING


def elapsed(seconds: float) -> str:
    """A stretch of time as `45s`, `3m05s`, `1h02m`."""
    whole = max(0, round(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


def timestamp(at: datetime) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def version_step(running: str, staged: str) -> str:
    """`3975.2.0 → 4081.2.1`; a question mark stands for a version that nobody knows."""
    return f"{printable(running) or '?'} → {printable(staged) or '?'}"


def counted(number: int, noun: str) -> str:
    """`1 node`, `3 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def shortened(names: Sequence[str], most: int = 5) -> str:
    """Names in a row, the rest of a long list as a number."""
    shown = ", ".join(printable(name) for name in names[:most])
    rest = len(names) - most
    return f"{shown} and {rest} more" if rest > 0 else shown


def listed(sentences: Sequence[str], most: int) -> str:
    """Sentences in a row, the rest of a long list as a number."""
    rest = len(sentences) - most
    return "; ".join(sentences[:most]) + (f"; and {rest} more" if rest > 0 else "")
