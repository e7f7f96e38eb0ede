"""Prints data to standard output, and everything else to standard error."""

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

from rollout.cli.program import with_program_name
from rollout.model.text import printable

if TYPE_CHECKING:
    from rollout.report.console import SharedConsole

_WIDTH_OF_PIPES = 160
_CHARACTERS_AT_ONCE = 1_000_000
try:
    from termios import error as _terminal_error
except ImportError:
    _LOST_TERMINAL: tuple[type[Exception], ...] = (OSError,)
else:
    _LOST_TERMINAL = (OSError, _terminal_error)
# The index in the list of `termios.tcgetattr`.
_LOCAL_MODES = 3
# More columns than any value has.
_UNFOLDED = 1 << 20


def say(text: str) -> None:
    """Write any text to standard error, without control characters."""
    write_to_stderr(fit_line(printable(text)))


def warn(*sentences: str) -> None:
    for sentence in sentences:
        say(f"warning: {sentence}")


def write_to_stderr(line: str, style: str = "") -> None:
    line = with_program_name(line)
    if sys.stderr.isatty() and (style or _is_console_open()):
        from rich.text import Text

        error_console().show(Text(line, style=style))
        return
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def fit_line(line: str) -> str:
    if not sys.stderr.isatty():
        return line
    from rollout.report.columns import wrap

    return wrap(line, shutil.get_terminal_size().columns)


def show_progress(activity: str) -> AbstractContextManager[object]:
    if not sys.stderr.isatty():
        return nullcontext()
    from rollout.report.console import spinner_line

    return spinner_line(error_console(), activity)


def show(text: str) -> None:
    text = with_program_name(text)
    if sys.stdout.isatty():
        from rollout.report.console import SharedConsole, colorize, has_colors

        console = SharedConsole(stderr=False)
        if has_colors(console):
            console.print(colorize(text), soft_wrap=True)
            return
    _write_to_stdout(text)


def show_lines(text: str, hang: int = 4) -> None:
    if sys.stdout.isatty():
        from rollout.report.columns import wrap

        text = wrap(text, table_width(), hang)
    show(text)


def _write_to_stdout(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def show_document(document: object, *, as_yaml: bool = False) -> None:
    from rollout.model.json_text import json_document

    data = document if isinstance(document, bytes) else json_document(document)
    text = (yaml_document(data) if as_yaml else data).decode()
    # Writing copies the text, which may have tens of megabytes.
    for start in range(0, len(text), _CHARACTERS_AT_ONCE):
        sys.stdout.write(text[start : start + _CHARACTERS_AT_ONCE])
    if not text.endswith("\n"):
        sys.stdout.write("\n")
    sys.stdout.flush()


def yaml_document(document: bytes) -> bytes:
    """Convert JSON to YAML in ASCII: other text can move the cursor."""
    import msgspec
    import yaml

    text: str = yaml.safe_dump(msgspec.json.decode(document), sort_keys=False, width=_UNFOLDED)
    return text.encode()


def show_names(nodes: Iterable[str]) -> None:
    for name in nodes:
        _write_to_stdout(f"node/{printable(name)}")


def table_width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH_OF_PIPES


class Echo:
    """Turns off the echo of typed keys, which would disturb a live display."""

    def __init__(self, stream: TextIO) -> None:
        # None if the stream is no terminal.
        self._descriptor = stream.fileno() if stream.isatty() else None
        self._is_off = False

    def __enter__(self) -> Self:
        self.turn_off()
        return self

    def __exit__(self, *_error: object) -> None:
        self.turn_on()

    def turn_off(self) -> None:
        self._switch(on=False)

    def turn_on(self) -> None:
        if self._is_off:
            self._switch(on=True)

    def _switch(self, *, on: bool) -> None:
        with suppress(ImportError, *_LOST_TERMINAL):
            import termios

            if self._descriptor is None or not _is_foreground(self._descriptor):
                return
            attributes = termios.tcgetattr(self._descriptor)
            was_on = bool(attributes[_LOCAL_MODES] & termios.ECHO)
            if was_on != on:
                attributes[_LOCAL_MODES] ^= termios.ECHO
                termios.tcsetattr(self._descriptor, termios.TCSANOW, attributes)
                self._is_off = not on

    def pause_process(self) -> None:
        self.turn_on()
        # A signal to the process might arrive after the echo is off again.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        self.turn_off()


def _is_foreground(descriptor: int) -> bool:
    """Whether changing the terminal would not stop this process."""
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        # Only the controlling terminal stops background processes.
        return True


def screen_columns() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def screen_lines() -> int | None:
    return shutil.get_terminal_size().lines if sys.stdout.isatty() else None


@cache
def error_console() -> "SharedConsole":
    from rollout.report.console import SharedConsole

    return SharedConsole(stderr=True)


def _is_console_open() -> bool:
    return error_console.cache_info().currsize > 0


# The major device number of /dev/null and /dev/full.
_MEMORY_DEVICES = 1
_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
_STDOUT = 1
_STDERR = 2


def prepare_streams() -> None:
    """Open closed streams on /dev/null, and escape what cannot be encoded."""
    for name, mode in _STREAMS:
        if getattr(sys, name) is None:
            # `os.open` takes the lowest free number, in the order of `_STREAMS`.
            handle = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(handle, True)
            setattr(sys, name, os.fdopen(handle, mode))
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def flush_or_discard() -> None:
    """Python would exit with 120 if flushing failed at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _redirect_to_null(stream.fileno())


def discard_lost_terminals() -> None:
    """Discard output to a terminal that a broken login has closed."""
    for descriptor in (_STDOUT, _STDERR):
        status = os.fstat(descriptor)
        is_device = stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) != _MEMORY_DEVICES
        is_closed_terminal = is_device and not os.isatty(descriptor)
        if is_closed_terminal:
            _redirect_to_null(descriptor)


def _redirect_to_null(descriptor: int) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
