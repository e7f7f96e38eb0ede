"""Run the nodes of one wave, in parallel or rolling, a thread per node, within the limit."""

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

from rollout.errors import ApiError
from rollout.execution.base.deadline import Deadline, StopRequest
from rollout.execution.gates import GateAnswer
from rollout.execution.record.record import Health
from rollout.execution.rollout.ledger import Ledger
from rollout.execution.rollout.settle import Before, Settler
from rollout.model.finding import ApiUnavailable, FailureLimit, Finding, LeaseLost, Unsettled
from rollout.model.plan import PlannedNode, Wave
from rollout.model.progress import NodeResult
from rollout.model.text import shortened
from rollout.planning.eligibility.away import AwayLimit
from rollout.planning.layout.rolling import RollingQueue
from rollout.ports import Clock
from rollout.threads import in_background
from rollout.wording import text

_LOOK_AGAIN = 2.0
_LOOK_AGAIN_AT_HEALTH = 1.0
_PAUSE = 1.0
_NAMED = 5


@dataclass(slots=True)
class _SettlingNode:
    """A node that has ended, but from which the cluster has not settled.

    `soaks`: once settled, it soaks and has to settle again.
    """

    deadline: Deadline
    again: Deadline
    soaks: bool
    healthy_checks: int = 0
    missing: str = ""


@dataclass
class WaveProgress:
    """How far a wave is, and which of its nodes may start next. Used by one thread.

    In a rolling part, a node stays in flight until the cluster has settled from it. `keep` stores
    the health before these nodes. `why`: why no other node may start.
    """

    wave: Wave
    settler: Settler
    ledger: Ledger
    keep: Callable[[Health], None]
    why: Finding | None = None
    _before: dict[str, Before] = field(default_factory=dict)
    _ended: dict[str, _SettlingNode] = field(default_factory=dict)

    @property
    def unsettled(self) -> frozenset[str]:
        return frozenset(self._ended)

    def candidates(
        self, waiting: Sequence[PlannedNode], in_flight: Collection[str]
    ) -> Iterator[PlannedNode]:
        if self.wave.rolling is None:
            return iter(waiting)
        nodes = {node.name: node for node in waiting}
        order = [node.name for node in self.wave.nodes]
        queue = RollingQueue(self.wave.rolling, order, nodes, in_flight)
        return (nodes[name] for name in queue.candidates())

    def measure_before(self, nodes: Sequence[PlannedNode]) -> None:
        if self.wave.rolling is None:
            return
        self._before.update(self.settler.measure([node.name for node in nodes], self._before))
        self.keep(Health.of_all(before.health for before in self._before.values()))

    def note_end(self, result: NodeResult) -> None:
        # Only in a rolling part is health measured before each node.
        if result.node in self._before:
            self._ended[result.node] = _SettlingNode(
                deadline=self._patience(),
                again=self._pause(0),
                soaks=result.succeeded and bool(self.settler.policy.gates.soak),
            )

    def check_settling(self, running: frozenset[str]) -> Finding | None:
        due = {name: ended for name, ended in self._ended.items() if ended.again.expired}
        if not due:
            return self.why
        snapshot = self.settler.read_readiness()
        expected_away = running | self.ledger.left_cordoned
        in_flight = {name: before for name, before in self._before.items() if name in running}
        for name, ended in due.items():
            missing = snapshot.missing(self._before[name], expected_away, in_flight)
            self._judge(name, ended, missing)
        return self.why

    def wait_until_settled(self, stop: StopRequest) -> Finding | None:
        while self._ended and not (self.check_settling(frozenset()) or stop.is_due):
            if self._ended:
                self.settler.cluster.clock.wait(stop, _PAUSE)
        return self.why

    def _judge(self, name: str, ended: _SettlingNode, missing: str) -> None:
        ended.again = self._pause(_PAUSE)
        ended.healthy_checks = 0 if missing else ended.healthy_checks + 1
        is_over = ended.deadline.expired
        has_settled = ended.healthy_checks >= self.settler.policy.gates.health_checks
        if has_settled or (is_over and not missing):
            self._free_or_soak(name, ended)
        elif is_over:
            timeout = self.settler.policy.settle_timeout
            self.why = self.why or Unsettled(timeout, missing, node=name)
            self._free(name)
        elif missing and missing != ended.missing:
            ended.missing = missing
            self.settler.report.settling(self.wave.index, f"after {name}: {missing}")

    def _free_or_soak(self, name: str, ended: _SettlingNode) -> None:
        if not ended.soaks:
            self._free(name)
            return
        soak = self.settler.policy.gates.soak
        self.settler.report.notice(f"{name} is back; soaking for {soak}")
        self._ended[name] = _SettlingNode(
            deadline=self._patience(soak), again=self._pause(soak), soaks=False
        )

    def _free(self, name: str) -> None:
        del self._ended[name], self._before[name]

    def _patience(self, later: float = 0.0) -> Deadline:
        return self.settler.cluster.deadline(later + self.settler.policy.settle_timeout)

    def _pause(self, seconds: float) -> Deadline:
        return self.settler.cluster.deadline(seconds)


