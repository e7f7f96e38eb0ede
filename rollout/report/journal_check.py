"""Verifies a journal against the transition table, and against safety rules on their own.

The journal of a killed process ends early, which is no violation.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

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
    entries,
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


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that the journal breaks at a line, counted from 1.

    `others` are further nodes involved. `most` is the number that the rule allows, or the wave.
    """

    line: int
    rule: Rule
    node: str = ""
    phase: Phase | None = None
    edge: Edge | None = None
    others: tuple[str, ...] = ()
    most: int | None = None


@dataclass(frozen=True, slots=True)
class CheckedJournal:
    """`most_in_flight` counts nodes. `limit` is of the last plan, None if unknown."""

    processes: int
    nodes: int
    moves: int
    most_in_flight: int
    limit: int | None
    violations: tuple[Violation, ...]


def check_journal(records: Iterable[tuple[int, Record]]) -> CheckedJournal:
    numbered = tuple(records)
    lines = entries(record for _, record in numbered)
    check = _Check()
    for (number, _), line in zip(numbered, lines, strict=True):
        if line is not None:
            check.add_line(number, line)
    return CheckedJournal(
        processes=check.process_count,
        nodes=len(check.moved_nodes),
        moves=check.move_count,
        most_in_flight=check.most_in_flight,
        limit=check.process.limit.most if check.process.limit else None,
        violations=tuple(check.violations),
    )


@dataclass(slots=True)
class _NodeState:
    """`passed` are the phases in this process.

    `is_start_pending`: the node was taken up before its cordon, which then is no second start.
    """

    phase: Phase = Phase.PENDING
    passed: set[Phase] = field(default_factory=set)
    is_drained: bool = False
    was_started: bool = False
    is_start_pending: bool = False
    outcome: Outcome | None = None


@dataclass(slots=True)
class _Process:
    """`selected` is the number of nodes that percentages refer to, None if unknown."""

    selected: int | None = None
    limit: AwayLimit | None = None
    most_failures: int | None = None
    nodes: dict[str, _NodeState] = field(default_factory=dict)
    in_flight: set[str] = field(default_factory=set)
    waves: dict[str, int] = field(default_factory=dict)
    failures_at_wave: dict[int, int] = field(default_factory=dict)

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

    def read_limits(self, plan: RolloutPlan | None) -> None:
        """Skip a percentage of an unknown number of nodes."""
        if plan is None:
            return
        policy = plan.policy
        selected = self.selected or 0
        if self._can_compute(policy.max_unavailable):
            self.limit = AwayLimit.of(policy, selected, requested=requested_nodes(plan), nodes=())
        if self._can_compute(policy.max_failures):
            self.most_failures = policy.failures_allowed(selected)

    def _can_compute(self, limit: Count) -> bool:
        return self.selected is not None or not limit.is_share


