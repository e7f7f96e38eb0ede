"""An unfinished run in words, and as what `status --run` prints."""

from collections.abc import Iterable, Mapping, Sequence, Sized

from rollout.execution.record.unfinished import Begun, Unfinished
from rollout.execution.rollout.abort import Aborted
from rollout.model.progress import NodeResult
from rollout.report.text import counted, listed, printable, shortened

_MOST = 20
RECORD_STAYS = "the record, which is not understood, stays as it is: rollout abort takes it away"
_UNKNOWN_RULES = (
    "its rules are not known, and not applied: checks, gates, windows, its reboot command, what its drains may do",
    "begun nodes are finished by the defaults and this command's flags; pods that keep data there are not evicted",
    "no further node is begun",
)


def heading(found: Unfinished) -> str:
    """Which run, of whom, since when, and how far it has come."""
    who = f" of {printable(found.record.started_by)}" if found.record.started_by else ""
    since = f" since {printable(found.record.started_at)}" if found.record.started_at else ""
    state = "has ended with nodes left over" if not found.blocks else "is under way, or was interrupted"
    name = f"the rollout {printable(found.run)}" if found.run else "a rollout of unknown id"
    return f"{name}{who}{since} {state}: {_counts(found)}"


def ways_out(found: Unfinished) -> str:
    """What can be done about it, in half a sentence."""
    if found.record.problem:
        return "`rollout abort` gives back what was begun, `rollout resume --finish-begun` finishes it by its marks"
    return "`rollout resume` goes on with it, `rollout abort` undoes what it has begun"


def _counts(found: Unfinished) -> str:
    told = [f"{counted(len(found.begun), 'node')} begun"]
    groups: tuple[tuple[str, Sized], ...] = (
        ("failed", [*found.failed, *found.given_back]),
        ("done", found.done),
        ("not begun", found.untouched),
        ("with marks that are not understood", found.unclear),
        ("no longer in the cluster", found.gone),
    )
    told += [f"{len(group)} {word}" for word, group in groups if group]
    return ", ".join(told) + (f" ({printable(found.record.problem)})" if found.record.problem else "")


def resume_text(
    found: Unfinished, retried: Sequence[str], failures: int = 0, stranded: Sequence[NodeResult] = ()
) -> str:
    """What resume is about to do with each node; `failures` so far count towards the most that are allowed.

    `stranded` are begun nodes that it cannot go on with.
    """
    lines = [_title(found), *(f"  {line}" for line in unknown_rules(found))]
    lines += [f"  {printable(result.node)}: left as it is: {printable(result.message)}" for result in stranded]
    left = {result.node for result in stranded}
    lines += [f"  {printable(begun.node.name)}: {_next(begun)}" for begun in found.begun if begun.node.name not in left]
    if found.gone:
        lines.append(f"  no longer in the cluster: {shortened(found.gone)}")
    if found.untouched:
        lines.append(f"  planned anew: {shortened([node.name for node in found.untouched])}")
    failed = [begun.node.name for begun in found.failed] + list(found.given_back)
    if failed:
        verb = "tried again" if retried else "failed, left as they are (--retry-failed tries them again)"
        lines.append(f"  {verb}: {shortened(failed)}")
    if failures:
        lines.append(f"  counted towards --max-failures so far: {failures}")
    return "\n".join(lines)


def _title(found: Unfinished) -> str:
    text = heading(found)
    return text[:1].upper() + text[1:]


def unknown_rules(found: Unfinished) -> Iterable[str]:
    """By what the nodes are finished where the rules of their rollout are not known; nothing where they are."""
    if found.record.problem:
        yield from _UNKNOWN_RULES
    if found.is_garbled:
        yield RECORD_STAYS


def _next(begun: Begun) -> str:
    return f"{begun.phase}, goes on from there"


def abort_text(found: Unfinished) -> str:
    """What abort is about to do with each node."""
    lines = [_title(found)]
    lines += [f"  {printable(begun.node.name)}: {_undone(begun)}" for begun in (*found.begun, *found.failed)]
    lines += [f"  {printable(name)}: left as it is: {printable(why)}" for name, why in found.unclear.items()]
    if found.is_garbled:
        lines.append("  its record is taken away, with whatever stands in it that is not understood")
    elif not found.record.is_missing:
        lines.append("  its record is taken away")
    return "\n".join(lines)


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
    lines = [_title(found)]
    if renewed:
        lines.append("  its process is alive: it renews the lock")
    elif found.blocks:
        lines.append(f"  nobody is running it: {ways_out(found)}")
    lines += [f"  {printable(begun.node.name)}: {begun.phase}" for begun in (*found.begun, *found.failed)]
    lines += [f"  {printable(name)}: not understood: {printable(why)}" for name, why in found.unclear.items()]
    if found.gone:
        lines.append(f"  no longer in the cluster: {shortened(found.gone)}")
    return "\n".join(lines)


def run_document(found: Unfinished | None, *, renewed: bool) -> Mapping[str, object] | None:
    """The run as one object; `renewed` is whether its process was seen alive."""
    if found is None:
        return None
    state = "running" if renewed else ("interrupted" if found.blocks else "ended")
    return {
        "run": found.run,
        "state": state,
        "started_by": found.record.started_by,
        "started_at": found.record.started_at,
        "nodes": {begun.node.name: begun.phase for begun in (*found.begun, *found.failed)},
        "failed": [*(begun.node.name for begun in found.failed), *found.given_back],
        "done": found.done,
        "not_begun": [node.name for node in found.untouched],
        "not_understood": found.unclear,
        "gone": found.gone,
        "problem": found.record.problem,
    }
