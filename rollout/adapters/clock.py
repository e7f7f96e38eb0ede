"""This machine's clocks, and the API server's clock.

The latter, the Date of an answer plus monotonic time, is up to two seconds late but never early, so
nothing seems overdue too soon.
"""

import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from rollout.ports import Event

# On Linux the monotonic clock stops during suspend.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """`hurried` divides all waits, for tests."""

    def __init__(self, hurried: float = 1.0) -> None:
        self._hurried = hurried

    def now(self) -> datetime:
        """Return the wall time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds with suspend: a laptop that slept has lost its Lease."""
        return time.clock_gettime(_CLOCK)

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds / self._hurried)

    def wait(self, event: Event, seconds: float) -> bool:
        """Wait for an event; return whether it happened."""
        return event.wait(seconds / self._hurried)


class ServerTime:
    """The server's clock, by its latest answer. For many threads."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._latest: tuple[datetime, float] | None = None

    def reading(self) -> float:
        """Return the time to pass to `hear`."""
        return self._monotonic()

    def hear(self, headers: Mapping[str, str], at: float) -> None:
        """Take the Date of an answer that arrived at `at`, unless from a cache."""
        date = _date(headers.get("Date", ""))
        if date is None or headers.get("Age", "0").strip() != "0":
            return
        with self._lock:
            if self._latest is None or self._latest[1] <= at:
                self._latest = (date, at)

    def now(self) -> datetime | None:
        """Return the server's time in UTC; None before any answer."""
        with self._lock:
            latest = self._latest
        if latest is None:
            return None
        date, at = latest
        return date + timedelta(seconds=self._monotonic() - at)


def _date(written: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(written)
    except (ValueError, OverflowError):
        return None
    return date.replace(tzinfo=UTC) if date.tzinfo is None else date.astimezone(UTC)
