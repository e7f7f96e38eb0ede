"""An unfinished run in words, and as what `status --run` prints."""

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Literal, TypedDict

from rollout.execution.lease import LeaseSnapshot
from rollout.execution.node.transitions import BEFORE_REBOOT
from rollout.execution.record.unfinished import Begun, LastRun, RunWord, Unfinished, word_of
from rollout.execution.rollout.ledger import Aborted, Inheritance
from rollout.model.fleetlock import is_fleetlock_run
from rollout.model.progress import Outcome, Phase
from rollout.model.quantity import Duration
from rollout.model.text import counted, grouped, joined, listed, printable, shell_word, shortened
from rollout.model.timestamps import elapsed
from rollout.planning.eligibility.status import UnderWay
from rollout.report.sentences import capitalize, reason_counts
from rollout.report.status import Way

_MOST = 20
# So many nodes of which the same is to be said have a line each.
_FEW = 5
_FAILED_IN_SERVICE = frozenset(
    outcome.value
    for outcome in Outcome
    if outcome.is_failure and outcome is not Outcome.ROLLED_BACK
)
_STOPS_PASSES = "  unattended passes start no node until `rollout unpause --unattended`"
_PASSES_STOPPED = (
    "Unattended passes start no node until the next `rollout apply`, or until you let them:\n"
    "    rollout unpause --unattended"
)


def heading(unfinished: Unfinished, word: RunWord = RunWord.UNFINISHED) -> str:
    """Tell which run, of whom, since when, and how far it has come."""
    if unfinished.is_only_taints:
        return f"nothing is left of a rollout but its soft taint, on {_nodes(unfinished.tainted)}"
    if unfinished.is_aborted:
        names = _left_names(unfinished)
        verb = "is" if len(names) == 1 else "are"
        return (
            f"{shortened(names)} {verb} still cordoned by the aborted rollout"
            f" {printable(unfinished.run)}"
        )
    who = f" of {printable(unfinished.record.started_by)}" if unfinished.record.started_by else ""
    since = (
        f" since {printable(unfinished.record.started_at)}" if unfinished.record.started_at else ""
    )
    has_ended = not unfinished.blocks and word is not RunWord.RUNNING
    state = "ended unfinished" if has_ended else f"is {word}{_wave(unfinished)}"
    if is_of_fleetlock(unfinished):
        state = (
            "is taking hosts through their reboots" if unfinished.blocks else "has left nodes over"
        )
        return (
            f"the FleetLock server {state}, run {printable(unfinished.run)}: {_counts(unfinished)}"
        )
    name = (
        f"the rollout {printable(unfinished.run)}" if unfinished.run else "a rollout of unknown id"
    )
    return f"{name}{who}{since} {state}: {_counts(unfinished)}"


def _left_names(unfinished: Unfinished) -> Sequence[str]:
    """Name the nodes that still have marks."""
    return [printable(begun.node.name) for begun in (*unfinished.begun, *unfinished.failed)]


def ways_after_abort(unfinished: Unfinished) -> tuple[Way, Way]:
    """Return what to do about the nodes that an abort had to leave: if they come back, and if they do not."""
    return _ways_after_abort(_left_names(unfinished))


def _ways_after_abort(names: Sequence[str]) -> tuple[Way, Way]:
    is_one = len(names) == 1
    ready = Way(f"When {shortened(names)} {'is' if is_one else 'are'} Ready again", "rollout abort")
    nodes = " ".join(map(shell_word, names))
    gone = Way(
        f"If {'it is' if is_one else 'they are'} gone for good",
        f"kubectl delete node {nodes}",
        is_ours=False,
    )
    return ready, gone


def _wave(unfinished: Unfinished) -> str:
    """Which wave it has come to; empty where no node is under way, or nobody knows the waves."""
    turns = _turns(unfinished)
    names = (begun.node.name for begun in unfinished.begun)
    index, waves = max((turns[name] for name in names if name in turns), default=(0, 0))
    return f", wave {index} of {waves}" if index else ""


