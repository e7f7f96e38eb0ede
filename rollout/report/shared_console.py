"""A terminal that many threads write to, above a board that one more draws.

Rich writes a line where the board stands that was drawn before: of two who write at once, one takes the same board for
it, and parts of boards are left standing between the lines. So all that goes there takes turns.
"""

import threading

from rich.console import Console
from rich.live import Live
from rich.text import Text


class SharedConsole(Console):
    """Standard error, or standard output, as text comes: nothing in it is markup. Whoever draws on it holds `turn`."""

    def __init__(self, *, stderr: bool, force_terminal: bool | None) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False, force_terminal=force_terminal)
        self.turn = threading.RLock()

    def show_cursor(self, show: bool = True) -> bool:  # noqa: ARG002, FBT001, FBT002 - rich's own signature
        """Leave the cursor as it is: a process that Ctrl-Z stops, or a kill ends, could not give it back."""
        return False

    def show(self, line: Text) -> None:
        """Write a line, above whatever moves."""
        with self.turn:
            self.print(line, overflow="fold")


def take_turns(live: Live) -> None:
    """Have what moves, before it starts, drawn in turn with the lines of its console, should that be shared."""
    if isinstance(live.console, SharedConsole):
        # not a second lock: whoever writes a line asks for the live one's within the console's, and it does the reverse
        live._lock = live.console.turn  # noqa: SLF001 - rich has no other way


def print_above(live: Live, line: Text) -> None:
    """Print a line above what moves."""
    with live._lock:  # noqa: SLF001 - as above
        live.console.print(line)
