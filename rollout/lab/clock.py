import time
from datetime import UTC, datetime, timedelta


class LabClock:
    """Wall time, and simulated seconds that pass `speed` times faster.

    `ahead` (seconds, negative for behind) simulates machines without NTP.
    """

    def __init__(self, speed: float = 1.0, *, ahead: float = 0.0) -> None:
        self.speed = speed
        self._ahead = timedelta(seconds=ahead)
        self._started = time.monotonic()

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def monotonic(self) -> float:
        """Return simulated seconds since the clock was made."""
        return (time.monotonic() - self._started) * self.speed

    def scaled(self, seconds: float) -> float:
        """Return how many real seconds these simulated seconds take."""
        return seconds / self.speed

    def skip(self, seconds: float) -> None:
        self._ahead += timedelta(seconds=seconds)

    def age(self, moment: datetime) -> float:
        """In simulated seconds."""
        return (self.now() - moment).total_seconds() * self.speed
