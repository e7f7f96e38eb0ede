from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Literal, TypedDict

from rollout.execution.lease import LockSnapshot
from rollout.execution.node.transitions import BEFORE_REBOOT
from rollout.execution.record.unfinished import LastRun, MarkedNode, RunState, Unfinished, run_state
from rollout.execution.rollout.ledger import Aborted, Inheritance
from rollout.model.completion import AwaitedPod
from rollout.model.fleetlock import is_fleetlock_run
from rollout.model.progress import Outcome, Phase
from rollout.model.quantity import Duration
from rollout.model.text import (
    capitalize,
    counted,
    grouped,
    joined,
    listed,
    name_excerpt,
    printable,
    shell_word,
    shortened,
)
from rollout.model.timestamps import elapsed
from rollout.planning.eligibility.status import UnderWay
from rollout.report.sentences import reason_counts
from rollout.report.status import Way
from rollout.wording.words import rollout_name

_MOST_LEFT_NODES = 20
_MOST_NODE_LINES = 5
_OUTCOMES_SHOWN_AS_FAILED = frozenset(
    outcome.value
    for outcome in Outcome
    if outcome.is_failure and outcome is not Outcome.ROLLED_BACK
)
_WILL_STOP_PASSES = (
    "  unattended passes will not reboot any nodes until the next `rollout apply`"
    " or `rollout unpause --unattended`"
)
_HAS_STOPPED_PASSES = (
    "Unattended passes will not reboot any nodes"
    " until the next `rollout apply`, or until you run:\n"
    "    rollout unpause --unattended"
)


def unfinished_heading(unfinished: Unfinished, state: RunState = RunState.UNFINISHED) -> str:
    if unfinished.is_only_taints:
        if unfinished.tainted:
            leftovers = f"PreferNoSchedule taint on {_counted_names(unfinished.tainted)}"
        else:
            leftovers = f"conditions on {_counted_names(unfinished.conditioned)}"
        return f"a rollout has left its {leftovers}"
    run = printable(unfinished.run_id)
    if unfinished.is_aborted:
        names = _left_names(unfinished)
        verb = "is" if len(names) == 1 else "are"
        return f"{shortened(names)} {verb} still cordoned by the aborted rollout {run}"
    if is_of_fleetlock(unfinished):
        activity = "has left unfinished nodes"
        if unfinished.blocks_others:
            activity = "is draining and rebooting hosts"
        return f"the FleetLock server {activity}, run {run}: {_group_counts(unfinished)}"
    return _rollout_heading(unfinished, state)


def _rollout_heading(unfinished: Unfinished, state: RunState) -> str:
    record = unfinished.record
    name = rollout_name(unfinished.run_id)
    by = f"by {printable(record.started_by)}" if record.started_by else ""
    at = f"at {printable(record.started_at)}" if record.started_at else ""
    start = f", started {joined(' ', by, at)}," if by or at else ""
    has_ended = not unfinished.blocks_others and state is not RunState.RUNNING
    if has_ended:
        state_clause = "ended unfinished"
    elif state is RunState.INTERRUPTED:
        state_clause = f"was interrupted{_wave_clause(unfinished)}"
    else:
        state_clause = f"is {state}{_wave_clause(unfinished)}"
    return f"{name}{start} {state_clause}: {_group_counts(unfinished)}"


def _left_names(unfinished: Unfinished) -> Sequence[str]:
    return [printable(marked.node.name) for marked in unfinished.marked_nodes]


def ways_after_abort(unfinished: Unfinished) -> tuple[Way, Way]:
    """Return what to do if the nodes come back, and if they are gone."""
    return _ways_after_abort(_left_names(unfinished))


def _ways_after_abort(names: Sequence[str]) -> tuple[Way, Way]:
    is_one = len(names) == 1
    ready = Way(f"When {shortened(names)} {'is' if is_one else 'are'} Ready again", "rollout abort")
    nodes = " ".join(map(shell_word, names))
    gone = Way(
        f"If {'it is' if is_one else 'they are'} gone for good",
        f"kubectl delete node {nodes}",
        is_of_rollout=False,
    )
    return ready, gone


