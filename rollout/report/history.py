"""What journals tell: each folded, record by record, into the history of a run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import assert_never

from rollout.model.progress import (
    NodeStep,
    Notice,
    Outcome,
    Phase,
    PodBlocked,
    PodReleased,
    VersionHeld,
    WaveSettling,
    WaveStarted,
)
from rollout.model.text import elapsed, shortened, timestamp
from rollout.report.lines import (
    AbortedRecord,
    AnyLine,
    DryRunLine,
    NodeFinishedLine,
    PlanLine,
    Record,
    RunRecord,
    SummaryLine,
    ToldPlan,
    VersionLine,
    entries,
)
from rollout.report.summary import findings_text


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened: when, to which node (empty: to the run), and what.

    `further` are lines that belong to it; `detail` tells what only a close reader wants, `repeats` what is told again
    and again for as long as it lasts.
    """

    at: str
    node: str
    what: str
    further: tuple[str, ...] = ()
    detail: bool = False
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class RunHistory:
    """A run as its journal has it. `ended` is when its last command came to its own end, empty where it did not.

    `aborted` is when it was undone, empty where it was not. `state` is the one word for all that: `running`,
    `interrupted`, `ended` or `aborted`; empty where nobody has looked whether a process writes the journal.
    `policy`, `version` and `cluster` are those of the command that began it, `cluster_name` is of the first that gives
    one; `outcomes` are by node, the last one each;
    `planned` counts the nodes of all its plans; `heard_at` is the time of the last record. As the last summary has
    them: `not_started` and `not_done` are by node, with the reason; `left_out` counts nodes by reason. `evictions`, and
    those of pods that came while its commands ran, are summed up over the summaries; `pods_to_move` had to go by the
    first plan.
    """

    run: str = ""
    started_at: str = ""
    by: str = ""
    version: str = ""
    cluster: str = ""
    cluster_name: str = ""
    policy: Record | None = None
    commands: tuple[str, ...] = ()
    outcomes: tuple[tuple[str, str], ...] = ()
    ended: str = ""
    heard_at: str = ""
    planned: frozenset[str] = frozenset()
    waves: int = 0
    not_started: Mapping[str, str] = field(default_factory=dict)
    not_done: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    pods_to_move: int = 0
    evictions: int = 0
    moved_twice: int = 0
    moments: tuple[Moment, ...] = ()
    aborted: str = ""
    state: str = ""


def with_state(history: RunHistory, *, is_being_written: bool) -> RunHistory:
    """The history with its state, where it is known whether a process is at work on it."""
    if is_being_written:
        return replace(history, state="running")
    return replace(history, state="aborted" if history.aborted else "ended" if history.ended else "interrupted")


def replay(records: Iterable[Record]) -> RunHistory:
    """The history that these records tell; those that are not understood are passed over."""
    lines = tuple(line for line in entries(records) if line is not None)
    moments = tuple(moment for line in lines if (moment := _moment(line)) is not None)
    return replace(reduce(_after, lines, RunHistory()), moments=moments)


def _after(history: RunHistory, line: AnyLine) -> RunHistory:
    history = replace(history, heard_at=timestamp(line.at))
    match line:
        case RunRecord():
            return _begun(history, line)
        case PlanLine():
            return _planned(history, line.document)
        case NodeFinishedLine():
            outcomes = {**dict(history.outcomes), line.node: line.outcome.value}
            return replace(history, outcomes=tuple(outcomes.items()))
        case SummaryLine():
            return _ended(history, line)
        case AbortedRecord():
            return replace(history, aborted=timestamp(line.at), commands=(*history.commands, "abort"))
        case _:
            return history


def _ended(history: RunHistory, line: SummaryLine) -> RunHistory:
    return replace(
        history,
        ended=timestamp(line.at),
        not_started=_not_started(line),
        not_done=_not_done(line),
        left_out=line.left_out,
        evictions=history.evictions + line.evictions,
        moved_twice=history.moved_twice + line.moved_twice,
    )


