"""A rollout that another process carries out, as the events that this process would have told of it.

What the cluster shows from look to look (the record, the marks on Nodes, the Events about them) is compared with what
was told already. So whoever watches from elsewhere sees what whoever runs it sees, but for what stands in no object.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from rollout.errors import UsageError
from rollout.execution.events.blocked import BLOCKED, Hold, hold_told
from rollout.execution.events.phases import ENDS, FAILED, REASONS, failure_told
from rollout.gather.cluster.node_events import NodeEvent
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.node_marks import is_begun, last_result, misunderstanding
from rollout.model.plan import RolloutPlan
from rollout.model.progress import (
    NodeFinished,
    NodeResult,
    NodeStep,
    NotStarted,
    Outcome,
    Phase,
    PlanReady,
    PodBlocked,
    PodReleased,
    RunResult,
    StepEvent,
    WaveStarted,
)
from rollout.model.quantity import Duration
from rollout.planning.pools import pools_of

# An Event is written beside the work, so it may come after the marks that it explains.
_EVENT_DELAY = timedelta(seconds=5)
UNDONE = "given back by rollout abort"
_GONE, _WAITING = "it is no longer in the cluster", "its turn did not come"


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the cluster shows; `at` is its time, by the API server's clock."""

    nodes: Mapping[str, Node]
    events: Sequence[NodeEvent]
    at: datetime


@dataclass(slots=True)
class _Past:
    """What was told of a node: its phase, its end, its holds (by Event), and since when an end waits for its Event."""

    phase: Phase | None = None
    end: str = ""
    holds: dict[str, tuple[str, PodBlocked]] = field(default_factory=dict)
    postponed: datetime | None = None


class Account:
    """Tells of one run. `plan` is None where its record does not say."""

    def __init__(self, run: str, plan: RolloutPlan | None, tell: Callable[[StepEvent], None]) -> None:
        self.run = run
        self._plan = plan
        self._tell = tell
        self._waves: set[int] = set()
        self._past: dict[str, _Past] = {}
        self._results: dict[str, NodeResult] = {}

    def begin(self, at: datetime) -> None:
        """Tell of the plan, which was begun at that time."""
        if self._plan is not None:
            self._tell(PlanReady(at, self._plan))

    def look(self, look: Look, *, last: bool = False) -> None:
        """Tell what is new; at the `last` look nothing is put off."""
        events = self._events(look)
        for event in self._new_waves(look, events):
            self._tell(event)
        for name in self._names(look):
            for event in self._new_of(look.nodes[name], _Seen(events.get(name, {}), look.at, last)):
                self._tell(event)

    def result(self, look: Look) -> RunResult:
        """How it has ended, as far as it is seen."""
        undone = {name for name, end in self._results.items() if end.outcome is Outcome.ABORTED}
        finished = [end for end in self._results.values() if end.outcome not in (Outcome.ABORTED, Outcome.SKIPPED)]
        planned = [node.name for node in self._plan.nodes] if self._plan else []
        skipped = [
            NotStarted(end.node, end.message) for end in self._results.values() if end.outcome is Outcome.SKIPPED
        ]
        waiting = [name for name in planned if name not in self._results or name in undone]
        return RunResult(
            finished=tuple(finished),
            skipped=tuple(skipped),
            not_started=tuple(NotStarted(name, _absence(name, look.nodes, undone)) for name in waiting),
            excluded=self._plan.excluded if self._plan else (),
        )

    def _names(self, look: Look) -> Sequence[str]:
        """The planned nodes that are there, in their order, and any other that carries its marks."""
        planned = [node.name for node in self._plan.nodes] if self._plan else []
        marked = (name for name, node in look.nodes.items() if node.annotations.get(marks.RUN) == self.run)
        return [name for name in dict.fromkeys((*planned, *marked)) if name in look.nodes]

    def _events(self, look: Look) -> Mapping[str, Mapping[str, list[NodeEvent]]]:
        """Those of this run, by node and reason."""
        sorted_events: dict[str, dict[str, list[NodeEvent]]] = {}
        for event in look.events:
            if event.run == self.run:
                sorted_events.setdefault(event.node, {}).setdefault(event.reason, []).append(event)
        return sorted_events

    def _new_waves(self, look: Look, events: Mapping[str, Mapping[str, list[NodeEvent]]]) -> Iterator[StepEvent]:
        waves = self._plan.waves if self._plan else ()
        for wave in waves:
            names = [node.name for node in wave.nodes]
            if wave.index in self._waves or not any(self._is_touched(look.nodes.get(name)) for name in names):
                continue
            self._waves.add(wave.index)
            times = [event.at for name in names for event in _all(events.get(name, {})) if event.at]
            in_flight = wave.rolling.in_flight if wave.rolling else None
            at = min(times, default=look.at)
            yield WaveStarted(at, wave.index, len(waves), tuple(names), wave.because, in_flight)

    def _is_touched(self, node: Node | None) -> bool:
        """Whether the run has begun with it."""
        if node is None:
            return False
        return node.annotations.get(marks.RUN) == self.run or last_result(node).get("run") == self.run

    def _new_of(self, node: Node, seen: "_Seen") -> Iterator[StepEvent]:
        past = self._past.setdefault(node.name, _Past())
        phase = _phase(node, self.run)
        if phase in (None, Phase.FAILED):
            yield from self._new_end(node, past, seen, failed=phase is not None)
            return
        if phase is not past.phase:
            yield from _released(node.name, past, seen.at)
            past.phase = phase
            yield NodeStep(seen.since(REASONS.get(phase, "")), node.name, phase, "")
        if phase is Phase.DRAINING:
            yield from self._new_holds(node, past, seen)

    def _new_end(self, node: Node, past: _Past, seen: "_Seen", *, failed: bool) -> Iterator[StepEvent]:
        """A node that carries its marks no more, or as a failed one."""
        result = last_result(node)
        if result.get("run") != self.run or is_begun(node) is not failed:
            yield from self._new_skip(node, past, seen)
            return
        end = f"{result.get('outcome')} {result.get('at')}"
        if end == past.end:
            return
        outcome = _outcome(result)
        failure = seen.latest(FAILED)
        if outcome not in ENDS and not seen.is_last and not _explains(failure, result):
            past.postponed = past.postponed or seen.at
            if seen.at - past.postponed < _EVENT_DELAY:
                return
        past.end, past.phase, past.postponed = end, None, None
        yield from _released(node.name, past, seen.at)
        self._results[node.name] = ended = _result(node, outcome, result, failure, failed=failed)
        yield NodeFinished(seen.at, ended)

    def _new_skip(self, node: Node, past: _Past, seen: "_Seen") -> Iterator[StepEvent]:
        """A node that it did not touch in the end: nothing but the Event says so."""
        event = seen.latest(ENDS[Outcome.SKIPPED])
        if event is None or past.end:
            return
        past.end = event.message
        message = event.message.removeprefix("Not touched: ").removesuffix(f" (rollout {self.run})")
        self._results[node.name] = ended = NodeResult(node.name, Outcome.SKIPPED, Phase.PENDING, 0.0, message)
        yield NodeFinished(seen.at, ended)

    def _new_holds(self, node: Node, past: _Past, seen: "_Seen") -> Iterator[StepEvent]:
        for event in seen.all(BLOCKED):
            before = past.holds.get(event.uid)
            if before is not None and before[0] == event.message:
                continue
            hold = hold_told(event.message)
            if hold is None:
                yield from _released(node.name, past, seen.at, event.uid)
                continue
            since = before[1].since if before else event.at or seen.at
            blocked = _blocked(node.name, hold, since, self._seconds_left(node.name, seen), seen.at)
            past.holds[event.uid] = (event.message, blocked)
            yield blocked

    def _seconds_left(self, name: str, seen: "_Seen") -> float:
        """Until its drain is given up, reckoned from when that was told to have begun."""
        planned = next((node for node in self._plan.nodes if node.name == name), None) if self._plan else None
        if self._plan is None or planned is None:
            return 0.0
        timeout = pools_of(self._plan.policy).rules(planned.pool).drain.timeout
        return max(0.0, timeout - (seen.at - seen.since(REASONS[Phase.DRAINING])).total_seconds())


