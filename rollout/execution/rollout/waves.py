"""Runs a wave's nodes in parallel or rolling, within the limit."""

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

from msgspec import Struct

from rollout.errors import ApiError
from rollout.execution.base.deadline import Deadline, GracefulStop
from rollout.execution.gates import GateAnswer
from rollout.execution.record.record import Health
from rollout.execution.rollout.health_monitor import HealthMonitor, NodeBaseline
from rollout.execution.rollout.ledger import Ledger
from rollout.model.finding import ApiUnavailable, FailureLimit, Finding, Unsettled
from rollout.model.plan import PlannedNode, Wave
from rollout.model.progress import NodeResult
from rollout.model.text import shortened
from rollout.planning.eligibility.away import AwayLimit
from rollout.planning.layout.rolling import RollingQueue
from rollout.ports import Clock
from rollout.threads import in_background
from rollout.wording import text

_PAUSE = 2.0
_PAUSE_WITH_ENDED_NODES = 1.0
_CHECK_INTERVAL = 1.0
_NAMED = 5


@dataclass(slots=True)
class _EndedNode:
    """A node after which the cluster has not settled yet."""

    deadline: Deadline
    next_check: Deadline
    # Soaks once the cluster has settled, which then has to settle again.
    soaks: bool
    # In a row.
    healthy_checks: int = 0
    reported_missing: str = ""


@dataclass
class WaveState:
    """How far a wave is, and which of its nodes may start next.

    In a rolling part, an ended node keeps its place until the cluster is as healthy as in the
    baseline, which is measured before the node starts.
    """

    wave: Wave
    health_monitor: HealthMonitor
    ledger: Ledger
    store_health: Callable[[Health], None]
    why_none_follows: Finding | None = None
    # The health before each node in flight, in a rolling part.
    _baselines: dict[str, NodeBaseline] = field(default_factory=dict)
    _ended: dict[str, _EndedNode] = field(default_factory=dict)

    @property
    def ended_nodes(self) -> frozenset[str]:
        return frozenset(self._ended)

    def candidates(
        self, waiting: Sequence[PlannedNode], in_flight: Collection[str]
    ) -> Iterator[PlannedNode]:
        if self.wave.rolling is None:
            yield from waiting
            return
        waiting_by_name = {node.name: node for node in waiting}
        order = [node.name for node in self.wave.nodes]
        queue = RollingQueue(self.wave.rolling, order, waiting_by_name, in_flight)
        for name in queue.candidates():
            yield waiting_by_name[name]

    def measure_baselines(self, nodes: Sequence[PlannedNode]) -> None:
        if self.wave.rolling is None:
            return
        names = [node.name for node in nodes]
        self._baselines.update(self.health_monitor.measure(names, self._baselines))
        self.store_health(Health.of_all(node.health for node in self._baselines.values()))

    def note_end(self, result: NodeResult) -> None:
        must_settle = result.node in self._baselines
        if must_settle:
            self._ended[result.node] = _EndedNode(
                deadline=self._deadline_in(self.health_monitor.policy.settle_timeout),
                next_check=self._deadline_in(0),
                soaks=result.succeeded and bool(self.health_monitor.policy.gates.soak),
            )

    def check_and_free_ended_nodes(self, running: frozenset[str]) -> Finding | None:
        """Return why no other node may start, or None."""
        due = {name: ended for name, ended in self._ended.items() if ended.next_check.expired}
        if not due:
            return self.why_none_follows
        snapshot = self.health_monitor.read_readiness()
        expected_away = running | self.ledger.left_cordoned
        running_baselines = {
            name: self._baselines[name] for name in running & self._baselines.keys()
        }
        for name, ended in due.items():
            missing = snapshot.find_missing(self._baselines[name], expected_away, running_baselines)
            self._note_check(name, ended, missing)
        return self.why_none_follows

    def wait_until_settled(self, stop: GracefulStop) -> Finding | None:
        while self._ended:
            why_none_follows = self.check_and_free_ended_nodes(running=frozenset())
            are_all_free = not self._ended
            if why_none_follows or are_all_free or stop.is_due:
                break
            self.health_monitor.cluster.clock.wait(stop, _CHECK_INTERVAL)
        return self.why_none_follows

    def _note_check(self, name: str, ended: _EndedNode, missing: str) -> None:
        """`missing`: what is worse than before the node, or empty."""
        ended.next_check = self._deadline_in(_CHECK_INTERVAL)
        ended.healthy_checks = 0 if missing else ended.healthy_checks + 1
        needed_checks = self.health_monitor.policy.gates.health_checks
        is_last_check = ended.deadline.expired
        if is_last_check:
            # After the timeout, one healthy check is enough.
            needed_checks = 1
        if ended.healthy_checks >= needed_checks:
            self._free_or_soak(name, ended)
        elif is_last_check:
            timeout = self.health_monitor.policy.settle_timeout
            unsettled = Unsettled(timeout, missing, node=name)
            self.why_none_follows = self.why_none_follows or unsettled
            self._free_place(name)
        elif missing and missing != ended.reported_missing:
            ended.reported_missing = missing
            self.health_monitor.report.settling(self.wave.index, f"{missing} (after {name})")

    def _free_or_soak(self, name: str, ended: _EndedNode) -> None:
        if not ended.soaks:
            self._free_place(name)
            return
        policy = self.health_monitor.policy
        soak = policy.gates.soak
        self.health_monitor.report.notice(f"{name} is back; soaking for {soak}")
        self._ended[name] = _EndedNode(
            deadline=self._deadline_in(soak + policy.settle_timeout),
            next_check=self._deadline_in(soak),
            soaks=False,
        )

    def _free_place(self, name: str) -> None:
        del self._ended[name], self._baselines[name]

    def _deadline_in(self, seconds: float) -> Deadline:
        return self.health_monitor.cluster.deadline(seconds)


