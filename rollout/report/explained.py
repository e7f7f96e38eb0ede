"""The explanation of one node of a plan, as text that is read from top to bottom."""

from collections.abc import Iterable

from tabulate import tabulate

from rollout.planning.explanation import Explanation
from rollout.report.text import counted, or_nothing, printable, shortened

_POD_HEADERS = ("POD", "ACTION", "REASON", "BUDGETS", "NOTE")


def explanation_text(found: Explanation) -> str:
    """Where the node is, why, why not earlier, and what happens to its pods."""
    if not found.wave:
        return f"{printable(found.node)} takes no part: {printable(found.because)}"
    return "\n\n".join(part for part in ("\n".join(_place(found)), _pods(found), "\n".join(_findings(found))) if part)


def _place(found: Explanation) -> Iterable[str]:
    company = f", with {shortened(found.together_with)}" if found.together_with else ", alone"
    yield f"{printable(found.node)} is in wave {found.wave}{company}: {printable(found.because)}"
    for earlier in found.not_earlier:
        yield f"  not in wave {earlier.wave}: {'; '.join(printable(why) for why in earlier.because)}"
    if found.arrivals:
        yield f"By then, {counted(found.arrivals, 'pod')} of earlier waves will have come to it, and leave again."


def _pods(found: Explanation) -> str:
    rows = [
        (
            printable(fate.pod),
            fate.action,
            fate.reason,
            or_nothing(", ".join(printable(budget) for budget in fate.budgets)),
            printable("; ".join(dict.fromkeys(told for told in (fate.message, *fate.warnings) if told))),
        )
        for fate in found.pods
    ]
    return tabulate(rows, headers=_POD_HEADERS, tablefmt="plain", disable_numparse=True) if rows else ""


def _findings(found: Explanation) -> Iterable[str]:
    for blocker in found.blockers:
        yield f"Blocker {blocker.kind}: {printable(blocker.object)} {printable(blocker.message)}"
    for warning in found.warnings:
        yield f"Warning {warning.kind}: {printable(warning.object)} {printable(warning.message)}"