@dataclass
class NodeThreads:
    """Runs nodes, a thread per node. Its exit waits for running nodes.

    It does not wait after a KeyboardInterrupt: a host may hang, and its node stops at the lock.
    """

    run_node: Callable[[PlannedNode], NodeResult]
    notice: Callable[[str], None]
    _running: dict[Future[NodeResult], str] = field(default_factory=dict)

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(self._running.values())

    def start(self, node: PlannedNode) -> None:
        self._running[in_background(lambda: self.run_node(node), f"node-{node.name}")] = node.name

    def wait_for_results(self, seconds: float | None) -> Sequence[NodeResult]:
        """Return the nodes that have ended, after waiting at most `seconds` for the first."""
        done, _ = wait(self._running, timeout=seconds, return_when=FIRST_COMPLETED)
        for future in done:
            del self._running[future]
        return [future.result() for future in done]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, Exception) and self._running:
            nodes = shortened(sorted(self.nodes), _NAMED)
            self.notice(
                f"internal error: no more nodes are started, those in flight are finished: {nodes}"
            )
        if error is None or isinstance(error, Exception):
            wait(self._running)


@dataclass(frozen=True, slots=True)
class StopRule:
    """When a rollout starts no other node, or does not even continue those in flight before."""

    stop: StopRequest
    ledger: Ledger
    failures_allowed: int

    def why_none_continues(self) -> Finding | None:
        if self.ledger.is_fenced:
            return LeaseLost()
        return self.stop.reason if self.stop.is_due else None

    def why_none_starts(self) -> Finding | None:
        why = self.why_none_continues()
        if why:
            return why
        if self.ledger.failures >= self.failures_allowed:
            return FailureLimit(self.ledger.failures, self.failures_allowed)
        return None


@dataclass(frozen=True, slots=True)
class GivenUp:
    nodes: Sequence[PlannedNode]
    why: Finding


@dataclass(frozen=True, slots=True)
class Decision:
    """Which waiting nodes start now, and which never will."""

    begin: Sequence[PlannedNode] = ()
    give_up: Sequence[GivenUp] = ()

    @property
    def waits(self) -> bool:
        return not (self.begin or self.give_up)

    def still_waiting(self, nodes: Sequence[PlannedNode]) -> list[PlannedNode]:
        gone = {node.name for node in self.begin}
        for given_up in self.give_up:
            gone.update(node.name for node in given_up.nodes)
        return [node for node in nodes if node.name not in gone]


_WAIT = Decision()


@dataclass(slots=True)
class _WaitingNodes:
    """The nodes of a wave that are not started yet. Used by one thread.

    `taken_up`: an earlier process started them. `patience`: how long to wait for room.
    """

    nodes: list[PlannedNode]
    taken_up: frozenset[str]
    patience: Deadline | None = None