@dataclass
class NodeThreads:
    run_and_report: Callable[[PlannedNode], NodeResult]
    notice: Callable[[str], None]
    _name_by_future: dict[Future[NodeResult], str] = field(default_factory=dict)

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(self._name_by_future.values())

    def start(self, node: PlannedNode) -> None:
        future = in_background(lambda: self.run_and_report(node), f"node-{node.name}")
        self._name_by_future[future] = node.name

    def wait_for_results(self, seconds: float | None) -> Sequence[NodeResult]:
        done, _ = wait(self._name_by_future, timeout=seconds, return_when=FIRST_COMPLETED)
        for future in done:
            del self._name_by_future[future]
        return [future.result() for future in done]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        is_defect = isinstance(error, Exception)
        if is_defect and self._name_by_future:
            nodes = shortened(sorted(self.nodes), _NAMED)
            outcome = "rollout takes on no more nodes and finishes those in flight"
            self.notice(f"internal error: {outcome}: {nodes}")
        # After a KeyboardInterrupt, a host may hang. Its thread does no harm, because
        # `check_may_act` lets none act once the lock is released.
        is_interrupted = error is not None and not is_defect
        if not is_interrupted:
            wait(self._name_by_future)


class StopRule(Struct, frozen=True):
    stop: GracefulStop
    ledger: Ledger
    failure_limit: int

    def why_none_continues(self) -> Finding | None:
        if self.ledger.is_fenced:
            return self.ledger.why_fenced
        return self.stop.reason if self.stop.is_due else None

    def why_none_starts(self) -> Finding | None:
        why_none_continues = self.why_none_continues()
        if why_none_continues:
            return why_none_continues
        if self.ledger.failures >= self.failure_limit:
            return FailureLimit(self.ledger.failures, self.failure_limit)
        return None


class Dropped(Struct, frozen=True):
    nodes: Sequence[PlannedNode]
    why: Finding


class Room(Struct, frozen=True):
    limit: AwayLimit
    away: frozenset[str]


class Decision(Struct, frozen=True):
    begin: Sequence[PlannedNode] = ()
    drop: Sequence[Dropped] = ()
    # Whether the limit had room for a node, even if a gate held it.
    had_room: bool = False

    @property
    def is_to_wait(self) -> bool:
        return not (self.begin or self.drop)

    def still_waiting(self, nodes: Sequence[PlannedNode]) -> list[PlannedNode]:
        decided = {node.name for node in self.begin}
        for dropped in self.drop:
            decided.update(node.name for node in dropped.nodes)
        return [node for node in nodes if node.name not in decided]


