"""The machine's clocks, and the API server's, as its answers tell it.

What the server has stamped (a deletionTimestamp) can only be held against the server's own clock:
this machine's may be minutes, or a day, off. Every answer carries a Date in whole seconds; from
then on this machine's monotonic clock goes on. The estimate is late by the second that was cut off
and by the answer's way, never early, so that nothing seems overdue that is not.
"""

import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from rollout.ports import Event

# Linux' monotonic clock stops during suspend; other systems' own goes on.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """Time as this machine has it. In tests waits may be `hurried`: so many times shorter than asked for."""

    def __init__(self, hurried: float = 1.0) -> None:
        self._hurried = hurried

    def now(self) -> datetime:
        """Wall time, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that only ever grow, while the machine sleeps too: a laptop that slept no longer holds its Lease."""
        return time.clock_gettime(_CLOCK)

    def sleep(self, seconds: float) -> None:
        """Let so much time pass."""
        time.sleep(seconds / self._hurried)

    def wait(self, event: Event, seconds: float) -> bool:
        """Return once it has happened, or after so many seconds; whether it has."""
        return event.wait(seconds / self._hurried)


class ServerTime:
    """The latest Date that was heard, and when. `monotonic` gives this machine's seconds. For many threads."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._turn = threading.Lock()
        self._heard: tuple[datetime, float] | None = None

    def reading(self) -> float:
        """Return the moment at which an answer's headers have come; for `hear`, once the answer is believed."""
        return self._monotonic()

    def hear(self, headers: Mapping[str, str], at: float) -> None:
        """Take the Date of an answer; one that a cache has kept tells of another moment."""
        date = _date(headers.get("Date", ""))
        if date is None or headers.get("Age", "0").strip() != "0":
            return
        with self._turn:
            if self._heard is None or self._heard[1] <= at:
                self._heard = date, at

    def now(self) -> datetime | None:
        """UTC; None before any answer has told it."""
        with self._turn:
            heard = self._heard
        return None if heard is None else heard[0] + timedelta(seconds=self._monotonic() - heard[1])


def _date(written: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(written)
    except (ValueError, OverflowError):
        return None
    return date.replace(tzinfo=UTC) if date.tzinfo is None else date.astimezone(UTC)
