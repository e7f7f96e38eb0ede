"""What the API server said to a dry run, as text."""

from collections.abc import Sequence

from tabulate import tabulate

from rollout.execution.rollout.rehearsal import Rehearsal
from rollout.model.text import counted, printable

_HEADERS = ("NODE", "EVICTIONS", "THE API SERVER OBJECTS")


def rehearsal_text(nodes: Sequence[Rehearsal]) -> str:
    """A row a node, with the objections below one another, and what it comes to."""
    table = tabulate([_row(node) for node in nodes], headers=_HEADERS, tablefmt="plain", disable_numparse=True)
    objections = sum(len(node.objections) for node in nodes)
    objected = counted(objections, "objection") if objections else "no objection"
    return f"{table}\n\nDry run: nothing was changed; {objected} by the API server."


def _row(node: Rehearsal) -> tuple[str, ...]:
    objections = "\n".join(printable(objection) for objection in node.objections)
    return (printable(node.node), str(node.evictions), objections or "-")
