"""Handles signals for a run (`stopped_by_signals`), and while waiting (`interrupted_by_signals`).

Python runs handlers only when the main thread leaves its wait. So it also writes the number of each
signal to a pipe, which a thread reads. SIGHUP never ends the process: a lost terminal can send
several.
"""

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from types import FrameType

from rollout.cli.terminal import Echo, discard_lost_terminals, fit_line
from rollout.errors import ExitCode
from rollout.execution.base.deadline import GracefulStop

_ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STOP_SIGNALS = (*_ENDING_SIGNALS, signal.SIGHUP)
# In the pipe, an interruption that the interpreter dropped: no signal has this number.
_DROPPED = 0
_SECONDS_UNTIL_REPEAT = 0.05
_SECONDS_OF_DUPLICATES = 0.05
_AGAIN = "Press Ctrl-C again to quit now."
_FINISHING = "finishing the nodes in flight"
_REVERTING = "uncordoning the nodes in flight, and finishing those that are rebooting"
_UNLOCK_SECONDS = 4.0
_LEFT = "stopped immediately, and the nodes in flight are left as they are."
_NEXT_COMMANDS = "To continue:\n    rollout resume\nTo undo it:\n    rollout abort\n"


@contextmanager
def stopped_by_signals(
    stop: GracefulStop, *, has_live_display: bool = False, effect: str = ""
) -> Iterator[None]:
    """The first signal requests the `stop`, the second ends the process. For the main thread only.

    `effect` says what the stop does, if not to a rollout. A live display shows the stop itself.
    """
    echo = Echo(sys.stderr) if has_live_display else None
    # Ctrl-Z sends SIGTSTP; then the terminal's echo must be on.
    watched = (*_STOP_SIGNALS, signal.SIGTSTP) if echo else _STOP_SIGNALS
    # `nohup` ignores SIGHUP.
    numbers = [number for number in watched if signal.getsignal(number) is not signal.SIG_IGN]
    effect = effect or (_REVERTING if stop.revert else _FINISHING)
    message = "" if has_live_display else f"Stopping: {effect}. {_AGAIN}"

    def read_signals(pipe: int) -> None:
        _stop_on_signals(pipe, stop, message, echo)

    def ignore(_number: int, _frame: FrameType | None) -> None:
        """Without a handler, the interpreter does not write to the pipe."""

    with _signal_pipe(read_signals, numbers, ignore), echo or nullcontext():
        try:
            yield
        finally:
            # Another SIGHUP must not cut short the final output.
            if stop.is_due:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _stop_on_signals(pipe: int, stop: GracefulStop, message: str, echo: Echo | None) -> None:
    """Request the stop at the first signal, and end the process at the second."""
    is_asked_to_stop = _await_signal(pipe, _STOP_SIGNALS, echo)
    if not is_asked_to_stop:
        return
    stop.request()
    # A closed terminal sends SIGHUP.
    discard_lost_terminals()
    _drop_duplicates(pipe)
    if message:
        _write_unbuffered(message)
    is_asked_again = _await_signal(pipe, _ENDING_SIGNALS, echo)
    if not is_asked_again:
        return
    if echo:
        echo.turn_on()
    _end_at_once(stop)


def _await_signal(pipe: int, numbers: Collection[int], echo: Echo | None) -> bool:
    """Return False at the end of the pipe."""
    for number in _read_numbers(pipe):
        if number == signal.SIGTSTP and echo:
            echo.pause_process()
        elif number in numbers:
            return True
    return False


def _drop_duplicates(pipe: int) -> None:
    """`timeout` and sudo may send two signals for one request."""
    time.sleep(_SECONDS_OF_DUPLICATES)
    while select.select([pipe], [], [], 0)[0] and os.read(pipe, 1):
        pass


def _end_at_once(stop: GracefulStop) -> None:
    """Release the lock only if that is fast."""
    from rollout.adapters.programs import kill_programs

    unlocking = threading.Thread(
        target=stop.run_process_exit_actions, name="unlocking", daemon=True
    )
    unlocking.start()
    unlocking.join(_UNLOCK_SECONDS)
    kill_programs()
    _write_unbuffered(_LEFT, _NEXT_COMMANDS)
    os._exit(ExitCode.INTERRUPTED)