@dataclass(frozen=True, slots=True)
class _Seen:
    """A node's Events of the run, by reason, at a look."""

    events: Mapping[str, list[NodeEvent]]
    at: datetime
    is_last: bool

    def all(self, reason: str) -> Sequence[NodeEvent]:
        return self.events.get(reason, ())

    def latest(self, reason: str) -> NodeEvent | None:
        return max(
            self.all(reason), key=lambda event: event.at or datetime.min.replace(tzinfo=self.at.tzinfo), default=None
        )

    def since(self, reason: str) -> datetime:
        """When it was told; now, where it was not yet, or will be as clocks have it."""
        event = self.latest(reason)
        return min(event.at, self.at) if event is not None and event.at is not None else self.at


def _all(events: Mapping[str, list[NodeEvent]]) -> Iterable[NodeEvent]:
    return (event for alike in events.values() for event in alike)


def _phase(node: Node, run: str) -> Phase | None:
    """How far the run has come with it; None where it carries no marks of the run that are understood."""
    if node.annotations.get(marks.RUN) != run or misunderstanding(node):
        return None
    return Phase(node.annotations[marks.PHASE])


def _outcome(result: Mapping[str, str]) -> Outcome:
    word = result.get("outcome", "")
    return Outcome(word) if word in tuple(Outcome) else Outcome.FAILED


def _explains(event: NodeEvent | None, result: Mapping[str, str]) -> bool:
    """Whether it is of this failure, not of one before: both times are of the same clock, in whole seconds."""
    return event is not None and event.at is not None and f"{event.at:%Y-%m-%dT%H:%M:%SZ}" >= result.get("at", "")


def _result(
    node: Node, outcome: Outcome, result: Mapping[str, str], failure: NodeEvent | None, *, failed: bool
) -> NodeResult:
    phase, message = failure_told(failure.message) if failure and outcome not in ENDS else (Phase.DONE, "")
    return NodeResult(
        node.name,
        outcome,
        phase,
        _seconds(result.get("took", "")),
        message,
        version=result.get("version", ""),
        left_cordoned=failed and node.unschedulable,
    )


def _seconds(took: str) -> float:
    try:
        return float(Duration.parse(took))
    except UsageError:
        return 0.0


def _blocked(node: str, hold: Hold, since: datetime, seconds_left: float, at: datetime) -> PodBlocked:
    return PodBlocked(
        at=at,
        node=node,
        pod=hold.pod,
        budget=hold.budget,
        since=since,
        message=hold.message,
        seconds_left=seconds_left,
        needs=hold.needs,
        has=hold.has,
    )


def _released(node: str, past: _Past, at: datetime, uid: str = "") -> Iterator[StepEvent]:
    """The holds that are over: one, or all of the node."""
    for event_uid in [uid] if uid else list(past.holds):
        if event_uid in past.holds:
            _message, hold = past.holds.pop(event_uid)
            yield PodReleased(at, node, hold.pod, hold.budget, hold.since)


def _absence(name: str, nodes: Mapping[str, Node], undone: set[str]) -> str:
    if name in undone:
        return UNDONE
    return _WAITING if name in nodes else _GONE
