"""What the API server said to a dry run, as text."""

from collections.abc import Iterator, Sequence

from tabulate import tabulate

from rollout.execution.rollout.rehearsal import Rehearsal
from rollout.model.text import counted, printable, shortened

_HEADERS = ("NODE", "EVICTIONS", "THE API SERVER OBJECTS")
# More nodes than these are no rows to be read one by one.
_MANY = 20


def rehearsal_text(nodes: Sequence[Rehearsal]) -> str:
    """A row a node, with the objections below one another, and what it comes to.

    Of many nodes, those without an objection are one row.
    """
    table = tabulate(list(_rows(nodes)), headers=_HEADERS, tablefmt="plain", disable_numparse=True)
    objections = sum(len(node.objections) for node in nodes)
    objected = counted(objections, "objection") if objections else "no objection"
    return f"{table}\n\nDry run: nothing was changed; {objected} by the API server."


def _rows(nodes: Sequence[Rehearsal]) -> Iterator[tuple[str, ...]]:
    fine = [node for node in nodes if not node.objections] if len(nodes) > _MANY else []
    if fine:
        names = shortened([node.node for node in fine], most=3)
        yield f"{counted(len(fine), 'node')}: {names}", str(sum(node.evictions for node in fine)), "-"
    yield from (_row(node) for node in nodes if not fine or node.objections)


def _row(node: Rehearsal) -> tuple[str, ...]:
    objections = "\n".join(printable(objection) for objection in node.objections)
    return (printable(node.node), str(node.evictions), objections or "-")
