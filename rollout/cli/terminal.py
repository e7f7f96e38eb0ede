"""What is printed where: data to standard output, everything else to standard error.

The standard streams are made fit for it, however the program was started and whatever their ends
can take.
"""

import os
import shutil
import signal
import stat
import sys
import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from typing import TYPE_CHECKING, Self, TextIO

from rollout.cli.program import as_started
from rollout.model.text import printable

if TYPE_CHECKING:
    from rollout.report.console import SharedConsole

_WIDTH_OF_PIPES = 160
# The index of the local modes in the list that termios returns.
_LOCAL_MODES = 3
# In columns: longer than any value, so that no line is folded.
_NEVER_FOLDED = 1 << 20


def say(text: str) -> None:
    """Print a line for the operator, beside the data."""
    write_beside(fit_line(printable(text)))


def warn(*sentences: str) -> None:
    """Print warnings for the operator."""
    for sentence in sentences:
        say(f"warning: {sentence}")


def write_beside(line: str, style: str = "") -> None:
    """Write a line, which is safe already, to standard error: on a terminal in this style, above whatever moves there.

    Nothing moves before somebody has asked for the console.
    """
    line = as_started(line)
    if sys.stderr.isatty() and (style or error_console.cache_info().currsize):
        from rich.text import Text

        error_console().show(Text(line, style=style))
        return
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def fit_line(line: str) -> str:
    """Return a line for standard error.

    A terminal gets it broken between words.
    """
    if not sys.stderr.isatty():
        return line
    from rollout.report.columns import wrap

    return wrap(line, shutil.get_terminal_size().columns)


def show_progress(doing: str) -> AbstractContextManager[object]:
    """On a terminal what is being done, until it is done; nothing elsewhere, and no library for it is loaded there."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rollout.report.console import moving_line

    return moving_line(error_console(), doing)


def show(text: str) -> None:
    """Print data for the operator. It was made safe piece by piece, and keeps its lines; a terminal gets colours."""
    text = as_started(text)
    if sys.stdout.isatty():
        from rollout.report.console import SharedConsole, colorize, has_colors

        console = SharedConsole(stderr=False)
        if has_colors(console):
            console.print(colorize(text), soft_wrap=True)
            return
    _write(text)


def show_lines(text: str, hang: int = 4) -> None:
    """Print sentences, which are no table: a terminal gets them broken between words, the rest by `hang` farther in."""
    if sys.stdout.isatty():
        from rollout.report.columns import wrap

        text = wrap(text, width(), hang)
    show(text)


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def show_document(document: object, *, as_yaml: bool = False) -> None:
    """Print data for programs: as JSON, unless it is written already, or the same as YAML."""
    from rollout.model.json_text import json_document

    data = document if isinstance(document, bytes) else json_document(document)
    _write((yaml_document(data) if as_yaml else data).decode().rstrip("\n"))


def yaml_document(document: bytes) -> bytes:
    """Return a JSON document as YAML. Other characters than ASCII are escaped: some move the cursor of a terminal."""
    import msgspec
    import yaml

    written: str = yaml.safe_dump(
        msgspec.json.decode(document), sort_keys=False, width=_NEVER_FOLDED
    )
    return written.encode()


def show_names(nodes: Iterable[str]) -> None:
    """Print the names of nodes as kubectl does with `-o name`."""
    for name in nodes:
        _write(f"node/{printable(name)}")


def width() -> int:
    """Columns that a table may take."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH_OF_PIPES


class Echo:
    """The echo of typed keys on a terminal, which moves whatever is drawn there. Elsewhere it does nothing."""

    def __init__(self, stream: TextIO) -> None:
        self._number = stream.fileno() if stream.isatty() else -1
        self._had_echo = False

    def __enter__(self) -> Self:
        self.off()
        return self

    def __exit__(self, *_error: object) -> None:
        self.on()

    def off(self) -> None:
        """Keep keys from being shown; Ctrl-C and Ctrl-Z still work."""
        with suppress(ImportError, OSError):
            import termios

            if (
                self._is_ours()
                and (modes := termios.tcgetattr(self._number))[_LOCAL_MODES] & termios.ECHO
            ):
                self._had_echo = True
                modes[_LOCAL_MODES] &= ~termios.ECHO
                termios.tcsetattr(self._number, termios.TCSANOW, modes)

    def on(self) -> None:
        """Show keys again, if they were shown before."""
        with suppress(ImportError, OSError):
            import termios

            if self._had_echo and self._is_ours():
                self._had_echo = False
                modes = termios.tcgetattr(self._number)
                modes[_LOCAL_MODES] |= termios.ECHO
                termios.tcsetattr(self._number, termios.TCSANOW, modes)

    def pause_process(self) -> None:
        """Stop this process as Ctrl-Z does, with the echo as it was before."""
        self.on()
        # sent to the process, it may stop only after this thread has turned the echo off again
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        self.off()

    def _is_ours(self) -> bool:
        """Whether this process may change the terminal: one in its background would be stopped for it."""
        if self._number < 0:
            return False
        try:
            return os.tcgetpgrp(self._number) == os.getpgrp()
        except OSError:
            # It is not the controlling terminal of this session.
            return True


def columns() -> int | None:
    """Columns of the terminal; None if there is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def height() -> int | None:
    """Lines that a terminal shows at once; None if there is none."""
    return shutil.get_terminal_size().lines if sys.stdout.isatty() else None


@cache
def error_console() -> "SharedConsole":
    """Return standard error, for progress; rich honours NO_COLOR and dumb terminals.

    One for all: what is printed by it while something moves there stands above that.
    """
    from rollout.report.console import SharedConsole

    return SharedConsole(stderr=True)


# /dev/null, /dev/full and their like
_MEMORY_DEVICES = 1
_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def prepare_streams() -> None:
    """Have all three open, and none that fails at a character which the locale's encoding lacks."""
    for name, mode in _STREAMS:
        if getattr(sys, name) is None:
            # in order, so that each gets its own number back; else a socket would, and take what is
            # meant for stderr
            handle = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(handle, True)
            setattr(sys, name, os.fdopen(handle, mode))
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def flush_or_discard() -> None:
    """Write what is still to be written; where that fails, nothing may be tried again at exit.

    Python would try, and end with 120, whatever has come of a run.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _discard(stream.fileno())


def let_go_of_lost_terminals() -> None:
    """Where the terminal is gone, as after a broken login, what a run still has to say goes nowhere, and fails not."""
    for number in (1, 2):
        place = os.fstat(number)
        is_device = stat.S_ISCHR(place.st_mode) and os.major(place.st_rdev) != _MEMORY_DEVICES
        if is_device and not os.isatty(number):
            _discard(number)


def _discard(number: int) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), number)
