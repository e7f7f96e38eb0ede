"""What is printed where: data to standard output, everything else to standard error."""

import logging
import shutil
import sys
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, TextIO

from rollout.model.text import printable

if TYPE_CHECKING:
    from rich.console import Console

_WIDTH_OF_PIPES = 160
SAID = "rollout.said"
_LOG = logging.getLogger(SAID)


def say(text: str) -> None:
    """A line for the operator, beside the data."""
    _LOG.info("%s", text)
    sys.stderr.write(f"{fitted(printable(text))}\n")
    sys.stderr.flush()


def fitted(line: str) -> str:
    """A line for standard error: a terminal gets it broken between words."""
    if not sys.stderr.isatty():
        return line
    from rollout.report.columns import wrapped

    return wrapped(line, shutil.get_terminal_size().columns)


def show(text: str) -> None:
    """Data for the operator. It was made safe piece by piece, and keeps its lines; a terminal gets colours."""
    if sys.stdout.isatty():
        from rich.console import Console

        from rollout.report.painting import THEME, has_colours, painted

        console = Console(theme=THEME, highlight=False, markup=False)
        if has_colours(console):
            console.print(painted(text), soft_wrap=True)
            return
    _write(text)


def show_lines(text: str) -> None:
    """The same of sentences, which are no table: a terminal gets them broken between words."""
    if is_terminal():
        from rollout.report.columns import wrapped

        text = wrapped(text, width(), hang=4)
    show(text)


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def show_names(nodes: Iterable[str]) -> None:
    """Nodes as kubectl takes them: `node/NAME`, a line each, and nothing where there is none."""
    sys.stdout.write("".join(f"node/{printable(name)}\n" for name in nodes))
    sys.stdout.flush()


def show_bytes(data: bytes) -> None:
    """Data for programs."""
    _write(data.decode().rstrip("\n"))


def is_terminal() -> bool:
    """Whether a person reads the data as it comes; signs that programs would stumble over are for them."""
    return sys.stdout.isatty()


def width() -> int:
    """Columns that a table may take."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH_OF_PIPES


@cache
def error_console() -> "Console":
    """Standard error, for progress; rich honours NO_COLOR and dumb terminals.

    One for all: what is printed by it while something moves there stands above that.
    """
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False, force_terminal=is_forced(sys.stderr))


def is_forced(stream: TextIO) -> bool | None:
    """For rich, which takes FORCE_COLOR for a terminal: it asks for colours, and nothing may move in a job's log."""
    return None if stream.isatty() else False
