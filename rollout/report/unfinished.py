"""An unfinished run in words, and as what `status --run` prints."""

from collections.abc import Iterable, Mapping, Sequence, Sized

from rollout.execution.record.unfinished import Begun, Unfinished
from rollout.execution.rollout.abort import Aborted
from rollout.model.fleetlock import is_fleetlock_run
from rollout.model.progress import NodeResult
from rollout.model.text import counted, listed, printable, shortened
from rollout.report.document_types import AbortReport, LeftNode, UnfinishedRun

_MOST = 20
RECORD_STAYS = "the record is not understood and stays as it is: rollout abort removes it"
_ABORTED_BY_HAND = "rollout operate begins nothing until you do: rollout apply; or let it: rollout unpause --all"
_UNKNOWN_RULES = (
    "its rules are unknown and not applied: checks, gates, windows, its reboot command, its drain options",
    "started nodes are finished with the defaults and this command's flags; pods with local data are not evicted",
    "no further node is started",
)


def heading(unfinished: Unfinished) -> str:
    """Which run, of whom, since when, and how far it has come."""
    if unfinished.is_only_taints:
        return f"nothing is left of a rollout but its soft taint, on {_nodes(unfinished.tainted)}"
    who = f" of {printable(unfinished.record.started_by)}" if unfinished.record.started_by else ""
    since = f" since {printable(unfinished.record.started_at)}" if unfinished.record.started_at else ""
    state = "has ended with nodes left over" if not unfinished.blocks else "is running or interrupted"
    if _is_of_fleetlock(unfinished):
        state = "is taking hosts through their reboots" if unfinished.blocks else "has left nodes over"
        return f"the FleetLock server {state}, run {printable(unfinished.run)}: {_counts(unfinished)}"
    name = f"the rollout {printable(unfinished.run)}" if unfinished.run else "a rollout of unknown id"
    return f"{name}{who}{since} {state}: {_counts(unfinished)}"


def under_way(unfinished: Unfinished) -> Mapping[str, str]:
    """How far it has come with each node that is not done, by name: `rebooting, wave 3 of 6`."""
    plan = unfinished.record.plan
    waves = plan.waves if plan else ()
    turns = {node.name: f"wave {wave.index} of {len(waves)}" for wave in waves for node in wave.nodes}
    states = {begun.node.name: begun.phase.value for begun in (*unfinished.begun, *unfinished.failed)}
    if unfinished.blocks:
        states |= dict.fromkeys((node.name for node in unfinished.untouched), "its turn comes")
    return {name: ", ".join(filter(None, (word, turns.get(name, "")))) for name, word in states.items()}


def ways_out(unfinished: Unfinished) -> str:
    """What can be done about it, in half a sentence."""
    if unfinished.is_only_taints:
        return "`rollout abort` removes it"
    if _is_of_fleetlock(unfinished):
        return (
            "`rollout fleetlock status` shows it; where no server runs any more, `rollout abort` gives the nodes back"
        )
    if unfinished.record.problem:
        return "`rollout abort` gives back what was started, `rollout resume --finish-begun` finishes it by its marks"
    return "`rollout resume` continues it, `rollout abort` undoes what it started"


def _is_of_fleetlock(unfinished: Unfinished) -> bool:
    """Whether its nodes' hosts have asked for their reboots: what is known of that stands in slots, not in a record."""
    return unfinished.record.is_missing and is_fleetlock_run(unfinished.run)


def _counts(unfinished: Unfinished) -> str:
    counts = [f"{counted(len(unfinished.begun), 'node')} in progress"]
    groups: tuple[tuple[str, Sized], ...] = (
        ("failed", [*unfinished.failed, *unfinished.given_back]),
        ("done", unfinished.done),
        ("not started", unfinished.untouched),
        ("with marks that are not understood", unfinished.unclear),
        ("no longer in the cluster", unfinished.gone),
        ("with its soft taint", unfinished.tainted),
    )
    counts += [f"{len(group)} {word}" for word, group in groups if group]
    problem = "" if _is_of_fleetlock(unfinished) else unfinished.record.problem
    return ", ".join(counts) + (f" ({printable(problem)})" if problem else "")


def _nodes(names: Sequence[str]) -> str:
    return f"{counted(len(names), 'node')}: {shortened(names)}"


def resume_text(
    unfinished: Unfinished, retried: Sequence[str], failures: int = 0, stranded: Sequence[NodeResult] = ()
) -> str:
    """What resume is about to do with each node; `failures` so far count towards the most that are allowed.

    `stranded` are begun nodes that it cannot go on with.
    """
    lines = [_title(unfinished), *(f"  {line}" for line in unknown_rules(unfinished))]
    lines += [f"  {printable(result.node)}: left as it is: {printable(result.message)}" for result in stranded]
    stranded_nodes = {result.node for result in stranded}
    going_on = (begun for begun in unfinished.begun if begun.node.name not in stranded_nodes)
    lines += [f"  {printable(begun.node.name)}: {begun.phase}, goes on from there" for begun in going_on]
    if unfinished.gone:
        lines.append(f"  no longer in the cluster: {shortened(unfinished.gone)}")
    if unfinished.untouched:
        lines.append(f"  planned again: {shortened([node.name for node in unfinished.untouched])}")
    failed = [begun.node.name for begun in unfinished.failed] + list(unfinished.given_back)
    if failed:
        verb = "tried again" if retried else "failed, left as they are (--retry-failed tries them again)"
        lines.append(f"  {verb}: {shortened(failed)}")
    lines += [f"  {line}" for line in older_failures(unfinished, retried)]
    if failures:
        lines.append(f"  counted towards --max-failures so far: {failures}")
    return "\n".join(lines)


