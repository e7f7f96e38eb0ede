"""`--interactive`: somebody says yes to every wave."""

import select
import sys
from collections.abc import Callable

from rollout.errors import DeclinedError
from rollout.report.text import printable

_TICK = 0.5


class TerminalConfirmation:
    """Asks at the terminal: y for this wave, a for this and all that follow, anything else for none."""

    def __init__(self) -> None:
        if not sys.stdin.isatty():
            raise DeclinedError(
                "--interactive needs a terminal to ask at", hint="Leave it away, or hold waves with --gate-command."
            )
        self._always = False

    def given(self, question: str, *, stopped: Callable[[], bool]) -> bool:
        """Whether they agree; a stop while the question stands is a no."""
        if self._always:
            return True
        sys.stderr.write(f"{printable(question)} [y/N/a(lways)] ")
        sys.stderr.flush()
        answer = _line(stopped).strip().lower()
        self._always = answer in ("a", "always")
        return self._always or answer in ("y", "yes")


def _line(stopped: Callable[[], bool]) -> str:
    while not stopped():
        readable, _, _ = select.select([sys.stdin], [], [], _TICK)
        if readable:
            return sys.stdin.readline()
    sys.stderr.write("\n")
    return ""
