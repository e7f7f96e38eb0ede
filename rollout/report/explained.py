"""The explanation of one node of a plan, as text that is read from top to bottom."""

from collections.abc import Iterable
from itertools import groupby

from tabulate import tabulate

from rollout.model.text import counted, or_nothing, printable, shortened
from rollout.planning.explanation import Explanation

_POD_HEADERS = ("POD", "ACTION", "REASON", "BUDGETS", "NOTE")


def explanation_text(explanation: Explanation) -> str:
    """Where the node is, why, why not earlier, and what happens to its pods."""
    if not explanation.wave:
        return f"{printable(explanation.node)} is not planned: {printable(explanation.because)}"
    parts = ("\n".join(_place(explanation)), _pods(explanation), "\n".join(_findings(explanation)))
    return "\n\n".join(part for part in parts if part)


def _place(explanation: Explanation) -> Iterable[str]:
    company = f", with {shortened(explanation.together_with)}" if explanation.together_with else ", alone"
    yield f"{printable(explanation.node)} is in wave {explanation.wave}{company}: {printable(explanation.because)}"
    # a plan may have hundreds of waves, and of most of them the same is to be said
    for because, alike in groupby(explanation.not_earlier, key=lambda earlier: tuple(earlier.because)):
        waves = [earlier.wave for earlier in alike]
        number = f"wave {waves[0]}" if len(waves) == 1 else f"waves {waves[0]} to {waves[-1]}"
        yield f"  not in {number}: {'; '.join(map(printable, because))}"
    if explanation.arrivals:
        yield f"By then, {counted(explanation.arrivals, 'pod')} from earlier waves will have moved to it, and move on."


def _pods(explanation: Explanation) -> str:
    rows = [
        (
            printable(fate.pod),
            fate.action,
            fate.reason,
            or_nothing(", ".join(printable(budget) for budget in fate.budgets)),
            printable("; ".join(dict.fromkeys(note for note in (fate.message, *fate.warnings) if note))),
        )
        for fate in explanation.pods
    ]
    return tabulate(rows, headers=_POD_HEADERS, tablefmt="plain", disable_numparse=True) if rows else ""


def _findings(explanation: Explanation) -> Iterable[str]:
    for blocker in explanation.blockers:
        yield f"Blocker {blocker.kind}: {printable(blocker.object)} {printable(blocker.message)}"
    for warning in explanation.warnings:
        yield f"Warning {warning.kind}: {printable(warning.object)} {printable(warning.message)}"
