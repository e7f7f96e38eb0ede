"""An unfinished run in words, and as what `status --run` prints."""

from collections.abc import Iterable, Mapping, Sequence

from rollout.execution.unfinished.abort import Aborted
from rollout.execution.unfinished.recovery import Begun, Unfinished
from rollout.report.text import counted, listed, printable, shortened

_MOST = 20


def heading(found: Unfinished) -> str:
    """Which run, of whom, since when, and how far it has come."""
    who = f" of {printable(found.record.started_by)}" if found.record.started_by else ""
    since = f" since {printable(found.record.started_at)}" if found.record.started_at else ""
    state = "has ended with nodes left over" if not found.blocks else "is under way, or was interrupted"
    return f"the rollout {printable(found.record.run)}{who}{since} {state}: {_counts(found)}"


def _counts(found: Unfinished) -> str:
    told = [f"{counted(len(found.begun), 'node')} begun"]
    groups = (("failed", [*found.failed, *found.given_back]), ("done", found.done), ("not begun", found.untouched))
    told += [f"{len(group)} {word}" for word, group in groups if group]
    return ", ".join(told) + (f" ({printable(found.record.problem)})" if found.record.problem else "")


def resume_text(found: Unfinished, retried: Sequence[str], failures: int = 0) -> str:
    """What resume is about to do with each node; `failures` so far count towards the most that are allowed."""
    lines = [heading(found).replace("the rollout", "The rollout", 1)]
    lines += [f"  {printable(begun.node.name)}: {_next(begun)}" for begun in found.begun]
    if found.untouched:
        lines.append(f"  planned anew: {shortened([node.name for node in found.untouched])}")
    failed = [begun.node.name for begun in found.failed] + list(found.given_back)
    if failed:
        verb = "tried again" if retried else "failed, left as they are (--retry-failed tries them again)"
        lines.append(f"  {verb}: {shortened(failed)}")
    if failures:
        lines.append(f"  counted towards --max-failures so far: {failures}")
    return "\n".join(lines)


def _next(begun: Begun) -> str:
    return f"{begun.phase}, goes on from there"


def abort_text(found: Unfinished) -> str:
    """What abort is about to do with each node."""
    lines = [heading(found).replace("the rollout", "The rollout", 1)]
    lines += [f"  {printable(begun.node.name)}: {_undone(begun)}" for begun in (*found.begun, *found.failed)]
    return "\n".join([*lines, "  its record is taken away"])


def _undone(begun: Begun) -> str:
    cordon = "stays cordoned, as it was before" if begun.node.cordoned else "is uncordoned"
    return f"{begun.phase}; {cordon}, and our annotations go"


def aborted_text(aborted: Aborted) -> str:
    """What came of an abort."""
    told = f"{counted(len(aborted.reverted), 'node')} given back"
    return "\n".join((told + (f": {shortened(aborted.reverted)}" if aborted.reverted else ""), *_left(aborted)))


def _left(aborted: Aborted) -> Iterable[str]:
    if aborted.left:
        yield "Left as they are: " + listed(
            [f"{printable(name)}: {printable(why)}" for name, why in aborted.left.items()], _MOST
        )


def run_text(found: Unfinished | None, *, renewed: bool) -> str:
    """The run, and each of its nodes that is under way or failed."""
    if found is None:
        return "No rollout is under way, and none was interrupted."
    lines = [heading(found).replace("the rollout", "The rollout", 1)]
    if renewed:
        lines.append("  its process is alive: it renews the lock")
    elif found.blocks:
        lines.append("  nobody is running it: go on with `rollout resume`, or undo it with `rollout abort`")
    marked = (*found.begun, *found.failed)
    return "\n".join([*lines, *(f"  {printable(begun.node.name)}: {begun.phase}" for begun in marked)])


def run_document(found: Unfinished | None, *, renewed: bool) -> Mapping[str, object] | None:
    """The run as one object; `renewed` is whether its process was seen alive."""
    if found is None:
        return None
    state = "running" if renewed else ("interrupted" if found.blocks else "ended")
    return {
        "run": found.record.run,
        "state": state,
        "started_by": found.record.started_by,
        "started_at": found.record.started_at,
        "nodes": {begun.node.name: begun.phase for begun in (*found.begun, *found.failed)},
        "failed": [*(begun.node.name for begun in found.failed), *found.given_back],
        "done": found.done,
        "not_begun": [node.name for node in found.untouched],
        "problem": found.record.problem,
    }
