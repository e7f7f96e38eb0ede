"""The wish to stop: no further node is started, and those not rebooting yet may have to go back."""

import threading


class StopRequest:
    """A wish that no further node be started. Those in flight finish; `revert`: those not rebooting go back."""

    def __init__(self, *, revert: bool = False) -> None:
        self._event = threading.Event()
        self.revert = revert

    def request(self) -> None:
        """Wish it; more than once is the same as once."""
        self._event.set()

    @property
    def requested(self) -> bool:
        """Whether it was wished."""
        return self._event.is_set()

    @property
    def reverting(self) -> bool:
        """Whether nodes that are not rebooting yet are to be given back."""
        return self.revert and self.requested

    def wait(self, seconds: float) -> bool:
        """Sleep for `seconds`, or until it is wished; whether it was."""
        return self._event.wait(seconds)