def _turns(unfinished: Unfinished) -> Mapping[str, tuple[int, int]]:
    """Which wave each planned node belongs to, and how many there are."""
    waves = unfinished.record.plan.waves if unfinished.record.plan else ()
    return {node.name: (wave.index, len(waves)) for wave in waves for node in wave.nodes}


def under_way(unfinished: Unfinished, down: Mapping[str, str]) -> Mapping[str, UnderWay]:
    """Return how far it has come with each node that is not done, by name.

    `down` has, by name, for how long nodes that reboot are down, in words. A node that failed and
    is in service again counts as failed, as in the heading; of a node that was rolled back, the
    version tells more.
    """
    begun = (*unfinished.begun, *unfinished.failed)
    phases = {
        name: Phase.FAILED
        for name, outcome in unfinished.given_back.items()
        if outcome in _FAILED_IN_SERVICE
    }
    phases |= {entry.node.name: entry.phase for entry in begun}
    if unfinished.blocks:
        phases |= dict.fromkeys((node.name for node in unfinished.untouched), Phase.PENDING)
    turns = _turns(unfinished)
    return {
        name: UnderWay(phase, *turns.get(name, (0, 0)), down.get(name, ""))
        for name, phase in phases.items()
    }


def _states(unfinished: Unfinished, down: Mapping[str, str]) -> dict[str, str]:
    """Return the phases of the nodes that were begun, by name."""
    nodes = {
        begun.node.name: begun.phase.value for begun in (*unfinished.begun, *unfinished.failed)
    }
    return {name: joined(", ", phase, down.get(name, "")) for name, phase in nodes.items()}


def ways_out(unfinished: Unfinished) -> str:
    """Tell what can be done about it, in half a sentence."""
    if unfinished.is_only_taints:
        return "`rollout abort` removes it"
    if unfinished.is_aborted:
        return "; ".join(f"{way.lead}: `{way.command}`" for way in ways_after_abort(unfinished))
    if is_of_fleetlock(unfinished):
        return (
            "`rollout fleetlock status` shows it; where no server runs any more, `rollout abort`"
            " returns the nodes"
        )
    if unfinished.record.problem:
        return "`rollout abort` returns the started nodes"
    if unfinished.only_failed_left:
        return (
            "`rollout resume --retry-failed` tries the failed nodes again, `rollout abort` ends it"
            " without them"
        )
    return "`rollout resume` continues it, `rollout abort` undoes what it started"


def is_of_fleetlock(unfinished: Unfinished) -> bool:
    """Whether its nodes' hosts have asked for their reboots: what is known of that stands in slots, not in a record."""
    return unfinished.record.is_missing and is_fleetlock_run(unfinished.run)


def _counts(unfinished: Unfinished) -> str:
    groups = {
        "in progress": unfinished.begun,
        "failed": [*unfinished.failed, *unfinished.given_back],
        "done": unfinished.done,
        "not started": unfinished.untouched,
        "with marks that are not understood": unfinished.unclear,
        "no longer in the cluster": unfinished.gone,
    }
    counts = (
        reason_counts({word: len(group) for word, group in groups.items() if group})
        or "nothing in progress"
    )
    problem = "" if is_of_fleetlock(unfinished) else unfinished.record.problem
    return counts + (f" ({printable(problem)})" if problem else "")


def _nodes(names: Sequence[str]) -> str:
    return f"{counted(len(names), 'node')}: {shortened(names)}"