def _wave_clause(unfinished: Unfinished) -> str:
    wave_by_node = _wave_by_node(unfinished)
    waves_in_flight = [
        wave_by_node[entry.node.name]
        for entry in unfinished.in_flight
        if entry.node.name in wave_by_node
    ]
    if not waves_in_flight:
        return ""
    return f" in wave {max(waves_in_flight)} of {_wave_count(unfinished)}"


def _wave_by_node(unfinished: Unfinished) -> Mapping[str, int]:
    waves = unfinished.record.plan.waves if unfinished.record.plan else ()
    return {node.name: wave.index for wave in waves for node in wave.nodes}


def _wave_count(unfinished: Unfinished) -> int:
    return len(unfinished.record.plan.waves) if unfinished.record.plan else 0


def nodes_under_way(
    unfinished: Unfinished, wait_reasons: Mapping[str, str]
) -> Mapping[str, UnderWay]:
    """A node that was rolled back is left out, because its version shows that."""
    phases: dict[str, Phase] = {}
    for name, outcome in unfinished.failed_in_service.items():
        if outcome in _OUTCOMES_SHOWN_AS_FAILED:
            phases[name] = Phase.FAILED
    # Marks on a node are newer than the record.
    for entry in unfinished.marked_nodes:
        phases[entry.node.name] = entry.phase
    # Nodes left over from an ended rollout do not wait for it.
    if unfinished.blocks_others:
        for node in unfinished.untouched_nodes:
            phases[node.name] = Phase.PENDING
    wave_by_node = _wave_by_node(unfinished)
    progress = {}
    for name, phase in phases.items():
        wave = wave_by_node.get(name, 0)
        wave_count = _wave_count(unfinished) if wave else 0
        wait_reason = wait_reasons.get(name, "")
        progress[name] = UnderWay(phase, wave=wave, waves=wave_count, wait=wait_reason)
    return progress


def commands_clause(unfinished: Unfinished) -> str:
    if unfinished.is_only_taints:
        pronoun = "it" if unfinished.tainted else "them"
        return f"`rollout abort` removes {pronoun}"
    if unfinished.is_aborted:
        return "; ".join(f"{way.lead}: `{way.command}`" for way in ways_after_abort(unfinished))
    if is_of_fleetlock(unfinished):
        status = "`rollout fleetlock status` shows it"
        return (
            f"{status}; if no FleetLock server runs any more,"
            " `rollout abort` returns the nodes to service"
        )
    if unfinished.record.problem:
        return "`rollout abort` returns the nodes in flight to service"
    if unfinished.only_failed_left:
        retry = "`rollout resume --retry-failed` tries the failed nodes again"
        return f"{retry}; `rollout abort` ends the rollout without them"
    return (
        "`rollout resume` continues it; `rollout abort` ends it and returns the unfinished nodes to"
        " service"
    )


def is_of_fleetlock(unfinished: Unfinished) -> bool:
    """A FleetLock server keeps no record."""
    return unfinished.record.is_missing and is_fleetlock_run(unfinished.run_id)


def _group_counts(unfinished: Unfinished) -> str:
    groups = {
        "in progress": unfinished.in_flight,
        "failed": [*unfinished.failed, *unfinished.failed_in_service],
        "done": unfinished.done,
        "not started": unfinished.untouched_nodes,
        "with unreadable annotations": unfinished.unclear,
        "no longer in the cluster": unfinished.gone,
    }
    counts: list[str] = []
    for label, nodes in groups.items():
        if nodes:
            number = str(len(nodes)) if counts else counted(len(nodes), "node")
            counts.append(f"{number} {label}")
    problem = "" if is_of_fleetlock(unfinished) else unfinished.record.problem
    return joined(
        " ",
        ", ".join(counts) or "nothing in progress",
        f"({printable(problem)})" if problem else "",
    )


def _counted_names(names: Sequence[str]) -> str:
    return f"{counted(len(names), 'node')}: {shortened(names)}"


