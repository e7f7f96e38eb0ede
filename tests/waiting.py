"""Waiting for what another process does: by the clock, for as long as a busy machine may need, on the thing itself."""

import time
from collections.abc import Callable


def wait_until(happened: Callable[[], object], seconds: float = 60) -> None:
    """Return once it has happened; fail where it has not after so many real seconds."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it has not happened"
        time.sleep(0.01)