def resume_text(
    unfinished: Unfinished,
    lock: LeaseSnapshot,
    planned: Container[str],
    inherited: Inheritance,
    *,
    retry: bool = False,
) -> str:
    """Tell what resume is about to do with each node that was begun; `planned` are those of its plan, which is shown.

    With `retry` those that failed are tried again.
    """
    said = {begun.node.name: f"{begun.phase}, goes on from there" for begun in unfinished.begun}
    said |= {
        result.node: f"left as it is: {printable(result.message)}" for result in inherited.stranded
    }
    failed = [begun.node.name for begun in unfinished.failed if begun.node.name not in said]
    failed += unfinished.given_back
    lines = list(_lines(unfinished, lock, said, alive=lock.alive))
    if left := [name for name in failed if name not in planned]:
        words = (
            "failed, and left out now"
            if retry
            else "failed, left as they are (--retry-failed tries them again)"
        )
        lines.append(f"  {words}: {shortened(left)}")
    if inherited.failures:
        lines.append(f"  counted towards --max-failures so far: {inherited.failures}")
    return "\n".join(lines)


def abort_text(unfinished: Unfinished | None, lock: LeaseSnapshot, *, wait: float) -> str:
    """Tell what abort is about to do with each node; one that may be rebooting is watched for `wait` seconds.

    `unfinished` is None where nothing but slots of FleetLock is left.
    """
    if unfinished is None:
        return "Slots of FleetLock that no node has marks of are freed."
    said = {
        begun.node.name: _undone(begun, wait) for begun in (*unfinished.begun, *unfinished.failed)
    }
    said |= {name: f"left as it is: {printable(why)}" for name, why in unfinished.unclear.items()}
    lines = list(_lines(unfinished, lock, said, alive=lock.alive))
    if unfinished.tainted:
        lines.append(f"  the soft taint is removed from {_nodes(unfinished.tainted)}")
    if not unfinished.record.is_missing:
        garbled = ", with whatever in it is not understood" if unfinished.is_garbled else ""
        lines.append(f"  its record is removed{garbled}")
    if not unfinished.is_only_taints:
        lines.append(_STOPS_PASSES)
    return "\n".join(lines)


def _undone(begun: Begun, wait: float) -> str:
    undo = (
        "removes its annotations"
        if begun.node.cordoned
        else "uncordons it and removes its annotations"
    )
    stays = "; it stays cordoned, as it was before" if begun.node.cordoned else ""
    waits = (
        ""
        if begun.phase in BEFORE_REBOOT
        else f"waits up to {Duration(round(wait))} for it to be Ready, then "
    )
    return f"{begun.phase}; {waits}{undo}{stays}"


def aborted_text(aborted: Aborted, again: str) -> str:
    """Tell what came of an abort; `again` is the command that goes on with it where nodes are left."""
    left = [f"{printable(name)}: {printable(why)}" for name, why in aborted.left_cordoned.items()]
    count = len(aborted.reverted)
    returned = f"{counted(count, 'node')} returned: {shortened(aborted.reverted)}" if count else ""
    nothing = (
        ""
        if count or left
        else "No node had to be undone; what was left of the rollout was removed."
    )
    names = [printable(name) for name in aborted.left_cordoned]
    ways = () if aborted.stopped or not left else _ways_after_abort(names)
    return joined(
        "\n",
        returned or nothing,
        f"The soft taint is removed from {_nodes(aborted.untainted)}" if aborted.untainted else "",
        f"Left as they are: {listed(left, _MOST)}" if left else "",
        _PASSES_STOPPED if aborted.stops_passes else "",
        f"Next:\n    {again}" if left and aborted.stopped else "",
        *(f"{way.lead}:\n    {again if way.is_ours else way.command}" for way in ways),
    )


def no_run_text(lock: LeaseSnapshot, last: LastRun | None) -> str:
    """Tell that there is none, and which was the last, where that is known."""
    held = (
        f" {printable(lock.holder)} holds the lock, and has begun nothing yet."
        if lock.holder
        else ""
    )
    outcomes = reason_counts(dict(sorted(last.outcomes.items()))) if last else ""
    ended = (
        f" The last was {printable(last.run)}, until {printable(last.at)}: {outcomes}."
        if last
        else ""
    )
    return f"No rollout is running or interrupted.{held}{ended}"


