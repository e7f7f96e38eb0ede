"""Runs that are over, as journals tell them: a row each, or one as a timeline.

Times that people read are those of their own clock.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import assert_never

from tabulate import tabulate

from rollout.model.progress import (
    Moves,
    NodeFinished,
    NodeStep,
    Notice,
    Phase,
    PodBlocked,
    PodReleased,
    VersionHeld,
    WaveSettling,
    WaveStarted,
)
from rollout.model.text import NOTHING, counted, elapsed, or_nothing, printable, shortened, timestamp
from rollout.report.columns import Column, table_text
from rollout.report.lines import (
    AbortedRecord,
    AnyLine,
    DryRunLine,
    PlanLine,
    Record,
    RunRecord,
    SummaryLine,
    ToldPlan,
    VersionLine,
    entries,
)
from rollout.report.rules import changed_rules
from rollout.report.run_view import RunView
from rollout.report.sentences import outcomes, what_happened
from rollout.report.summary import findings_text, moves_text, tallied


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


@dataclass(frozen=True, slots=True)
class HistoryReport:
    """The runs that are recorded."""

    format_version: str
    runs: tuple[RunHistory, ...]


def with_state(history: RunHistory, *, is_being_written: bool) -> RunHistory:
    """The history with its state, where it is known whether a process is at work on it."""
    if is_being_written:
        return replace(history, state="running")
    return replace(history, state="aborted" if history.aborted else "ended" if history.ended else "interrupted")


def replay(records: Iterable[Record]) -> RunHistory:
    """The history that these records tell; those that are not understood are passed over."""
    view, moments = RunView(), []
    for line in entries(records):
        view.take(line)
        if line is not None and (moment := _moment(line)):
            moments.append(moment)
    return _history(view, tuple(moments))


def _history(view: RunView, moments: tuple[Moment, ...]) -> RunHistory:
    first = view.records[0] if view.records else None
    plan = view.plans[0] if view.plans else ToldPlan()
    return RunHistory(
        run=first.run if first else "",
        started_at=timestamp(first.at) if first else "",
        by=first.by if first else "",
        version=first.version if first else "",
        cluster=view.server,
        cluster_name=view.cluster_name,
        policy=first.policy if first else None,
        commands=tuple(entry.command if isinstance(entry, RunRecord) else "abort" for entry in view.commands),
        outcomes=tuple((end.node, end.outcome.value) for end in view.ended),
        ended=timestamp(view.summary.at) if view.summary else "",
        heard_at=timestamp(view.heard_at) if view.heard_at else "",
        planned=frozenset(node.name for plan in view.plans for wave in plan.waves for node in wave.nodes),
        waves=len(plan.waves),
        not_started=view.not_started,
        not_done=view.not_done,
        left_out=view.left_out,
        pods_to_move=plan.summary.pods_to_move,
        evictions=view.evictions,
        moved_twice=view.moved_twice,
        moments=moments,
        aborted=timestamp(view.aborted.at) if view.aborted else "",
    )


def _moment(line: AnyLine) -> Moment | None:  # noqa: PLR0911 - one return a type of line
    """What a line says in words; None where it is nothing to tell."""
    at = timestamp(line.at)
    match line:
        case RunRecord():
            return Moment(at, "", f"{line.command} by {line.by}")
        case NodeStep():
            is_detail = bool(line.detail) or line.phase in (Phase.PENDING, Phase.DONE)
            return Moment(at, line.node, what_happened(line), detail=is_detail)
        case PodBlocked():
            return Moment(at, line.node, f"{line.pod} is held back by {line.budget}", repeats=True)
        case NodeFinished():
            hints = (f"hint: {line.hint}",) if line.hint else ()
            return Moment(at, line.node, what_happened(line), (*findings_text(line.findings), *hints))
        case WaveSettling() | PodReleased():
            node = line.node if isinstance(line, PodReleased) else ""
            return Moment(at, node, what_happened(line), repeats=True)
        case WaveStarted() | VersionHeld() | Notice():
            return Moment(at, "", what_happened(line))
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


def _end(at: str, line: SummaryLine) -> Moment:
    succeeded = str(len(line.succeeded)) if line.succeeded else ""
    counts = outcomes(succeeded, len(line.failed), len(line.not_done), len(line.not_started))
    not_done = (f"{node} was not done: {why}" for node, why in line.why_not_done.items())
    left = (f"{node} was left: {why}" for node, why in line.why_not_started.items())
    return Moment(at, "", _joined("the end", counts), (*not_done, *left))


def _joined(what: str, further: str) -> str:
    return f"{what}: {further}" if further else what


_COLUMNS = (
    Column("RUN"),
    Column("STARTED"),
    Column("TOOK", leaves=4),
    Column("BY", leaves=1),
    Column("COMMANDS", leaves=2, wraps=True),
    Column("NODES", leaves=6),
    Column("SUCCEEDED", leaves=5),
    Column("FAILED", leaves=7),
    Column("CLUSTER", leaves=3),
    Column("END", note=True),
)
_SUCCEEDED = "succeeded"


def history_text(histories: Sequence[RunHistory], *, width: int | None = None) -> str:
    """One row a run. `width` in columns, None for no limit."""
    if not histories:
        return "No run is recorded here."
    return table_text(_COLUMNS, [_row(history) for history in histories], width)


def _row(history: RunHistory) -> tuple[str, ...]:
    failed = _failed(history)
    return (
        printable(history.run),
        _written(history.started_at, "%Y-%m-%d %H:%M:%S"),
        _took(history),
        or_nothing(history.by),
        printable(", ".join(history.commands)),
        str(len(history.planned)) if history.planned else NOTHING,
        str(len(history.outcomes) - len(failed)),
        str(len(failed)),
        or_nothing(history.cluster_name or history.cluster.removeprefix("https://")),
        _ending(history),
    )


def _failed(history: RunHistory) -> tuple[str, ...]:
    return tuple(node for node, outcome in history.outcomes if outcome != _SUCCEEDED)


def _ending(history: RunHistory) -> str:
    if history.state in ("running", "interrupted"):
        return history.state
    if history.aborted:
        return "aborted"
    if not history.ended:
        return "running or interrupted"
    left = len(history.not_started) + len(history.not_done)
    return f"ended, {counted(left, 'node')} left" if left else "ended"


def _took(history: RunHistory) -> str:
    begun, ended = _time(history.started_at), _time(history.heard_at)
    return elapsed((ended - begun).total_seconds()) if begun and ended else NOTHING


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _written(text: str, form: str) -> str:
    at = _time(text)
    return format(at.astimezone(), form) if at else or_nothing(text)


def timeline_text(history: RunHistory, *, details: bool = False) -> str:
    """One run: what it was, then a line a moment; with `details` every word of it."""
    head = tabulate(_head(history), tablefmt="plain", disable_numparse=True)
    moments = history.moments if details else tuple(_once(history.moments))
    rows = tabulate(list(_rows(moments)), tablefmt="plain", disable_numparse=True)
    cluster = named_cluster(history.cluster_name, or_nothing(history.cluster))
    return f"Run {printable(history.run)} on {cluster}\n{head}\n\n{rows}"


def named_cluster(name: str, server: str) -> str:
    """A cluster by its name, where the operator gave one, and its address."""
    return f"{printable(name)} ({server})" if name else server


def _head(history: RunHistory) -> list[tuple[str, str]]:
    program = f", rollout {printable(history.version)}" if history.version else ""
    begun = _written(history.started_at, "%a %Y-%m-%d %H:%M:%S %Z")
    rows = [
        ("  begun", f"{begun} by {or_nothing(history.by)}{program}"),
        ("  rules", changed_rules(history.policy)),
        ("  nodes", _nodes(history)),
    ]
    moves = moves_text(Moves(history.pods_to_move, history.evictions, history.moved_twice))
    rows += [("  pods", moves)] if moves else []
    return [*rows, ("  end", f"{_ending(history)}, after {_took(history)}")]


def _nodes(history: RunHistory) -> str:
    failed = _failed(history)
    parts = [f"{len(history.planned)} planned in {counted(history.waves, 'wave')}"]
    parts += [f"{len(history.outcomes) - len(failed)} succeeded"]
    parts += [f"{len(failed)} failed ({shortened(failed)})"] if failed else []
    groups = (("not done", tuple(history.not_done)), ("not started", tuple(history.not_started)))
    parts += [f"{len(group)} {word} ({shortened(group)})" for word, group in groups if group]
    return ", ".join(parts) + (f"; left out: {tallied(history.left_out)}" if history.left_out else "")


def _once(moments: Iterable[Moment]) -> Iterator[Moment]:
    """What a reader wants first: no details, and nothing of a node that was told of it already."""
    seen: set[tuple[str, str]] = set()
    for moment in moments:
        key = (moment.node, moment.what)
        if moment.detail or (moment.repeats and key in seen):
            continue
        seen.add(key)
        yield moment


def _rows(moments: Iterable[Moment]) -> Iterator[tuple[str, str, str]]:
    """Times of the day; where a day begins, its date; what belongs to a moment stands below it."""
    day = ""
    for moment in moments:
        at = _time(moment.at)
        today = f"{at.astimezone():%a %Y-%m-%d}" if at else day
        if today != day and day:
            yield (today, "", "")
        day = today
        yield (_written(moment.at, "%H:%M:%S"), printable(moment.node), printable(moment.what))
        yield from (("", "", f"  {printable(line)}") for line in moment.further)
