"""Pieces of text that every report shares: those of all messages (`rollout.model.text`), and its own."""

from datetime import UTC, datetime

from rollout.model.text import listed, printable, shortened

__all__ = [
    "NOTHING",
    "counted",
    "elapsed",
    "listed",
    "or_nothing",
    "printable",
    "shortened",
    "timestamp",
    "version_step",
]

NOTHING = "-"


def or_nothing(text: str) -> str:
    """The text made safe, or a dash where there is none."""
    return printable(text) or NOTHING


def elapsed(seconds: float) -> str:
    """A stretch of time as `45s`, `3m05s`, `1h02m`."""
    whole = max(0, round(seconds))
    minutes, remainder = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{remainder:02}s" if minutes else f"{remainder}s"


def timestamp(at: datetime) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def version_step(running: str, staged: str) -> str:
    """`3975.2.0 → 4081.2.1`; a question mark stands for a version that nobody knows."""
    return f"{printable(running) or '?'} → {printable(staged) or '?'}"


def counted(number: int, noun: str) -> str:
    """`1 node`, `3 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