def run_text(
    unfinished: Unfinished, lock: LeaseSnapshot, down: Mapping[str, str], *, alive: bool | None
) -> str:
    """Show the run, whether a process works on it, and its nodes under way or failed; `down` as in `under_way`."""
    said = _states(unfinished, down)
    said |= {name: f"not understood: {printable(why)}" for name, why in unfinished.unclear.items()}
    title, *nodes = _lines(unfinished, lock, said, alive=alive)
    is_idle = alive is False and (unfinished.blocks or unfinished.is_only_taints)
    return joined("\n", title, _idle(unfinished) if is_idle else "", *nodes)


def _lines(
    unfinished: Unfinished, lock: LeaseSnapshot, said: Mapping[str, str], *, alive: bool | None
) -> Iterator[str]:
    """Which run, what the lock tells of its holder, and a line a node, or one for many of which the same is said."""
    yield capitalize(heading(unfinished, word_of(unfinished, alive=alive)))
    if lock.holder and lock.has_ended:
        yield (
            f"  {printable(lock.holder)} held the lock, and has ended: it was a process on this"
            " machine"
        )
    elif lock.holder and lock.age is not None:
        yield f"  {printable(lock.holder)} renewed the lock {elapsed(lock.age)} ago"
    for words, names in grouped((words, name) for name, words in said.items()).items():
        if len(names) > _FEW:
            yield f"  {counted(len(names), 'node')}, {shortened(names, most=_FEW)}: {words}"
        else:
            yield from (f"  {printable(name)}: {words}" for name in names)


def _idle(unfinished: Unfinished) -> str:
    """Tell that nobody works on it, and what can be done about it."""
    if unfinished.blocks:
        by_itself = (
            "the next pass of rollout operate goes on with it; "
            if unfinished.record.unattended
            else ""
        )
        return f"  no process is working on it: {by_itself}{ways_out(unfinished)}"
    return f"  {ways_out(unfinished)}"


class UnfinishedRun(TypedDict):
    """A rollout that is running, was interrupted, or has left nodes over."""

    run: str
    state: Literal["running", "interrupted", "ended"]
    operating: bool
    started_by: str
    started_at: str
    nodes: Mapping[str, Phase]
    failed: Sequence[str]
    done: Sequence[str]
    not_begun: Sequence[str]
    not_understood: Mapping[str, str]
    gone: Sequence[str]
    tainted: Sequence[str]
    problem: str


def run_document(unfinished: Unfinished | None, *, alive: bool) -> UnfinishedRun | None:
    """Return the run as one object; `alive` is whether its process renews the lock."""
    if unfinished is None:
        return None
    return {
        "run": unfinished.run,
        "state": "running" if alive else ("interrupted" if unfinished.blocks else "ended"),
        "operating": unfinished.record.unattended,
        "started_by": unfinished.record.started_by,
        "started_at": unfinished.record.started_at,
        "nodes": {
            begun.node.name: begun.phase for begun in (*unfinished.begun, *unfinished.failed)
        },
        "failed": [*(begun.node.name for begun in unfinished.failed), *unfinished.given_back],
        "done": unfinished.done,
        "not_begun": [node.name for node in unfinished.untouched],
        "not_understood": unfinished.unclear,
        "gone": unfinished.gone,
        "tainted": unfinished.tainted,
        "problem": unfinished.record.problem,
    }


class LeftNode(TypedDict):
    """A node that could not be returned."""

    node: str
    message: str


class AbortReport(TypedDict):
    """What an abort has undone."""

    run: str
    reverted: Sequence[str]
    untainted: Sequence[str]
    left: Sequence[LeftNode]


def abort_document(aborted: Aborted) -> AbortReport:
    """Return what came of an abort, as one object."""
    left = (*aborted.left_cordoned.items(), *aborted.left_tainted.items())
    return {
        "run": aborted.run,
        "reverted": aborted.reverted,
        "untainted": aborted.untainted,
        "left": [LeftNode(node=name, message=why) for name, why in left],
    }