def resume_preview(
    unfinished: Unfinished,
    lock: LockSnapshot,
    names_in_new_plan: Container[str],
    inherited: Inheritance,
    *,
    retry: bool,
) -> str:
    """Describe the nodes that the new plan does not show."""
    states = {
        marked.node.name: f"{marked.phase}, will continue from there"
        for marked in unfinished.in_flight
    }
    for result in inherited.stranded:
        states[result.node] = f"left as it is: {printable(result.message)}"
    failed = [marked.node.name for marked in unfinished.failed if marked.node.name not in states]
    failed += unfinished.failed_in_service
    lines = [_title(unfinished, alive=lock.alive), *_holder_and_node_lines(lock, states)]
    left_out = [name for name in failed if name not in names_in_new_plan]
    if left_out:
        fate = "failed, and retried only with --retry-failed"
        if retry:
            fate = "failed, and left out of this run"
        lines.append(f"  {fate}: {shortened(left_out)}")
    if inherited.failures:
        lines.append(f"  failures that count towards --max-failures so far: {inherited.failures}")
    return "\n".join(lines)


def abort_preview(
    unfinished: Unfinished | None, lock: LockSnapshot, *, ready_timeout: float
) -> str:
    """Without an unfinished rollout, only FleetLock slots are left."""
    if unfinished is None:
        return "FleetLock slots of nodes that have no rollout annotations will be released."
    states = {}
    for marked in unfinished.marked_nodes:
        states[marked.node.name] = _undo_text(marked, ready_timeout)
    for name, problem in unfinished.unclear.items():
        states[name] = f"left as it is: {printable(problem)}"
    lines = [_title(unfinished, alive=lock.alive), *_holder_and_node_lines(lock, states)]
    if unfinished.tainted:
        names = _counted_names(unfinished.tainted)
        lines.append(f"  rollout's PreferNoSchedule taint will be removed from {names}")
    if unfinished.conditioned:
        lines.append(
            f"  rollout's conditions will be removed from {_counted_names(unfinished.conditioned)}"
        )
    if not unfinished.record.is_missing:
        garbled = ", including the data that cannot be read" if unfinished.is_garbled else ""
        lines.append(f"  the record of the rollout will be deleted{garbled}")
    if not unfinished.is_only_taints:
        lines.append(_WILL_STOP_PASSES)
    return "\n".join(lines)


def _undo_text(marked: MarkedNode, ready_timeout: float) -> str:
    undo = "it will be uncordoned, and rollout's annotations will be removed from it"
    if marked.node.was_cordoned:
        undo = "rollout's annotations will be removed from it, and it will stay cordoned as before"
    if marked.phase not in BEFORE_REBOOT:
        longest = Duration(round(ready_timeout))
        undo = f"rollout waits up to {longest} for it to be Ready; then {undo}"
    return f"{marked.phase}; {undo}"


def abort_result(aborted: Aborted, abort_command: str) -> str:
    left_nodes = []
    for name, reason in aborted.left_cordoned.items():
        left_nodes.append(f"{printable(name)}: {printable(reason)}")
    lines = []
    if aborted.reverted:
        nodes = counted(len(aborted.reverted), "node")
        lines.append(f"{nodes} returned to service: {shortened(aborted.reverted)}")
    elif not left_nodes:
        lines.append(
            "No nodes had to be returned to service; what the rollout left behind was removed."
        )
    if aborted.untainted:
        untainted = _counted_names(aborted.untainted)
        lines.append(f"rollout's PreferNoSchedule taint was removed from {untainted}")
    if left_nodes:
        lines.append(f"Left unchanged: {listed(left_nodes, _MOST_LEFT_NODES)}")
    if aborted.stops_passes:
        lines.append(_HAS_STOPPED_PASSES)
    if left_nodes and aborted.stopped:
        lines.append(f"Next:\n    {abort_command}")
    elif left_nodes:
        names = [printable(name) for name in aborted.left_cordoned]
        ready, gone = _ways_after_abort(names)
        lines.append(f"{ready.lead}:\n    {abort_command}")
        lines.append(f"{gone.lead}:\n    {gone.command}")
    return "\n".join(lines)


def no_run_text(lock: LockSnapshot, last: LastRun | None) -> str:
    sentences = ["No rollout is running or interrupted."]
    if lock.holder:
        sentences.append(
            f"{name_excerpt(lock.holder)} holds the lock, but has not taken on any node yet."
        )
    if last:
        outcomes = reason_counts(dict(sorted(last.outcomes.items())))
        ended = f"{printable(last.run_id)}, ended at {printable(last.at)}"
        sentences.append(f"The last rollout, {ended}: {outcomes}.")
    return " ".join(sentences)


