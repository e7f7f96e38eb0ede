"""The machine's clocks."""

import time
from datetime import UTC, datetime


class SystemClock:
    """Time as this machine has it."""

    def now(self) -> datetime:
        """Wall time, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that only ever grow."""
        return time.monotonic()