@dataclass(frozen=True, slots=True)
class WaveRunner:
    """Runs waves one after another into one ledger.

    Nodes of `taken_up` use up the limit already and continue in any case. A node that is refused
    right before its cordon waits again.
    """

    run_node: Callable[[PlannedNode], NodeResult]
    unavailable: Callable[[], frozenset[str]]
    clock: Clock
    rule: StopRule
    settle_timeout: float
    away_limit: AwayLimit
    ledger: Ledger
    notice: Callable[[str], None]
    ask_gates: Callable[[PlannedNode], GateAnswer]
    taken_up: frozenset[str] = frozenset()

    def run(self, progress: WaveProgress) -> None:
        waiting = _WaitingNodes(list(progress.wave.nodes), self.taken_up)
        with NodeThreads(self.run_node, self.notice) as running:
            while waiting.nodes or running.nodes:
                decision = self._decide(waiting, running.nodes, progress)
                for node in decision.begin:
                    running.start(node)
                for given_up in decision.give_up:
                    self.ledger.give_up(given_up.nodes, given_up.why)
                waiting.nodes = decision.still_waiting(waiting.nodes)
                pause = _LOOK_AGAIN_AT_HEALTH if progress.unsettled else _LOOK_AGAIN
                if running.nodes:
                    results = running.wait_for_results(pause if waiting.nodes else None)
                    self._enter_results(results, waiting, progress)
                elif decision.waits:
                    self.clock.wait(self.rule.stop, pause)

    def _decide(
        self, waiting: _WaitingNodes, running: frozenset[str], progress: WaveProgress
    ) -> Decision:
        decision = self._decide_now(waiting, running, progress)
        if decision.begin or running or progress.unsettled:
            waiting.patience = None
            return decision
        return self._decide_without_room(waiting) if decision.waits else decision

    def _decide_now(
        self, waiting: _WaitingNodes, running: frozenset[str], progress: WaveProgress
    ) -> Decision:
        if not waiting.nodes:
            return _WAIT
        taken_up = [node for node in waiting.nodes if node.name in waiting.taken_up]
        if taken_up and not self.rule.why_none_continues():
            return Decision(begin=taken_up)
        why: Finding | None
        try:
            why = self.rule.why_none_starts() or progress.check_settling(running)
        except ApiError as error:
            why = ApiUnavailable(error.message)
        if why:
            return Decision(give_up=[GivenUp(waiting.nodes, why)])
        return self._decide_within_limit(waiting.nodes, running | progress.unsettled, progress)

    def _decide_within_limit(
        self, waiting: Sequence[PlannedNode], in_flight: frozenset[str], progress: WaveProgress
    ) -> Decision:
        left = [node for node in waiting if node.name not in in_flight]
        # If no node has room even with all others available, do not ask the API server.
        if self._first_with_room(progress.candidates(left, in_flight), away=frozenset()) is None:
            return _WAIT
        begin: list[PlannedNode] = []
        give_up: list[GivenUp] = []
        checked = set[str]()
        try:
            # These use up the limit, and so does each node that starts now.
            away = in_flight | self.unavailable()
            while True:
                node = self._first_with_room(progress.candidates(left, in_flight), away, checked)
                if node is None:
                    break
                checked.add(node.name)
                answer = self.ask_gates(node)
                if answer.finding is None:
                    begin.append(node)
                    left.remove(node)
                    in_flight |= {node.name}
                elif answer.is_final:
                    give_up.append(GivenUp([node], answer.finding))
                    left.remove(node)
                # If a gate holds every node, check no more nodes than the limit has room for.
                if answer.finding is None or answer.is_general:
                    away |= {node.name}
            if begin:
                progress.measure_before(begin)
        except ApiError as error:
            others = Decision(give_up=give_up).still_waiting(waiting)
            return Decision(give_up=[*give_up, GivenUp(others, ApiUnavailable(error.message))])
        return Decision(begin, give_up)

    def _first_with_room(
        self,
        candidates: Iterator[PlannedNode],
        away: frozenset[str],
        checked: Collection[str] = (),
    ) -> PlannedNode | None:
        for node in candidates:
            if node.name not in checked and not self.away_limit.why_full(node.name, away):
                return node
        return None

    def _decide_without_room(self, waiting: _WaitingNodes) -> Decision:
        if waiting.patience is None:
            self._report_full(waiting.nodes)
            waiting.patience = Deadline(self.clock, self.settle_timeout)
        if not waiting.patience.expired:
            return _WAIT
        full = self.away_limit.waiting_by_limit(waiting.nodes, self.unavailable())
        return Decision(give_up=[GivenUp(nodes, why) for why, nodes in full.items()])

    def _report_full(self, waiting: Sequence[PlannedNode]) -> None:
        with suppress(ApiError):
            for why in self.away_limit.waiting_by_limit(waiting, self.unavailable()):
                self.notice(f"waiting for nodes to be back: {text(why)}")

    def _enter_results(
        self, results: Sequence[NodeResult], waiting: _WaitingNodes, progress: WaveProgress
    ) -> None:
        for result in results:
            if not result.is_refused:
                self.ledger.add(result)
            progress.note_end(result)
        refused = {result.node for result in results if result.is_refused}
        # A refused node has lost its marks, and starts like the others.
        waiting.taken_up -= refused
        waiting.nodes += [node for node in progress.wave.nodes if node.name in refused]
