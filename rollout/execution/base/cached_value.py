import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rollout.ports import Clock

T = TypeVar("T")


@dataclass(slots=True)
class CachedValue(Generic[T]):
    """A value that one thread reads again once it is too old.

    It is valid for `seconds` after the start of its read, and longer after a slow read.
    """

    read: Callable[[], T]
    seconds: float
    clock: Clock
    # The largest share of the time for reads.
    share: float = 1.0
    # In seconds: how long `share` may keep the value valid.
    longest: float = float("inf")
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _value: T = field(init=False)
    _fresh_until: float = float("-inf")

    def forget(self) -> None:
        with self._mutex:
            self._fresh_until = float("-inf")

    def get(self) -> T:
        with self._mutex:
            now = self.clock.monotonic()
            if now > self._fresh_until:
                self._value = self.read()
                read_seconds = self.clock.monotonic() - now
                # With a share of 0.1, a read of 2 s is valid for 20 s.
                seconds_by_share = min(read_seconds / self.share, read_seconds + self.longest)
                self._fresh_until = now + max(self.seconds, seconds_by_share)
            return self._value
