"""Durations, counts and selectors as option values: a bad one is reported with the flag it was given to."""

from collections.abc import Callable
from typing import TypeVar

from rollout.errors import UsageError
from rollout.model.quantity import Count, Duration
from rollout.planning.selector import parse_selector

T = TypeVar("T")


def duration(value: str | Duration) -> Duration:
    """A written duration, read."""
    return value if isinstance(value, Duration) else _read(Duration.parse, value)


def at_least_one(value: str | Count) -> Count:
    """A written count, read; not zero, for a rollout that may take no node never ends."""
    found = value if isinstance(value, Count) else _read(Count.parse, value)
    if found.is_zero:
        raise ValueError("0 would take no node at all. Write at least 1, or a percentage above 0%.")
    return found


def some_time(value: str | Duration) -> Duration:
    """A written duration, read; not zero, for nothing happens in no time."""
    found = duration(value)
    if not found:
        raise ValueError("0s leaves no time at all. Write it as in Kubernetes: 90s, 10m, 1h30m.")
    return found


def label_selector(value: str) -> str:
    """A label selector that can be read, as it was written."""
    _read(parse_selector, value)
    return value.strip()


def _read(parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except UsageError as error:
        # typer reports a ValueError together with the flag
        raise ValueError(f"{error.message}. {error.hint}") from error
