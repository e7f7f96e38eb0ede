import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rollout.ports import Clock

T = TypeVar("T")


@dataclass(slots=True)
class CachedValue(Generic[T]):
    """A value that is read again once it is too old, by one thread while the others wait."""

    read: Callable[[], T]
    seconds: float
    clock: Clock
    # Reads take at most this share of the time: a slow one makes its value valid for longer, by at
    # most `longest` seconds.
    share: float = 1.0
    longest: float = float("inf")
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _value: T = field(init=False)
    _fresh_until: float = float("-inf")

    def forget(self) -> None:
        with self._mutex:
            self._fresh_until = float("-inf")

    def get(self) -> T:
        with self._mutex:
            began = self.clock.monotonic()
            if began > self._fresh_until:
                self._value = self.read()
                reading = self.clock.monotonic() - began
                by_share = min(reading / self.share, reading + self.longest)
                self._fresh_until = began + max(self.seconds, by_share)
            return self._value
