"""One thing to wait for where several may happen: a view changed, a request was answered."""

import threading


class Wakeup:
    """Any thread wakes, one waits; to be woken twice before it waits is to be woken once."""

    def __init__(self) -> None:
        self._woken = threading.Event()

    def wake(self) -> None:
        """Something happened."""
        self._woken.set()

    def wait(self, seconds: float) -> None:
        """Return once it was woken since the last time, or after `seconds`."""
        self._woken.wait(seconds)
        self._woken.clear()