def _begun(history: RunHistory, line: RunRecord) -> RunHistory:
    commands = (*history.commands, line.command)
    history = replace(history, cluster_name=history.cluster_name or line.cluster_name or "")
    if history.run:
        return replace(history, commands=commands, ended="", aborted="", not_started={}, not_done={}, left_out={})
    return replace(
        history,
        run=line.run,
        started_at=timestamp(line.at),
        by=line.by,
        version=line.version,
        cluster=str(line.cluster.get("server", "")),
        policy=line.policy,
        commands=commands,
    )


def _planned(history: RunHistory, plan: ToldPlan) -> RunHistory:
    names = frozenset(node.name for wave in plan.waves for node in wave.nodes)
    return replace(
        history,
        planned=history.planned | names,
        waves=history.waves or len(plan.waves),
        pods_to_move=history.pods_to_move or plan.summary.pods_to_move,
    )


def _not_done(line: SummaryLine) -> Mapping[str, str]:
    """By node, why it was not done; nothing in the journals of versions that did not tell."""
    return {node.node: f"{node.reason}, {node.message}" for node in line.not_done}


def _not_started(line: SummaryLine) -> Mapping[str, str]:
    """By node, why it was not begun; without those that are told of as not done."""
    not_done = {node.node for node in line.not_done}
    return {node: why for node, why in line.reasons.items() if node not in not_done}


def _moment(line: AnyLine) -> Moment | None:  # noqa: C901, PLR0911 - one return a type of line
    """What a line says in words; None where it is nothing to tell."""
    at = timestamp(line.at)
    match line:
        case RunRecord():
            return Moment(at, "", f"{line.command} by {line.by}")
        case WaveStarted():
            return Moment(at, "", f"wave {line.index} of {line.waves}: {', '.join(line.nodes)}")
        case WaveSettling():
            return Moment(at, "", f"wave {line.index} settles: {line.waiting_for}", repeats=True)
        case NodeStep():
            is_detail = bool(line.detail) or line.phase in (Phase.PENDING, Phase.DONE)
            return Moment(at, line.node, _joined(line.phase, line.detail), detail=is_detail)
        case PodBlocked():
            return Moment(at, line.node, f"{line.pod} is held back by {line.budget}", repeats=True)
        case PodReleased():
            return Moment(at, line.node, f"{line.pod} may go", repeats=True)
        case NodeFinishedLine():
            return _finished(at, line)
        case VersionHeld() | Notice():
            return Moment(at, "", line.message)
        case AbortedRecord():
            groups = ((line.reverted, "given back"), (line.left, "left as they are"))
            given_back = "; ".join(f"{shortened(nodes)} {word}" for nodes, word in groups if nodes)
            return Moment(at, "", _joined(f"aborted by {line.by}", given_back))
        case SummaryLine():
            return _end(at, line)
        case PlanLine() | VersionLine() | DryRunLine():
            return None
        case _:
            assert_never(line)


def _finished(at: str, line: NodeFinishedLine) -> Moment:
    now_on = f", now on {line.version}" if line.outcome is Outcome.SUCCEEDED else ""
    took = f" after {elapsed(line.seconds)}" if line.seconds else ""
    further = (*findings_text(line.findings), *((f"hint: {line.hint}",) if line.hint else ()))
    return Moment(at, line.node, _joined(f"{line.outcome}{took}{now_on}", line.message), further)


def _end(at: str, line: SummaryLine) -> Moment:
    groups = (
        (line.succeeded, "succeeded"),
        (line.failed, "failed"),
        (line.not_done, "not done"),
        (line.not_started, "not started"),
    )
    counts = ", ".join(f"{len(group)} {word}" for group, word in groups if group)
    not_done = (f"{node} was not done: {why}" for node, why in _not_done(line).items())
    left = (f"{node} was left: {why}" for node, why in _not_started(line).items())
    return Moment(at, "", _joined("the end", counts), (*not_done, *left))


def _joined(what: str, further: str) -> str:
    return f"{what}: {further}" if further else what
