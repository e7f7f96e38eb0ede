"""What was read, kept for a while: for many who ask for the same within seconds."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rollout.ports import Clock

T = TypeVar("T")


@dataclass(slots=True)
class CachedValue(Generic[T]):
    """Read by `read`, and again once it is older than `seconds`; reading it takes at most that `share` of the time.

    For many threads at once: one reads, the others wait for it.
    """

    read: Callable[[], T]
    seconds: float
    clock: Clock
    share: float = 1.0
    turn: threading.Lock = field(default_factory=threading.Lock)
    value: T = field(init=False)
    until: float = float("-inf")

    def forget(self) -> None:
        """Have it read again, by whoever is next."""
        with self.turn:
            self.until = float("-inf")

    def now(self) -> T:
        """Return the value, read again where it is too old."""
        with self.turn:
            began = self.clock.monotonic()
            if began > self.until:
                self.value = self.read()
                took = self.clock.monotonic() - began
                self.until = began + max(self.seconds, took / self.share)
            return self.value
