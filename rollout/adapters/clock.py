"""This machine's clocks and the API server's.

The API server's time is up to two seconds late, but never early, so nothing seems overdue too soon.
"""

import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from rollout.ports import Event

# Linux's monotonic clock stops in suspend.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """This machine's clock."""

    def __init__(self, speedup: float = 1.0) -> None:
        """`speedup` divides all waits, for tests."""
        self._speedup = speedup

    def now(self) -> datetime:
        """Return the time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds, also of suspends: a Lease expires meanwhile."""
        return time.clock_gettime(_CLOCK)

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds / self._speedup)

    def wait(self, event: Event, seconds: float) -> bool:
        """Wait for an event; return whether it happened."""
        return event.wait(seconds / self._speedup)


class _DatedAnswer(NamedTuple):
    date: datetime
    # Monotonic seconds.
    arrival: float


class ServerTime:
    """The API server's clock, by an answer's Date; for many threads."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        self._lock = threading.Lock()
        self._latest: _DatedAnswer | None = None

    def note_answer(self, headers: Mapping[str, str], arrival: float) -> None:
        """Set the clock by an answer's Date, unless from a cache."""
        date = _parse_date(headers.get("Date", ""))
        is_from_cache = headers.get("Age", "0").strip() != "0"
        if date is None or is_from_cache:
            return
        with self._lock:
            is_latest = self._latest is None or self._latest.arrival <= arrival
            if is_latest:
                self._latest = _DatedAnswer(date, arrival)

    def now(self) -> datetime | None:
        """Return the time in UTC; None before an answer."""
        with self._lock:
            latest = self._latest
        if latest is None:
            return None
        return latest.date + timedelta(seconds=self.monotonic() - latest.arrival)


def _parse_date(written: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(written)
    except (ValueError, OverflowError):
        return None
    if date.tzinfo is None:
        return date.replace(tzinfo=UTC)
    return date.astimezone(UTC)
