"""Consent: a saved plan, `--yes`, or the word `yes` typed by an operator who has seen the plan.

With `--interactive` they are asked again before each wave.
"""

import select
import sys
from collections.abc import Callable

from rollout.cli.terminal import fitted
from rollout.errors import DeclinedError
from rollout.model.text import printable

_TICK = 0.5
# stays in one piece, wherever the line is broken
_ANSWER = "Type\N{NO-BREAK SPACE}yes:"


def refuse_if_nobody_can_be_asked(*, given: bool, as_json: bool, hint: str = "Give --yes.") -> None:
    """`DeclinedError` where consent is neither given nor can be asked for; found before the work."""
    if not given and (as_json or not sys.stdin.isatty()):
        why = "-o json asks no questions" if as_json else "there is no terminal to ask for consent"
        raise DeclinedError(why, hint=hint)


def ask(question: str) -> None:
    """`DeclinedError` for any answer but yes."""
    try:
        sys.stderr.write(f"{fitted(f'{printable(question)}? {_ANSWER}').replace(_ANSWER, 'Type yes:')} ")
        sys.stderr.flush()
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        # on a line of its own, for the question's is not ended
        sys.stderr.write("\nrollout: interrupted: nothing was changed\n")
        raise
    if answer.strip() != "yes":
        raise DeclinedError("not confirmed: nothing was changed")


class TerminalConfirmation:
    """Asks at the terminal: y for this wave, a for this and all that follow, anything else for none."""

    def __init__(self) -> None:
        if not sys.stdin.isatty():
            raise DeclinedError(
                "--interactive needs a terminal", hint="Drop it, or hold waves with --set gates.command=COMMAND."
            )
        self._always = False

    def __call__(self, question: str, stopped: Callable[[], bool]) -> bool:
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