def run_text(
    unfinished: Unfinished,
    lock: LockSnapshot,
    wait_reasons: Mapping[str, str],
    *,
    alive: bool | None,
) -> str:
    """`alive` is None if unknown."""
    states = {}
    for marked in unfinished.marked_nodes:
        name = marked.node.name
        states[name] = joined(", ", marked.phase.value, wait_reasons.get(name, ""))
    for name, problem in unfinished.unclear.items():
        states[name] = f"unreadable annotations: {printable(problem)}"
    title = _title(unfinished, alive=alive)
    is_idle = alive is False
    needs_command = unfinished.blocks_others or unfinished.is_only_taints
    return joined(
        "\n",
        title,
        _idle_text(unfinished) if is_idle and needs_command else "",
        *_holder_and_node_lines(lock, states),
    )


def _title(unfinished: Unfinished, *, alive: bool | None) -> str:
    return capitalize(unfinished_heading(unfinished, run_state(unfinished, alive=alive)))


def _holder_and_node_lines(lock: LockSnapshot, state_by_node: Mapping[str, str]) -> Iterator[str]:
    holder = name_excerpt(lock.holder)
    if holder and lock.has_ended:
        yield f"  {holder}, which held the lock, was a process on this machine and has ended"
    elif holder and lock.age is not None:
        yield f"  {holder} renewed the lock {elapsed(lock.age)} ago"
    names_by_state = grouped((state, name) for name, state in state_by_node.items())
    for state, names in names_by_state.items():
        if len(names) > _MOST_NODE_LINES:
            nodes = f"{counted(len(names), 'node')}, {shortened(names, most=_MOST_NODE_LINES)}"
            yield f"  {nodes}: {state}"
        else:
            yield from (f"  {printable(name)}: {state}" for name in names)


def _idle_text(unfinished: Unfinished) -> str:
    if not unfinished.blocks_others:
        return f"  {commands_clause(unfinished)}"
    commands = commands_clause(unfinished)
    if unfinished.record.unattended:
        commands = f"the next pass of rollout operate continues it; {commands}"
    return f"  no process is working on it: {commands}"


class UnfinishedRun(TypedDict):
    """A rollout that is running, was interrupted, or has left unfinished nodes."""

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
    awaited: Mapping[str, Sequence[AwaitedPod]]


def run_document(
    unfinished: Unfinished | None, *, alive: bool, awaited: Mapping[str, Sequence[AwaitedPod]]
) -> UnfinishedRun | None:
    if unfinished is None:
        return None
    state: Literal["running", "interrupted", "ended"] = "ended"
    if alive:
        state = "running"
    elif unfinished.blocks_others:
        state = "interrupted"
    return {
        "run": unfinished.run_id,
        "state": state,
        "operating": unfinished.record.unattended,
        "started_by": unfinished.record.started_by,
        "started_at": unfinished.record.started_at,
        "nodes": {marked.node.name: marked.phase for marked in unfinished.marked_nodes},
        "failed": [
            *(marked.node.name for marked in unfinished.failed),
            *unfinished.failed_in_service,
        ],
        "done": unfinished.done,
        "not_begun": [node.name for node in unfinished.untouched_nodes],
        "not_understood": unfinished.unclear,
        "gone": unfinished.gone,
        "tainted": unfinished.tainted,
        "problem": unfinished.record.problem,
        "awaited": awaited,
    }


class LeftNode(TypedDict):
    """A node that could not be returned."""

    node: str
    message: str


class AbortReport(TypedDict):
    """What an abort has cleaned up."""

    run: str
    reverted: Sequence[str]
    untainted: Sequence[str]
    left: Sequence[LeftNode]


def abort_document(aborted: Aborted) -> AbortReport:
    left = (*aborted.left_cordoned.items(), *aborted.left_tainted.items())
    return {
        "run": aborted.run_id,
        "reverted": aborted.reverted,
        "untainted": aborted.untainted,
        "left": [LeftNode(node=name, message=reason) for name, reason in left],
    }
