"""Signals during a run: the first asks for a graceful stop, the second ends the process at once.

A handler in Python runs in the main thread, and only when that comes out of its wait; which thread
the system interrupts is its own choice. So a thread of its own listens at the descriptor that the
interpreter writes each signal to.

A terminal that goes away, as a broken login does, is the first of the two and never the second: it
may be told of more than once, and nobody has decided anything. Where `nohup` has it ignored, it
stays so.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from types import FrameType

from rollout.cli.terminal import Echo, fit_line, let_go_of_lost_terminals
from rollout.errors import ExitCode
from rollout.execution.base.deadline import StopRequest

_ASKING = (signal.SIGINT, signal.SIGTERM)
_SIGNALS = (*_ASKING, signal.SIGHUP)
# what stands in the pipe for an interruption that was dropped; no signal has the number 0
_AGAIN = b"\0"
_MOMENT = 0.05
_ONCE_MORE = "Ctrl-C again quits now."
_FINISHING = f"Stopping: finishing the nodes in flight. {_ONCE_MORE}"
_REVERTING = (
    "Stopping: returning the nodes in flight, or finishing them if they are rebooting."
    f" {_ONCE_MORE}"
)
_LAST_SECONDS = 4.0
_LEFT = "stopped at once, and the nodes in flight are left as they are."
# Commands stand alone on their lines, and are never broken.
_WAYS_ON = "To continue:\n    rollout resume\nTo undo it:\n    rollout abort\n"


@contextmanager
def stopped_by_signals(
    stop: StopRequest, *, shown: bool = False, meaning: str = ""
) -> Iterator[None]:
    """Within this context SIGINT and SIGTERM are requests to `stop`. For the main thread only.

    `shown` is whether a board says that it stops: lines between its own would be drawn over.
    `meaning` is what a stop is, where it is another than that of a rollout.
    """
    echo = Echo(sys.stderr) if shown else None
    watched = (*_SIGNALS, signal.SIGTSTP) if echo else _SIGNALS
    numbers = [number for number in watched if signal.getsignal(number) is not signal.SIG_IGN]
    said = (
        f"Stopping: {meaning}. {_ONCE_MORE}"
        if meaning
        else _REVERTING
        if stop.revert
        else _FINISHING
    )
    # a handler there must be, or the interpreter would not write to the descriptor; the listener
    # does the work
    with _listened(
        lambda ear: _listen(ear, stop, "" if shown else said, echo), numbers, lambda *_: None
    ):
        try:
            with echo or nullcontext():
                yield
        finally:
            # what is left to tell and to write is not cut short by a terminal that goes away once
            # more
            if stop.requested:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)


@contextmanager
def interrupted_by_signals(
    ending: StopRequest, echo: Echo | None = None
) -> Iterator[Callable[[], None]]:
    """Within this context SIGINT and SIGTERM interrupt what is done, and `ending` remembers. For the main thread only.

    Whoever has heard of it by `ending`, and ends well, calls what is given: nothing is interrupted
    any more. `echo` is that of the terminal, if keys are not shown there: Ctrl-Z gives it back.

    An interruption that comes while Python tidies up (in `__del__`, or the callback of a weak
    reference) is dropped by the interpreter, with a traceback, and a kubelet asks but once: it
    comes again a moment later.
    """
    before = sys.unraisablehook
    over = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        if number in _ASKING and not over.is_set():
            signal.default_int_handler(number, frame)

    numbers = (*_ASKING, signal.SIGTSTP) if echo else _ASKING
    with _listened(lambda ear: _remember(ear, ending, over, echo), numbers, interrupt) as mouth:

        def dropped(what: "sys.UnraisableHookArgs") -> None:
            if what.exc_type is KeyboardInterrupt:
                os.write(mouth, _AGAIN)
            else:
                before(what)

        sys.unraisablehook = dropped
        try:
            yield over.set
        finally:
            sys.unraisablehook = before


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Have SIGINT wait until this context is left, which is soon: as for a screen half drawn. Main thread only."""
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


@contextmanager
def _listened(
    listen: Callable[[int], None],
    numbers: Sequence[int],
    handler: Callable[[int, FrameType | None], None],
) -> Iterator[int]:
    """Have a thread listen at one end of a pipe, as long as the other is open; that is given, and gets each signal."""
    ear, mouth = os.pipe()
    os.set_blocking(mouth, False)
    listener = threading.Thread(target=listen, args=(ear,), name="signals", daemon=True)
    before = signal.set_wakeup_fd(mouth, warn_on_full_buffer=False)
    handlers = {number: signal.signal(number, handler) for number in numbers}
    listener.start()
    try:
        yield mouth
    finally:
        for number, earlier in handlers.items():
            if signal.getsignal(number) is handler:
                signal.signal(number, earlier)
        signal.set_wakeup_fd(before)
        # ends the listener
        os.close(mouth)
        listener.join()
        os.close(ear)


def _remember(ear: int, ending: StopRequest, over: threading.Event, echo: Echo | None) -> None:
    """Not for a handler: it may come while its thread holds the very lock that the wish takes."""
    while numbers := os.read(ear, 1):
        if numbers == _AGAIN:
            if not over.wait(_MOMENT):
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        elif numbers[0] in _ASKING:
            ending.request()
        elif echo and numbers[0] == signal.SIGTSTP:
            echo.pause_process()


def _listen(ear: int, stop: StopRequest, said: str, echo: Echo | None) -> None:
    asked = False
    while numbers := os.read(ear, 1):
        if echo and numbers[0] == signal.SIGTSTP:
            echo.pause_process()
        if numbers[0] not in _SIGNALS:
            continue
        if asked:
            if numbers[0] in _ASKING:
                if echo:
                    echo.on()
                _leave_at_once(stop)
            continue
        asked = True
        stop.request()
        let_go_of_lost_terminals()
        if said:
            _say(said)


def _leave_at_once(stop: StopRequest) -> None:
    """Not `sys.exit`: that would wait for the threads of the nodes in flight.

    The lock is given up before, where the API server answers soon: whoever goes on need not wait
    for it to run out.
    """
    leaving = threading.Thread(target=stop.leave, name="leaving", daemon=True)
    leaving.start()
    leaving.join(_LAST_SECONDS)
    _say(_LEFT, _WAYS_ON)
    os._exit(ExitCode.INTERRUPTED)


def _say(what: str, commands: str = "") -> None:
    """Not through any buffer or console, whose lock somebody may hold; a terminal that is gone hears nothing."""
    with suppress(OSError):
        os.write(sys.stderr.fileno(), f"\n{fit_line(f'rollout: {what}')}\n{commands}".encode())
