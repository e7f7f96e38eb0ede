import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rollout.ports import Clock

T = TypeVar("T")


@dataclass(slots=True)
class CachedValue(Generic[T]):
    """A value that is read again once it is older than `seconds`.

    Reading takes at most this `share` of the time, but a value is kept for at most `longest`
    seconds after reading, unless `seconds` is more. One thread reads while others wait.
    """

    read: Callable[[], T]
    seconds: float
    clock: Clock
    share: float = 1.0
    longest: float = float("inf")
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _value: T = field(init=False)
    _fresh_until: float = float("-inf")

    def forget(self) -> None:
        with self._lock:
            self._fresh_until = float("-inf")

    def now(self) -> T:
        with self._lock:
            began = self.clock.monotonic()
            if began > self._fresh_until:
                self._value = self.read()
                seconds = self.clock.monotonic() - began
                kept = min(seconds / self.share, seconds + self.longest)
                self._fresh_until = began + max(self.seconds, kept)
            return self._value
