"""What the API server said to a dry run, as text."""

from collections.abc import Iterator, Sequence

from rollout.execution.rollout.rehearsal import Rehearsal
from rollout.model.text import NOTHING, counted, printable, shortened
from rollout.report.columns import Column, table_text, wrapped

_COLUMNS = (Column("NODE", wraps=True), Column("EVICTIONS", right=True), Column("THE API SERVER OBJECTS", note=True))
# More nodes than these are no rows to be read one by one.
_MANY = 20


def rehearsal_text(nodes: Sequence[Rehearsal], width: int | None = None) -> str:
    """A row a node, with the objections below one another, and what it comes to. `width` in columns, None for no limit.

    Of many nodes, those without an objection are one row.
    """
    table = table_text(_COLUMNS, list(_rows(nodes)), width)
    objections = sum(len(node.objections) for node in nodes)
    objected = counted(objections, "objection") if objections else "no objection"
    sentence = f"Dry run: nothing was changed; {objected} by the API server."
    return f"{table}\n\n{wrapped(sentence, width)}"


def _rows(nodes: Sequence[Rehearsal]) -> Iterator[tuple[str, ...]]:
    fine = [node for node in nodes if not node.objections] if len(nodes) > _MANY else []
    if fine:
        names = shortened([node.node for node in fine], most=3)
        yield f"{counted(len(fine), 'node')}: {names}", str(sum(node.evictions for node in fine)), NOTHING
    yield from (_row(node) for node in nodes if not fine or node.objections)


def _row(node: Rehearsal) -> tuple[str, ...]:
    objections = "\n".join(printable(objection) for objection in node.objections)
    return (printable(node.node), str(node.evictions), objections or NOTHING)
