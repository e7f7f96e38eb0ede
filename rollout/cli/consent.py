import select
import sys
from collections.abc import Callable, Sequence

from rollout.cli.program import program_name
from rollout.cli.terminal import fit_line
from rollout.errors import DeclinedError, NotConfirmedError
from rollout.model.text import printable

_POLL_SECONDS = 0.5
_ANSWER = "Type yes to continue:"
# No-break spaces keep `fit_line` from wrapping the answers.
_UNBROKEN_ANSWER = _ANSWER.replace(" ", "\N{NO-BREAK SPACE}")


def refuse_without_terminal(*, as_json: bool, hint: str = "Use --yes.") -> None:
    if as_json:
        raise DeclinedError("-o json cannot ask for confirmation", hint=hint)
    if not sys.stdin.isatty():
        raise DeclinedError("there is no terminal to ask for confirmation", hint=hint)


def ask(question: str, notes: Sequence[str] = ()) -> None:
    try:
        for line in notes:
            sys.stderr.write(f"{fit_line(printable(line))}\n")
        prompt = fit_line(f"{printable(question)}? {_UNBROKEN_ANSWER}")
        sys.stderr.write(f"{prompt.replace(_UNBROKEN_ANSWER, _ANSWER)} ")
        sys.stderr.flush()
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        sys.stderr.write(f"\n{program_name()}: interrupted: nothing was changed\n")
        raise
    if answer.strip() != "yes":
        raise NotConfirmedError("not confirmed: nothing was changed")


class TerminalConfirmation:
    """Asks before each wave. The answer `all` is for later waves too."""

    def __init__(self) -> None:
        if not sys.stdin.isatty():
            raise DeclinedError(
                "--interactive needs a terminal",
                hint="Drop it, or let a command confirm waves: --set gates.command=COMMAND.",
            )
        self._all_waves_confirmed = False
        # Not set by a stop request.
        self.is_declined = False

    def __call__(self, question: str, stopped: Callable[[], bool]) -> bool:
        """A stop request counts as a no."""
        if self._all_waves_confirmed:
            return True
        instruction = "Type yes to start this wave, or all to start it and every later wave:"
        sys.stderr.write(f"{fit_line(f'{printable(question)} {instruction}')} ")
        sys.stderr.flush()
        answer = _read_line(stopped).strip()
        self._all_waves_confirmed = answer == "all"
        is_confirmed = answer in ("yes", "all")
        self.is_declined = not is_confirmed and not stopped()
        return is_confirmed


def _read_line(stopped: Callable[[], bool]) -> str:
    while not stopped():
        # Wait briefly, to notice a stop request.
        readable, _, _ = select.select([sys.stdin], [], [], _POLL_SECONDS)
        if readable:
            return sys.stdin.readline()
    sys.stderr.write("\n")
    return ""
