"""The machine's clocks."""

import time
from datetime import UTC, datetime

# Linux' monotonic clock stops during suspend; other systems' own goes on.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """Time as this machine has it."""

    def now(self) -> datetime:
        """Wall time, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that only ever grow, while the machine sleeps too: a laptop that slept no longer holds its Lease."""
        return time.clock_gettime(_CLOCK)
