"""Verifies a journal by the transition table and separate safety rules.

The journal of a killed process ends early, which is no violation.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from msgspec import Struct

from rollout.execution.node.failures import may_be_returned
from rollout.execution.node.transitions import TABLE, TAKEN_UP
from rollout.model.plan import RolloutPlan
from rollout.model.progress import (
    Edge,
    NodeFinished,
    NodeStep,
    Outcome,
    Phase,
    PodsEvicted,
    WaveStarted,
)
from rollout.model.quantity import Count
from rollout.model.text import printable, shortened
from rollout.planning.eligibility.away import AwayLimit
from rollout.planning.eligibility.candidates import requested_nodes
from rollout.planning.plan.document import read_plan
from rollout.report.lines import (
    AbortedRecord,
    AnyLine,
    JournalHeader,
    PlanLine,
    Record,
    SummaryLine,
    parse_records,
)


class Rule(StrEnum):
    TRANSITION = "transition"
    LIMIT = "limit"
    DRAINED = "drained"
    PROVEN = "proven"
    STARTED_ONCE = "started-once"
    ENDED_ONCE = "ended-once"
    PLANNED = "planned"
    WAVE_ORDER = "wave-order"
    MAX_FAILURES = "max-failures"
    EVICTION = "eviction"
    ENDED = "ended"
    SUMMARY = "summary"


class Violation(Struct, frozen=True):
    line: int
    rule: Rule
    node: str = ""
    phase: Phase | None = None
    edge: Edge | None = None
    other_nodes: tuple[str, ...] = ()
    limit: int | None = None
    wave: int | None = None


class CheckedJournal(Struct, frozen=True):
    processes: int
    nodes: int
    moves: int
    most_in_flight: int
    # --max-unavailable of the last plan; None if unknown.
    limit: int | None
    violations: tuple[Violation, ...]


def check_journal(records: Iterable[tuple[int, Record]]) -> CheckedJournal:
    """Check records, each with the number of its line."""
    numbered = tuple(records)
    lines = parse_records(record for _, record in numbered)
    checker = _JournalChecker()
    for (number, _), line in zip(numbered, lines, strict=True):
        if line is not None:
            checker.add_line(number, line)
    last_limit = checker.process.limit
    return CheckedJournal(
        processes=checker.process_count,
        nodes=len(checker.moved_nodes),
        moves=checker.move_count,
        most_in_flight=checker.most_in_flight,
        limit=last_limit.most if last_limit else None,
        violations=tuple(checker.violations),
    )


@dataclass(slots=True)
class _NodeState:
    phase: Phase = Phase.PENDING
    entered_phases: set[Phase] = field(default_factory=set)
    is_drained: bool = False
    was_started: bool = False
    # Its cordon then is no second start.
    was_taken_up_uncordoned: bool = False
    outcome: Outcome | None = None


@dataclass(slots=True)
class _Process:
    """Limits are None if unknown."""

    # What percentages refer to; None if unknown.
    selected_count: int | None = None
    limit: AwayLimit | None = None
    most_failures: int | None = None
    nodes: dict[str, _NodeState] = field(default_factory=dict)
    in_flight: set[str] = field(default_factory=set)
    wave_by_node: dict[str, int] = field(default_factory=dict)
    failures_before_wave: dict[int, int] = field(default_factory=dict)

    def node(self, name: str) -> _NodeState:
        return self.nodes.setdefault(name, _NodeState())

    @property
    def succeeded(self) -> set[str]:
        outcomes = {name: node.outcome for name, node in self.nodes.items()}
        return {name for name, outcome in outcomes.items() if outcome is Outcome.SUCCEEDED}

    @property
    def failed(self) -> set[str]:
        outcomes = {name: node.outcome for name, node in self.nodes.items()}
        return {name for name, outcome in outcomes.items() if outcome and outcome.is_failure}

    def set_limits(self, plan: RolloutPlan | None) -> None:
        if plan is None:
            return
        policy = plan.policy
        # Numbers do not depend on this count.
        selected_count = self.selected_count or 0
        if self._is_computable(policy.max_unavailable):
            self.limit = AwayLimit.of(policy, selected_count, requested_nodes(plan), nodes=())
        if self._is_computable(policy.max_failures):
            self.most_failures = policy.failure_limit(selected_count)

    def _is_computable(self, limit: Count) -> bool:
        return self.selected_count is not None or not limit.is_share


# After these, the node may have pods to evict again.
_EDGES_BEFORE_DRAIN = (Edge.REFILLED, Edge.CORDONED, Edge.TAKEN_UP)


class _JournalChecker:
    """Follows a journal line by line, and collects the violations.

    A step with an edge moves a node to another phase. With an edge in `TAKEN_UP`, a process
    continues a node that an earlier one has begun. `PROVEN` is a verified reboot.
    """

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.process = _Process()
        self.process_count = 0
        self.move_count = 0
        self.moved_nodes = set[str]()
        self.most_in_flight = 0
        self._run = ""
        # In any process of the run, unless an abort reverted them.
        self._succeeded = set[str]()

    def add_line(self, number: int, line: AnyLine) -> None:
        match line:
            case JournalHeader():
                self._begin_process(line)
            case PlanLine():
                self.process.set_limits(read_plan(line.plan))
            case WaveStarted():
                self._start_wave(number, line)
            case NodeStep():
                self._move_node(number, line)
            case PodsEvicted():
                self._check_evictions(number, line)
            case NodeFinished():
                self._finish_node(number, line)
            case SummaryLine():
                self._check_summary(number, line)
            case AbortedRecord():
                self._succeeded -= set(line.reverted)
            case _:
                return

    def _begin_process(self, line: JournalHeader) -> None:
        self.process_count += 1
        self.process = _Process(line.selected if isinstance(line.selected, int) else None)
        is_other_run = line.run != self._run
        if is_other_run:
            self._run = line.run
            self._succeeded.clear()

    def _report(self, violation: Violation) -> None:
        self.violations.append(violation)

    def _start_wave(self, number: int, line: WaveStarted) -> None:
        process = self.process
        if process.in_flight:
            in_flight = tuple(sorted(process.in_flight))
            self._report(Violation(number, Rule.WAVE_ORDER, other_nodes=in_flight, wave=line.index))
        process.wave_by_node.update(dict.fromkeys(line.nodes, line.index))
        process.failures_before_wave[line.index] = len(process.failed)

    def _move_node(self, number: int, line: NodeStep) -> None:
        edge = line.edge
        # A step without an edge stays in its phase.
        if not isinstance(edge, Edge):
            return
        node = self.process.node(line.node)
        self.move_count += 1
        self.moved_nodes.add(line.node)
        if not _is_in_table(node.phase, edge, line.phase):
            self._report(
                Violation(number, rule=Rule.TRANSITION, node=line.node, phase=node.phase, edge=edge)
            )
        if edge is Edge.CORDONED:
            self._check_start(number, line.node)
        is_taken_up = edge in TAKEN_UP
        # A node that was taken up before its cordon is already started.
        is_first_cordon = edge is Edge.CORDONED and not node.was_taken_up_uncordoned
        if is_taken_up or is_first_cordon:
            self._start_node(number, line.node)
        node.was_taken_up_uncordoned = is_taken_up and line.phase is Phase.PENDING
        self._check_reboot(number, line.node, edge)
        if edge is Edge.EVICTED:
            node.is_drained = True
        elif edge in _EDGES_BEFORE_DRAIN:
            node.is_drained = False
        node.phase = line.phase
        node.entered_phases.add(line.phase)

    def _start_node(self, number: int, name: str) -> None:
        """A node may be started once a process, until it succeeds."""
        process = self.process
        node = process.node(name)
        if node.was_started or name in self._succeeded:
            self._report(Violation(number, Rule.STARTED_ONCE, name))
        node.was_started = True
        node.entered_phases.clear()
        process.in_flight.add(name)
        self.most_in_flight = max(self.most_in_flight, len(process.in_flight))

    def _check_start(self, number: int, name: str) -> None:
        process = self.process
        full = process.limit.why_full(name, process.in_flight) if process.limit else None
        if full:
            self._report(
                Violation(number, Rule.LIMIT, name, other_nodes=full.nodes, limit=full.limit)
            )
        wave = process.wave_by_node.get(name)
        if wave is None:
            self._report(Violation(number, Rule.PLANNED, name))
            return
        # Nodes of one wave may all fail.
        failures = process.failures_before_wave[wave]
        if process.most_failures is not None and failures >= process.most_failures:
            self._report(Violation(number, Rule.MAX_FAILURES, name, limit=process.most_failures))

    def _check_reboot(self, number: int, name: str, edge: Edge) -> None:
        """A reboot follows the drain, and is proven after boot and Ready."""
        node = self.process.node(name)
        if edge is Edge.REBOOT_REQUESTED and not node.is_drained:
            self._report(
                Violation(number, rule=Rule.DRAINED, node=name, phase=node.phase, edge=edge)
            )
        has_booted = {Phase.BOOTED, Phase.READY}.issubset(node.entered_phases)
        if edge is Edge.PROVEN and not has_booted:
            self._report(
                Violation(number, rule=Rule.PROVEN, node=name, phase=node.phase, edge=edge)
            )

    def _check_evictions(self, number: int, line: PodsEvicted) -> None:
        phase = self.process.node(line.node).phase
        if phase is not Phase.DRAINING:
            self._report(Violation(number, Rule.EVICTION, line.node, phase))

    def _finish_node(self, number: int, line: NodeFinished) -> None:
        """A node ends once, and succeeds if and only if it was proven."""
        process = self.process
        node = process.node(line.node)
        # A node may end again if it was taken up in between.
        if node.outcome is not None and line.node not in process.in_flight:
            self._report(Violation(number, Rule.ENDED_ONCE, line.node, node.phase))
        edge = line.edge if isinstance(line.edge, Edge) else None
        signs_of_success = (line.succeeded, edge is Edge.PROVEN, node.phase is Phase.DONE)
        if any(signs_of_success) and not all(signs_of_success):
            self._report(
                Violation(number, rule=Rule.PROVEN, node=line.node, phase=node.phase, edge=edge)
            )
        elif edge in (Edge.RETURNED, Edge.FAILED):
            # These moves have no step of their own.
            self.move_count += 1
            self._check_last_move(number, line, edge)
        node.outcome = line.outcome
        process.in_flight.discard(line.node)
        if line.succeeded:
            self._succeeded.add(line.node)

    def _check_last_move(self, number: int, line: NodeFinished, edge: Edge) -> None:
        phase = self.process.node(line.node).phase
        if edge not in TABLE[phase]:
            self._report(
                Violation(number, rule=Rule.TRANSITION, node=line.node, phase=phase, edge=edge)
            )
        elif edge is Edge.RETURNED and not may_be_returned(line.outcome, phase):
            self._report(
                Violation(number, rule=Rule.PROVEN, node=line.node, phase=phase, edge=edge)
            )

    def _check_summary(self, number: int, line: SummaryLine) -> None:
        process = self.process
        if process.in_flight:
            in_flight = tuple(sorted(process.in_flight))
            self._report(Violation(number, Rule.ENDED, other_nodes=in_flight))
        # Only the events, or only the summary, has these nodes.
        succeeded_in_one = process.succeeded ^ set(line.succeeded)
        failed_in_one = process.failed ^ {failed.node for failed in line.failed}
        differing = succeeded_in_one | failed_in_one
        if differing:
            self._report(Violation(number, Rule.SUMMARY, other_nodes=tuple(sorted(differing))))


def _is_in_table(phase: Phase, edge: Edge, target: Phase) -> bool:
    # The journal may lack the phase of the node's annotation.
    if edge in TAKEN_UP:
        return any(edges.get(edge) is target for edges in TABLE.values())
    return TABLE[phase].get(edge) is target


_SENTENCES: Mapping[Rule, str] = {
    Rule.TRANSITION: (
        "{node} moved from {phase} by {edge}, which the transition table does not allow"
    ),
    Rule.LIMIT: "{node} was cordoned with {others} in flight: the limit is {limit}",
    Rule.DRAINED: "{node} was not drained when its reboot was requested",
    Rule.PROVEN: "{node} ended in the phase {phase}, and its reboot was not verified",
    Rule.STARTED_ONCE: "{node} was started twice",
    Rule.ENDED_ONCE: "{node} ended twice",
    Rule.PLANNED: "{node} was cordoned before its wave had started",
    Rule.WAVE_ORDER: "wave {wave} started with {others} of an earlier wave in flight",
    Rule.MAX_FAILURES: "{node} was cordoned in a wave that started after {limit} failures",
    Rule.EVICTION: "pods of {node} were evicted in the phase {phase}",
    Rule.ENDED: "the summary was written with {others} in flight",
    Rule.SUMMARY: "the summary does not agree with the outcomes of {others}",
}


def violation_text(violation: Violation) -> str:
    return _SENTENCES[violation.rule].format(
        node=printable(violation.node),
        phase=violation.phase,
        edge=violation.edge,
        others=shortened(violation.other_nodes),
        limit=violation.limit,
        wave=violation.wave,
    )
