"""What is printed where: data to standard output, everything else to standard error."""

import shutil
import sys
from typing import TYPE_CHECKING

from rollout.model.text import printable

if TYPE_CHECKING:
    from rich.console import Console

_WIDTH_OF_PIPES = 160


def say(text: str) -> None:
    """A line for the operator, beside the data."""
    sys.stderr.write(f"{printable(text)}\n")
    sys.stderr.flush()


def show(text: str) -> None:
    """Data for the operator. It was made safe piece by piece, and keeps its lines."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def show_bytes(data: bytes) -> None:
    """Data for programs."""
    show(data.decode().rstrip("\n"))


def width() -> int:
    """Columns that a table may take."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH_OF_PIPES


def error_console() -> "Console":
    """Standard error, for progress; rich honours NO_COLOR and dumb terminals."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False)
