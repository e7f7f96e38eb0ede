"""The lab's time: simulated durations run `speed` times faster than the wall clock.

Timestamps are the wall clock's, so that what clients compute from them agrees with their own clock,
unless the lab is told to be that far `ahead` of it (seconds; below 0: behind), as machines are
whose clocks are not kept by NTP. Durations (boots, heartbeats, grace periods) are simulated
seconds.
"""

import time
from datetime import UTC, datetime, timedelta


class LabClock:
    """Wall time, and simulated seconds that pass `speed` times faster."""

    def __init__(self, speed: float = 1.0, *, ahead: float = 0.0) -> None:
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
