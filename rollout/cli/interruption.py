"""Signals during a run: the first asks for a graceful stop, the second ends the process at once.

A handler in Python runs in the main thread, and only when that comes out of its wait; which thread the system
interrupts is its own choice. So a thread of its own listens at the descriptor that the interpreter writes each
signal to.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rollout.errors import ExitCode
from rollout.execution.context import StopRequest

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = "\x1b[?25h"
_ONCE_MORE = "Once more ends this at once, and leaves them as they are."
_FINISHING = f"stopping: no further node is started, those in flight are finished. {_ONCE_MORE}"
_REVERTING = (
    f"stopping: no further node is started, those in flight are given back, or finished if rebooting. {_ONCE_MORE}"
)
_LEFT = "ended at once; nodes in flight are left as they are. To go on: rollout resume. To undo: rollout abort."


@contextmanager
def stopped_by_signals(stop: StopRequest) -> Iterator[None]:
    """Within this context SIGINT and SIGTERM are requests to `stop`. For the main thread only."""
    ear, mouth = os.pipe()
    os.set_blocking(mouth, False)
    listener = threading.Thread(target=_listen, args=(ear, stop), name="signals", daemon=True)
    handlers = {number: signal.signal(number, _heard) for number in _SIGNALS}
    before = signal.set_wakeup_fd(mouth, warn_on_full_buffer=False)
    listener.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        # ends the listener
        os.close(mouth)
        listener.join()
        os.close(ear)


def _heard(_number: int, _frame: FrameType | None) -> None:
    """A handler there must be, or the interpreter would not write to the descriptor; the listener does the work."""


def _listen(ear: int, stop: StopRequest) -> None:
    while numbers := os.read(ear, 1):
        if numbers[0] not in _SIGNALS:
            continue
        if stop.requested:
            _leave_at_once()
        stop.request()
        # not through any buffer or console: whoever holds its lock may be waiting
        os.write(sys.stderr.fileno(), f"\nrollout: {_REVERTING if stop.revert else _FINISHING}\n".encode())


def _leave_at_once() -> None:
    """Not `sys.exit`: that would wait for the threads of the nodes in flight."""
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), _SHOW_CURSOR.encode())
    os.write(sys.stderr.fileno(), f"\nrollout: {_LEFT}\n".encode())
    os._exit(ExitCode.INTERRUPTED)
