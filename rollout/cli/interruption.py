"""Signals during a run: the first asks for a graceful stop, the second ends the process at once."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rollout.errors import ExitCode
from rollout.execution.context import StopRequest

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = "\x1b[?25h"
_STOPPING = (
    "stopping: no further node is started, those in flight are finished. "
    "Once more ends this at once, and leaves them as they are."
)


@contextmanager
def stopped_by_signals(stop: StopRequest) -> Iterator[None]:
    """Within this context SIGINT and SIGTERM are requests to `stop`."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if stop.requested:
            _leave_at_once()
        stop.request()
        # not through any buffer or console: the interrupted code may be holding its lock
        os.write(sys.stderr.fileno(), f"\nrollout: {_STOPPING}\n".encode())

    before = {number: signal.signal(number, on_signal) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave_at_once() -> None:
    """Not `sys.exit`: that would wait for the threads of the nodes in flight."""
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), _SHOW_CURSOR.encode())
    os._exit(ExitCode.INTERRUPTED)
