"""What is printed where: data to standard output, everything else to standard error."""

import logging
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, TextIO

from rollout.model.text import printable

if TYPE_CHECKING:
    from rollout.report.console import SharedConsole

_WIDTH_OF_PIPES = 160
SAID = "rollout.said"
_LOG = logging.getLogger(SAID)


def say(text: str) -> None:
    """Print a line for the operator, beside the data."""
    _LOG.info("%s", text)
    write_beside(fitted(printable(text)))


def write_beside(line: str, style: str = "") -> None:
    """Write a line, which is safe already, to standard error: on a terminal in this style, above whatever moves there.

    Nothing moves before somebody has asked for the console.
    """
    if sys.stderr.isatty() and (style or error_console.cache_info().currsize):
        from rich.text import Text

        error_console().show(Text(line, style=style))
        return
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def fitted(line: str) -> str:
    """Return a line for standard error.

    A terminal gets it broken between words.
    """
    if not sys.stderr.isatty():
        return line
    from rollout.report.columns import wrapped

    return wrapped(line, shutil.get_terminal_size().columns)


@contextmanager
def shown_meanwhile(doing: str) -> Iterator[None]:
    """On a terminal what is being done, until it is done; nothing elsewhere, and no library for it is loaded there."""
    if not sys.stderr.isatty():
        yield
        return
    from rollout.report.console import moving_line

    with moving_line(error_console(), doing):
        yield


def show(text: str) -> None:
    """Print data for the operator. It was made safe piece by piece, and keeps its lines; a terminal gets colours."""
    if sys.stdout.isatty():
        from rich.console import Console

        from rollout.report.console import THEME, has_colours, painted

        console = Console(theme=THEME, highlight=False, markup=False)
        if has_colours(console):
            console.print(painted(text), soft_wrap=True)
            return
    _write(text)


def show_lines(text: str) -> None:
    """Print sentences, which are no table: a terminal gets them broken between words."""
    if is_terminal():
        from rollout.report.columns import wrapped

        text = wrapped(text, width(), hang=4)
    show(text)


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def show_bytes(data: bytes) -> None:
    """Print data for programs."""
    _write(data.decode().rstrip("\n"))


def is_terminal() -> bool:
    """Whether a person reads the data as it comes; signs that programs would stumble over are for them."""
    return sys.stdout.isatty()


def width() -> int:
    """Columns that a table may take."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH_OF_PIPES


@cache
def error_console() -> "SharedConsole":
    """Return standard error, for progress; rich honours NO_COLOR and dumb terminals.

    One for all: what is printed by it while something moves there stands above that.
    """
    from rollout.report.console import SharedConsole

    return SharedConsole(stderr=True, force_terminal=is_forced(sys.stderr))


def is_forced(stream: TextIO) -> bool | None:
    """For rich, which takes FORCE_COLOR for a terminal: it asks for colours, and nothing may move in a job's log."""
    return None if stream.isatty() else False