_WAIT = Decision()


@dataclass(slots=True)
class _WaitingNodes:
    nodes: list[PlannedNode]
    # An earlier process started them.
    taken_up: frozenset[str]
    # None unless only the limit holds nodes, and none is in flight.
    room_deadline: Deadline | None = None


@dataclass(slots=True)
class _CandidateRound:
    """Candidates that have to wait are not asked about twice."""

    state: WaveState
    limit: AwayLimit
    # Nodes that use up the limit, including those that start.
    away: frozenset[str]
    # Includes ended nodes that keep their places.
    in_flight: frozenset[str]
    undecided: list[PlannedNode]
    begin: list[PlannedNode] = field(default_factory=list)
    drop: list[Dropped] = field(default_factory=list)
    asked_about: set[str] = field(default_factory=set)

    def next_with_room(self) -> PlannedNode | None:
        for node in self.state.candidates(self.undecided, self.in_flight):
            if node.name in self.asked_about:
                continue
            has_room = self.limit.why_full(node.name, self.away) is None
            if has_room:
                return node
        return None

    def note_answer(self, node: PlannedNode, answer: GateAnswer) -> None:
        self.asked_about.add(node.name)
        if answer.finding is None:
            self.begin.append(node)
            self.undecided.remove(node)
            self.in_flight |= {node.name}
        elif answer.is_final:
            self.drop.append(Dropped([node], answer.finding))
            self.undecided.remove(node)
        # A general answer holds all nodes: ask about no more nodes than have room.
        uses_up_room = answer.finding is None or answer.is_general
        if uses_up_room:
            self.away |= {node.name}

    def drop_rest(self, nodes: Sequence[PlannedNode], why: Finding) -> Decision:
        dropped_before = Decision(drop=self.drop)
        rest = Dropped(dropped_before.still_waiting(nodes), why)
        return Decision(drop=[*self.drop, rest])


