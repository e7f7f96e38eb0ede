"""Consent: a saved plan, `--yes`, or the word `yes` typed by somebody who has seen the plan."""

import sys

from rollout.cli import wiring
from rollout.errors import DeclinedError

_QUESTION = "Only 'yes' is taken for consent. Run this plan? "


def refuse_if_nobody_can_be_asked(*, given: bool, as_json: bool) -> None:
    """`DeclinedError` where consent is neither given nor can be asked for; found before the work."""
    if given:
        return
    if as_json:
        raise DeclinedError(
            "apply -o json asks no questions", hint="Give --yes, or a plan saved with `rollout plan --out FILE`."
        )
    if not wiring.interactive():
        raise DeclinedError(
            "there is no terminal to ask for consent",
            hint="Give --yes, or a plan saved with `rollout plan --out FILE`.",
        )


def ask(question: str = _QUESTION) -> None:
    """`DeclinedError` for any answer but yes."""
    sys.stderr.write(question)
    sys.stderr.flush()
    if sys.stdin.readline().strip() != "yes":
        raise DeclinedError("not confirmed: nothing was changed")
