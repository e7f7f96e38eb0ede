"""The machine's clocks."""

import time
from datetime import UTC, datetime

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