class WaveRunner(Struct, frozen=True):
    """Runs waves one after another into one ledger.

    The first rule that applies decides which nodes start:

    1. Nodes that an earlier process started use up the limit already, and continue, unless a stop
       is due or the lock is lost.
    2. If no other may start (a stop, failures, a cluster that does not settle, an unavailable API
       server), all waiting nodes are dropped.
    3. The gates are asked about each candidate for which the limit has room: it starts, waits or is
       dropped.
    4. If the limit has had room for no node, and none has been in flight, for --settle-timeout, the
       nodes are dropped.

    A node that is refused right before its cordon waits again.
    """

    # `Rollout._run_and_report`, in run.py.
    run_and_report: Callable[[PlannedNode], NodeResult]
    read_room: Callable[[], Room]
    clock: Clock
    stop_rule: StopRule
    settle_timeout: float
    ledger: Ledger
    notice: Callable[[str], None]
    ask_gates: Callable[[PlannedNode], GateAnswer]
    taken_up: frozenset[str] = frozenset()

    def run(self, state: WaveState) -> None:
        waiting = _WaitingNodes(list(state.wave.nodes), self.taken_up)
        with NodeThreads(self.run_and_report, self.notice) as running:
            while waiting.nodes or running.nodes:
                decision = self._decide(waiting, running.nodes, state)
                for node in decision.begin:
                    running.start(node)
                for dropped in decision.drop:
                    self.ledger.add_not_started(dropped.nodes, dropped.why)
                waiting.nodes = decision.still_waiting(waiting.nodes)
                pause = _PAUSE_WITH_ENDED_NODES if state.ended_nodes else _PAUSE
                if running.nodes:
                    # If no node waits, there is nothing to decide until one ends.
                    longest_wait = pause if waiting.nodes else None
                    results = running.wait_for_results(longest_wait)
                    self._note_results(results, waiting, state)
                    if any(result.is_refused for result in results):
                        # The reason may last, so do not start the node again at once.
                        self.clock.wait(self.stop_rule.stop, pause)
                elif decision.is_to_wait:
                    self.clock.wait(self.stop_rule.stop, pause)

    def _decide(
        self, waiting: _WaitingNodes, running: frozenset[str], state: WaveState
    ) -> Decision:
        """Apply rules 1 to 4."""
        decision = self._start_or_drop(waiting, running, state)
        is_any_in_flight = bool(running or state.ended_nodes)
        is_without_room = decision.is_to_wait and not (decision.had_room or is_any_in_flight)
        if is_without_room:
            return self._wait_for_room(waiting)
        # The timeout of rule 4 starts anew.
        waiting.room_deadline = None
        return decision

    def _start_or_drop(
        self, waiting: _WaitingNodes, running: frozenset[str], state: WaveState
    ) -> Decision:
        """Apply rules 1 to 3."""
        if not waiting.nodes:
            return _WAIT
        taken_up = [node for node in waiting.nodes if node.name in waiting.taken_up]
        if taken_up and not self.stop_rule.why_none_continues():
            return Decision(begin=taken_up)
        why_none_starts: Finding | None = self.stop_rule.why_none_starts()
        if why_none_starts is None:
            try:
                why_none_starts = state.check_and_free_ended_nodes(running)
            except ApiError as error:
                why_none_starts = ApiUnavailable(error.message)
        if why_none_starts:
            return Decision(drop=[Dropped(waiting.nodes, why_none_starts)])
        in_flight = running | state.ended_nodes
        return self._ask_about_candidates(waiting.nodes, in_flight, state)

    def _ask_about_candidates(
        self, waiting: Sequence[PlannedNode], in_flight: frozenset[str], state: WaveState
    ) -> Decision:
        """Apply rule 3. `in_flight` includes ended nodes that keep their places."""
        undecided = [node for node in waiting if node.name not in in_flight]
        first_candidate = next(state.candidates(undecided, in_flight), None)
        if first_candidate is None:
            return _WAIT
        try:
            room = self.read_room()
        except ApiError as error:
            return Decision(drop=[Dropped(waiting, ApiUnavailable(error.message))])
        away = in_flight | room.away
        questions = _CandidateRound(
            state, room.limit, away=away, in_flight=in_flight, undecided=undecided
        )
        try:
            node = questions.next_with_room()
            while node is not None:
                questions.note_answer(node, self.ask_gates(node))
                node = questions.next_with_room()
            if questions.begin:
                state.measure_baselines(questions.begin)
        except ApiError as error:
            return questions.drop_rest(waiting, ApiUnavailable(error.message))
        had_room = bool(questions.asked_about)
        return Decision(questions.begin, questions.drop, had_room)

    def _wait_for_room(self, waiting: _WaitingNodes) -> Decision:
        """Apply rule 4: drop only nodes that a limit keeps back."""
        if waiting.room_deadline is None:
            self._report_limits(waiting.nodes)
            waiting.room_deadline = Deadline(self.clock, self.settle_timeout)
        if not waiting.room_deadline.expired:
            return _WAIT
        room = self.read_room()
        nodes_by_limit = room.limit.waiting_by_limit(waiting.nodes, room.away)
        return Decision(
            drop=[Dropped(nodes, full_limit) for full_limit, nodes in nodes_by_limit.items()]
        )

    def _report_limits(self, waiting: Sequence[PlannedNode]) -> None:
        with suppress(ApiError):
            room = self.read_room()
            nodes_by_limit = room.limit.waiting_by_limit(waiting, room.away)
            for full_limit in nodes_by_limit:
                self.notice(f"waiting for nodes to be back: {text(full_limit)}")

    def _note_results(
        self, results: Sequence[NodeResult], waiting: _WaitingNodes, state: WaveState
    ) -> None:
        refused = set[str]()
        for result in results:
            if result.is_refused:
                refused.add(result.node)
            else:
                self.ledger.add(result)
            state.note_end(result)
        # Without its marks, a refused node starts like a new one.
        waiting.taken_up -= refused
        waiting.nodes += [node for node in state.wave.nodes if node.name in refused]
