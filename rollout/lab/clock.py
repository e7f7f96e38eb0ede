"""The lab's time: simulated durations run `speed` times faster than the wall clock.

Timestamps are the wall clock's, so that what clients compute from them agrees with their own clock, unless the lab
is told to be that far `ahead` of it (seconds; below 0: behind), as machines are whose clocks are not kept by NTP.
Durations (boots, heartbeats, grace periods) are simulated seconds. Tests use the variant that stands still until it
is moved.
"""

import time
from datetime import UTC, datetime, timedelta

from typing_extensions import override


class LabClock:
    """Wall time, and simulated seconds that pass `speed` times faster."""

    def __init__(self, speed: float = 1.0, *, ahead: float = 0.0) -> None:
        if speed <= 0:
            raise ValueError("the speed of time must be positive")
        self.speed = speed
        self._ahead = timedelta(seconds=ahead)
        self._started = time.monotonic()

    def now(self) -> datetime:
        """Return the time that the lab's machines believe it is, UTC."""
        return datetime.now(UTC) + self._ahead

    def monotonic(self) -> float:
        """Return simulated seconds since the clock was made."""
        return (time.monotonic() - self._started) * self.speed

    def scaled(self, seconds: float) -> float:
        """How many real seconds that many simulated seconds take."""
        return seconds / self.speed

    def skip(self, seconds: float) -> None:
        """Let the machines believe that it is that much later, as after a night in which nobody looked."""
        self._ahead += timedelta(seconds=seconds)

    def age(self, moment: datetime) -> float:
        """How many simulated seconds ago a timestamp was given."""
        return (self.now() - moment).total_seconds() * self.speed


class ManualClock(LabClock):
    """A clock for tests: it stands still until it is moved; real and simulated seconds are the same."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        super().__init__()
        self._start = start
        self._elapsed = 0.0

    @override
    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed)

    @override
    def monotonic(self) -> float:
        return self._elapsed

    def move_to(self, elapsed: float) -> None:
        """Make it `elapsed` seconds after the start; never backwards."""
        self._elapsed = max(self._elapsed, elapsed)