def _write_unbuffered(message: str, commands: str = "") -> None:
    """Another thread may hold the lock of the buffer or the console."""
    with suppress(OSError):
        text = f"\n{fit_line(f'rollout: {message}')}\n{commands}"
        os.write(sys.stderr.fileno(), text.encode())


@contextmanager
def interrupted_by_signals(
    stop: GracefulStop, echo: Echo | None = None
) -> Iterator[Callable[[], None]]:
    """SIGINT and SIGTERM interrupt the main thread and request the `stop`.

    The yielded function ends the interruptions. Ctrl-Z turns `echo` on while the process is
    suspended. For the main thread only.
    """
    numbers = (*_ENDING_SIGNALS, signal.SIGTSTP) if echo else _ENDING_SIGNALS
    is_ignoring = threading.Event()

    def read_signals(pipe: int) -> None:
        _request_on_signals(pipe, stop, is_ignoring, echo)

    def interrupt(number: int, frame: FrameType | None) -> None:
        if number in _ENDING_SIGNALS and not is_ignoring.is_set():
            signal.default_int_handler(number, frame)

    with (
        _signal_pipe(read_signals, numbers, interrupt) as pipe,
        _reporting_dropped_interrupts(pipe),
    ):
        yield is_ignoring.set


def _request_on_signals(
    pipe: int, stop: GracefulStop, is_ignoring: threading.Event, echo: Echo | None
) -> None:
    """Request the stop for each signal.

    Not in the main thread, which may hold the stop's mutex.
    """
    for number in _read_numbers(pipe):
        if number in _ENDING_SIGNALS:
            stop.request()
        elif number == signal.SIGTSTP and echo:
            echo.pause_process()
        elif number == _DROPPED:
            # The interpreter would drop an interruption at once, too.
            is_ignored_by_now = is_ignoring.wait(_SECONDS_UNTIL_REPEAT)
            if not is_ignored_by_now:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@contextmanager
def _reporting_dropped_interrupts(pipe: int) -> Iterator[None]:
    """Python drops a `KeyboardInterrupt` raised in a `__del__`, and calls the hook."""
    previous_hook = sys.unraisablehook

    def report_dropped(dropped: "sys.UnraisableHookArgs") -> None:
        if dropped.exc_type is KeyboardInterrupt:
            os.write(pipe, bytes([_DROPPED]))
        else:
            previous_hook(dropped)

    sys.unraisablehook = report_dropped
    try:
        yield
    finally:
        sys.unraisablehook = previous_hook


@contextmanager
def delay_interrupts() -> Iterator[None]:
    """Raise `KeyboardInterrupt` at the context's end. For the main thread only."""
    received: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, _frame: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
    if received:
        raise KeyboardInterrupt


@contextmanager
def _signal_pipe(
    read_signals: Callable[[int], None],
    numbers: Sequence[int],
    handler: Callable[[int, FrameType | None], None],
) -> Iterator[int]:
    """Yield the end of a pipe into which the interpreter writes signals.

    `read_signals` reads the other end in a thread until the pipe ends. `handler` is called in the
    main thread, too.
    """
    reading_end, writing_end = os.pipe()
    os.set_blocking(writing_end, False)
    reader = threading.Thread(target=read_signals, args=(reading_end,), name="signals", daemon=True)
    previous_end = signal.set_wakeup_fd(writing_end, warn_on_full_buffer=False)
    previous_handlers = {number: signal.signal(number, handler) for number in numbers}
    reader.start()
    try:
        yield writing_end
    finally:
        for number, previous in previous_handlers.items():
            # A run's end may have changed the handler of SIGHUP.
            if signal.getsignal(number) is handler:
                signal.signal(number, previous)
        signal.set_wakeup_fd(previous_end)
        # Ends the reader.
        os.close(writing_end)
        reader.join()
        os.close(reading_end)


def _read_numbers(pipe: int) -> Iterator[int]:
    # Empty data is the end of the pipe.
    while data := os.read(pipe, 1):
        yield data[0]
