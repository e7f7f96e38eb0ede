"""One thing to wait for where several may happen: a view changed, a request was answered."""

import threading


class Bell:
    """Rung by any thread, heard by one that waits; rung twice before it waits is heard once."""

    def __init__(self) -> None:
        self._rung = threading.Event()

    def ring(self) -> None:
        """Something happened."""
        self._rung.set()

    def wait(self, seconds: float) -> None:
        """Return once it was rung since the last time, or after `seconds`."""
        self._rung.wait(seconds)
        self._rung.clear()