def _title(unfinished: Unfinished) -> str:
    text = heading(unfinished)
    return text[:1].upper() + text[1:]


def unknown_rules(unfinished: Unfinished) -> Iterable[str]:
    """By what the nodes are finished where the rules of their rollout are not known; nothing where they are."""
    if unfinished.record.problem:
        yield from _UNKNOWN_RULES
    if unfinished.is_garbled:
        yield RECORD_STAYS


def older_failures(unfinished: Unfinished, retried: Sequence[str]) -> Iterable[str]:
    """By which rules failed nodes of an older rollout are taken; nothing where there are none among the retried."""
    older = [begun.node.name for begun in unfinished.failed if begun.run != unfinished.run]
    if names := [name for name in older if name in retried]:
        yield f"failed in an older rollout, taken by the rules of this one: {shortened(names)}"


def abort_text(unfinished: Unfinished | None) -> str:
    """What abort is about to do with each node; None where nothing but slots of FleetLock is left."""
    if unfinished is None:
        return "Slots of FleetLock are held, of which nothing stands on any node: they are freed."
    lines = [_title(unfinished)]
    lines += [f"  {printable(begun.node.name)}: {_undone(begun)}" for begun in (*unfinished.begun, *unfinished.failed)]
    lines += [f"  {printable(name)}: left as it is: {printable(why)}" for name, why in unfinished.unclear.items()]
    if unfinished.tainted:
        lines.append(f"  the soft taint is removed from {_nodes(unfinished.tainted)}")
    if unfinished.is_garbled:
        lines.append("  its record is removed, with whatever in it is not understood")
    elif not unfinished.record.is_missing:
        lines.append("  its record is removed")
    return "\n".join(lines)


def _undone(begun: Begun) -> str:
    cordon = "stays cordoned, as it was before" if begun.node.cordoned else "is uncordoned"
    return f"{begun.phase}; {cordon}, and our annotations are removed"


def aborted_text(aborted: Aborted) -> str:
    """What came of an abort."""
    text = f"{counted(len(aborted.reverted), 'node')} given back"
    text += f": {shortened(aborted.reverted)}" if aborted.reverted else ""
    untainted = [f"The soft taint is removed from {_nodes(aborted.untainted)}"] if aborted.untainted else []
    return "\n".join((text, *untainted, *_left(aborted), _ABORTED_BY_HAND))


def _left(aborted: Aborted) -> Iterable[str]:
    if aborted.left_cordoned:
        yield "Left as they are: " + listed(
            [f"{printable(name)}: {printable(why)}" for name, why in aborted.left_cordoned.items()], _MOST
        )


def run_text(unfinished: Unfinished | None, *, renewed: bool) -> str:
    """The run, and each of its nodes that is under way or failed."""
    if unfinished is None:
        return "No rollout is running or interrupted."
    lines = [_title(unfinished)]
    if renewed:
        lines.append("  its process is alive: it renews the lock")
    elif unfinished.blocks:
        by_itself = "the next pass of rollout operate goes on with it; " if unfinished.record.operating else ""
        lines.append(f"  no process is working on it: {by_itself}{ways_out(unfinished)}")
    elif unfinished.is_only_taints:
        lines.append(f"  {ways_out(unfinished)}")
    lines += [f"  {printable(begun.node.name)}: {begun.phase}" for begun in (*unfinished.begun, *unfinished.failed)]
    lines += [f"  {printable(name)}: not understood: {printable(why)}" for name, why in unfinished.unclear.items()]
    if unfinished.gone:
        lines.append(f"  no longer in the cluster: {shortened(unfinished.gone)}")
    return "\n".join(lines)


def run_document(unfinished: Unfinished | None, *, renewed: bool) -> UnfinishedRun | None:
    """The run as one object; `renewed` is whether its process was seen alive."""
    if unfinished is None:
        return None
    return {
        "run": unfinished.run,
        "state": "running" if renewed else ("interrupted" if unfinished.blocks else "ended"),
        "operating": unfinished.record.operating,
        "started_by": unfinished.record.started_by,
        "started_at": unfinished.record.started_at,
        "nodes": {begun.node.name: begun.phase for begun in (*unfinished.begun, *unfinished.failed)},
        "failed": [*(begun.node.name for begun in unfinished.failed), *unfinished.given_back],
        "done": unfinished.done,
        "not_begun": [node.name for node in unfinished.untouched],
        "not_understood": unfinished.unclear,
        "gone": unfinished.gone,
        "tainted": unfinished.tainted,
        "problem": unfinished.record.problem,
    }


def abort_document(aborted: Aborted) -> AbortReport:
    """What came of an abort, as one object."""
    left = (*aborted.left_cordoned.items(), *aborted.left_tainted.items())
    return {
        "run": aborted.run,
        "reverted": aborted.reverted,
        "untainted": aborted.untainted,
        "left": [LeftNode(node=name, message=why) for name, why in left],
    }