class _Check:
    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.process = _Process()
        self.process_count = 0
        self.move_count = 0
        self.moved_nodes = set[str]()
        self.most_in_flight = 0
        self._run = ""
        self._succeeded = set[str]()

    def add_line(self, number: int, line: AnyLine) -> None:
        match line:
            case JournalHeader():
                self._begin_process(line)
            case PlanLine():
                self.process.read_limits(read_plan(line.plan))
            case WaveStarted():
                self._start_wave(number, line)
            case NodeStep():
                self._step(number, line)
            case PodsEvicted():
                self._evict(number, line)
            case NodeFinished():
                self._finish(number, line)
            case SummaryLine():
                self._check_summary(number, line)
            case AbortedRecord():
                self._succeeded -= set(line.reverted)
            case _:
                return

    def _begin_process(self, line: JournalHeader) -> None:
        self.process_count += 1
        self.process = _Process(line.selected if isinstance(line.selected, int) else None)
        if line.run != self._run:
            self._run = line.run
            self._succeeded.clear()

    def _add(self, violation: Violation) -> None:
        self.violations.append(violation)

    def _start_wave(self, number: int, line: WaveStarted) -> None:
        process = self.process
        if process.in_flight:
            others = tuple(sorted(process.in_flight))
            self._add(Violation(number, Rule.WAVE_ORDER, others=others, most=line.index))
        process.waves.update(dict.fromkeys(line.nodes, line.index))
        process.failures_at_wave[line.index] = len(process.failed)

    def _step(self, number: int, line: NodeStep) -> None:
        edge = line.edge
        if not isinstance(edge, Edge):
            return
        node = self.process.node(line.node)
        self.move_count += 1
        self.moved_nodes.add(line.node)
        if not _is_in_table(node.phase, edge, line.phase):
            self._add(
                Violation(number, rule=Rule.TRANSITION, node=line.node, phase=node.phase, edge=edge)
            )
        if edge is Edge.CORDONED:
            self._check_start(number, line.node)
        is_taken_up = edge in TAKEN_UP
        # A node taken up as pending starts once, although its cordon follows.
        if is_taken_up or (edge is Edge.CORDONED and not node.is_start_pending):
            self._start(number, line.node)
        node.is_start_pending = is_taken_up and line.phase is Phase.PENDING
        self._check_move(number, line.node, edge)
        node.phase = line.phase
        node.passed.add(line.phase)

    def _start(self, number: int, name: str) -> None:
        process = self.process
        node = process.node(name)
        if node.was_started or name in self._succeeded:
            self._add(Violation(number, Rule.STARTED_ONCE, name))
        node.was_started = True
        node.passed.clear()
        process.in_flight.add(name)
        self.most_in_flight = max(self.most_in_flight, len(process.in_flight))

    def _check_start(self, number: int, name: str) -> None:
        """Check the limits for a new node. A node that is taken up is unavailable already."""
        process = self.process
        others = tuple(sorted(process.in_flight - {name}))
        if process.limit is not None and process.limit.why_full(name, others):
            most = process.limit.most
            self._add(Violation(number, Rule.LIMIT, name, others=others, most=most))
        wave = process.waves.get(name)
        if wave is None:
            self._add(Violation(number, Rule.PLANNED, name))
            return
        failures = process.failures_at_wave[wave]
        if process.most_failures is not None and failures >= process.most_failures:
            self._add(Violation(number, Rule.MAX_FAILURES, name, most=process.most_failures))

    def _check_move(self, number: int, name: str, edge: Edge) -> None:
        node = self.process.node(name)
        match edge:
            case Edge.EVICTED:
                node.is_drained = True
            case Edge.REFILLED | Edge.CORDONED | Edge.TAKEN_UP:
                node.is_drained = False
            case Edge.REBOOT_REQUESTED if not node.is_drained:
                self._add(
                    Violation(number, rule=Rule.DRAINED, node=name, phase=node.phase, edge=edge)
                )
            case Edge.PROVEN if not node.passed >= {Phase.BOOTED, Phase.READY}:
                self._add(
                    Violation(number, rule=Rule.PROVEN, node=name, phase=node.phase, edge=edge)
                )
            case _:
                return

    def _evict(self, number: int, line: PodsEvicted) -> None:
        phase = self.process.node(line.node).phase
        if phase is not Phase.DRAINING:
            self._add(Violation(number, Rule.EVICTION, line.node, phase))

    def _finish(self, number: int, line: NodeFinished) -> None:
        """Check that a node ends once, and succeeds if and only if it was proven."""
        process = self.process
        node = process.node(line.node)
        # A node may end again only if it was taken up in between.
        if node.outcome is not None and line.node not in process.in_flight:
            self._add(Violation(number, Rule.ENDED_ONCE, line.node, node.phase))
        edge = line.edge if isinstance(line.edge, Edge) else None
        is_proven = node.phase is Phase.DONE
        ends_proven = edge is Edge.PROVEN
        if not (line.succeeded == ends_proven == is_proven):
            self._add(
                Violation(number, rule=Rule.PROVEN, node=line.node, phase=node.phase, edge=edge)
            )
        elif edge in (Edge.RETURNED, Edge.FAILED):
            # These moves have no step of their own.
            self._check_last_move(number, line, edge)
        node.outcome = line.outcome
        process.in_flight.discard(line.node)
        if line.succeeded:
            self._succeeded.add(line.node)

    def _check_last_move(self, number: int, line: NodeFinished, edge: Edge) -> None:
        self.move_count += 1
        phase = self.process.node(line.node).phase
        target = TABLE[phase].get(edge)
        if target is None:
            self._add(
                Violation(number, rule=Rule.TRANSITION, node=line.node, phase=phase, edge=edge)
            )
        elif edge is Edge.RETURNED and not may_be_returned(line.outcome, phase):
            self._add(Violation(number, rule=Rule.PROVEN, node=line.node, phase=phase, edge=edge))

    def _check_summary(self, number: int, line: SummaryLine) -> None:
        process = self.process
        if process.in_flight:
            in_flight = tuple(sorted(process.in_flight))
            self._add(Violation(number, Rule.ENDED, others=in_flight))
        wrong = process.succeeded ^ set(line.succeeded)
        wrong |= process.failed ^ {failed.node for failed in line.failed}
        if wrong:
            self._add(Violation(number, Rule.SUMMARY, others=tuple(sorted(wrong))))


def _is_in_table(phase: Phase, edge: Edge, target: Phase) -> bool:
    # The phase in the node's annotation may be newer than the one in the journal.
    if edge in TAKEN_UP:
        return any(edges.get(edge) is target for edges in TABLE.values())
    return TABLE[phase].get(edge) is target


_SENTENCES: Mapping[Rule, str] = {
    Rule.TRANSITION: (
        "{node} moved from {phase} by {edge}, which the transition table does not allow"
    ),
    Rule.LIMIT: "{node} was cordoned while {others} were in flight: the limit is {most}",
    Rule.DRAINED: "{node} was not drained when its reboot was requested",
    Rule.PROVEN: "{node} ended in the phase {phase}, and its boot was not proven",
    Rule.STARTED_ONCE: "{node} was started twice",
    Rule.ENDED_ONCE: "{node} ended twice",
    Rule.PLANNED: "{node} was cordoned before a wave with it had started",
    Rule.WAVE_ORDER: "wave {most} started while {others} of an earlier wave were in flight",
    Rule.MAX_FAILURES: "{node} was cordoned in a wave that started after {most} failures",
    Rule.EVICTION: "pods of {node} were evicted in the phase {phase}",
    Rule.ENDED: "the summary was written while {others} were in flight",
    Rule.SUMMARY: "the summary does not agree with the ends of {others}",
}


def violation_text(violation: Violation) -> str:
    return _SENTENCES[violation.rule].format(
        node=printable(violation.node),
        phase=violation.phase,
        edge=violation.edge,
        others=shortened(violation.others),
        most=violation.most,
    )
