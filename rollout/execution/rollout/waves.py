"""One wave: its nodes, side by side or following one another, none begun after a reason to stop.

Each node under way has a thread of its own. Never are more away than the limit allows.
"""

from collections.abc import Callable, Collection, Container, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

from rollout.errors import ApiError
from rollout.execution.base.deadline import Deadline, StopRequest
from rollout.execution.gates import Hold
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
    """A node that has ended: by when it has to have settled, how often in a row it had, and what it was seen to lack.

    `soaks`: once it has settled, it soaks and has to settle again; `again` is when it is looked at
    next.
    """

    deadline: Deadline
    again: Deadline
    soaks: bool
    good: int = 0
    missing: str = ""


@dataclass
class WaveAdmission:
    """Who of a wave may begin beside whom, and when the place of a node that has ended is free. Asked by one thread.

    Side by side any may begin, and the wave settles as a whole. Rolling on, a node that has ended
    keeps its place until the cluster has settled from it; then the next begins. `keep` is told what
    was well before those in flight. Reading the cluster may raise `ApiError`.
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
        """Nodes that have ended, and that the cluster has not settled from."""
        return frozenset(self._ended)

    def candidates(
        self, waiting: Sequence[PlannedNode], in_flight: Collection[str]
    ) -> Iterator[PlannedNode]:
        """Those of the waiting that may begin beside those in flight: where they roll on, in the plan's order."""
        if self.wave.rolling is None:
            return iter(waiting)
        nodes, order = (
            {node.name: node for node in waiting},
            [node.name for node in self.wave.nodes],
        )
        return (
            nodes[name]
            for name in RollingQueue(self.wave.rolling, order, nodes, in_flight).candidates()
        )

    def begin(self, nodes: Sequence[PlannedNode]) -> None:
        """Measure what is well before these begin: what others in flight have taken is not held against them."""
        if self.wave.rolling is None:
            return
        self._before.update(self.settler.measured([node.name for node in nodes], self._before))
        self.keep(Health.of_all(before.health for before in self._before.values()))

    def end(self, result: NodeResult) -> None:
        """Its place stays taken until the cluster has settled from it."""
        if result.node in self._before:
            succeeded = result.succeeded
            soak = self.settler.policy.gates.soak
            self._ended[result.node] = _SettlingNode(
                self._patience(), self._pause(0), soaks=succeeded and bool(soak)
            )

    def look(self, running: frozenset[str]) -> Finding | None:
        """Free the places of those that have settled; why no further node may begin, once one has not in its time."""
        due = {name: ended for name, ended in self._ended.items() if ended.again.expired}
        if not due:
            return self.why
        look = self.settler.look()
        expected = running | self.ledger.away
        others = {name: before for name, before in self._before.items() if name in running}
        for name, ended in due.items():
            self._judge(name, ended, look.missing(self._before[name], expected, others))
        return self.why

    def settle(self, stop: StopRequest) -> Finding | None:
        """Wait until nothing is left to settle; why no further wave may begin, None where one may."""
        while self._ended and not (self.look(frozenset()) or stop.requested):
            if self._ended:
                self.settler.cluster.clock.wait(stop, _PAUSE)
        return self.why

    def _judge(self, name: str, ended: _SettlingNode, missing: str) -> None:
        """Judge by what it lacks whether its place is free."""
        ended.again = self._pause(_PAUSE)
        ended.good = 0 if missing else ended.good + 1
        if ended.good >= self.settler.policy.gates.health_checks or (
            ended.deadline.expired and not missing
        ):
            self._settled(name, ended)
        elif ended.deadline.expired:
            patience = self.settler.policy.settle_timeout
            self.why = self.why or Unsettled(patience, missing, node=name)
            self._free(name)
        elif missing and missing != ended.missing:
            ended.missing = missing
            self.settler.report.settling(self.wave.index, f"after {name}: {missing}")

    def _settled(self, name: str, ended: _SettlingNode) -> None:
        """Its place is free, once it has soaked and settled again where that is asked for."""
        if not ended.soaks:
            self._free(name)
            return
        soak = self.settler.policy.gates.soak
        self.settler.report.notice(f"{name} is back; soaking for {soak}")
        again = self._pause(soak)
        self._ended[name] = _SettlingNode(self._patience(soak), again, soaks=False)

    def _free(self, name: str) -> None:
        del self._ended[name], self._before[name]

    def _patience(self, later: float = 0.0) -> Deadline:
        return self.settler.cluster.deadline(later + self.settler.policy.settle_timeout)

    def _pause(self, seconds: float) -> Deadline:
        return self.settler.cluster.deadline(seconds)


@dataclass
class NodeThreads:
    """Take nodes through their runs, a thread a node. Leaving it waits for those under way.

    It does not where it is left by an interruption: the process is to end, or its caller has given
    up on it, and a host whose connection hangs may take very long. What they may still do ends with
    the lock.
    """

    run_one: Callable[[PlannedNode], NodeResult]
    notice: Callable[[str], None]
    _running: dict[Future[NodeResult], str] = field(default_factory=dict)

    @property
    def nodes(self) -> frozenset[str]:
        """Those under way."""
        return frozenset(self._running.values())

    def begin(self, node: PlannedNode) -> None:
        """Begin one."""
        self._running[in_background(lambda: self.run_one(node), f"node-{node.name}")] = node.name

    def ended(self, seconds: float | None) -> Sequence[NodeResult]:
        """Those that have ended, as soon as one has; none after so many seconds. None waits for as long as it takes."""
        done, _ = wait(self._running, timeout=seconds, return_when=FIRST_COMPLETED)
        for end in done:
            del self._running[end]
        return [end.result() for end in done]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, Exception) and self._running:
            nodes = shortened(sorted(self.nodes), _NAMED)
            self.notice(
                f"internal error: no further node is started, those in flight are finished: {nodes}"
            )
        if error is None or isinstance(error, Exception):
            wait(self._running)


@dataclass(frozen=True, slots=True)
class StopRule:
    """When a rollout starts no further node."""

    stop: StopRequest
    ledger: Ledger
    most_failures: int

    def why_halted(self) -> Finding | None:
        """Return why not even nodes that were started before may go on, None if they may."""
        if self.ledger.fenced:
            return LeaseLost()
        return self.stop.why if self.stop.requested else None

    def why_stopped(self) -> Finding | None:
        """Return why no further node may start, None if one may."""
        if why := self.why_halted():
            return why
        if self.ledger.failures >= self.most_failures:
            return FailureLimit(self.ledger.failures, self.most_failures)
        return None


@dataclass(frozen=True, slots=True)
class WaveRunner:
    """Runs waves one after another into one ledger. `unavailable` asks the cluster which nodes count as away.

    `notice` hears why nothing goes on. `hold` says whether a node may begin now; asked again and
    again, it never waits itself. Nodes that are `begun` use up the limit already, and go on
    whatever it, or the limit of failures, says. One that is not admitted any more by the time it is
    to be cordoned waits again, as one that was not begun.
    """

    run_one: Callable[[PlannedNode], NodeResult]
    unavailable: Callable[[], frozenset[str]]
    clock: Clock
    rule: StopRule
    settle_timeout: float
    limit: AwayLimit
    ledger: Ledger
    notice: Callable[[str], None]
    hold: Callable[[PlannedNode], Hold]
    begun: frozenset[str] = frozenset()
    _refused: set[str] = field(default_factory=set, init=False)

    def run(self, admission: WaveAdmission) -> None:
        """Return when every node of the wave has finished, or will not be begun."""
        nodes = admission.wave.nodes
        waiting = list(nodes)
        patience = None
        with NodeThreads(self.run_one, self.notice) as running:
            while waiting or running.nodes:
                for node in self._next(waiting, running.nodes, admission):
                    waiting.remove(node)
                    running.begin(node)
                if running.nodes:
                    refused = self._collect(running, admission, more=bool(waiting))
                    waiting += (node for node in nodes if node.name in refused)
                elif waiting and not admission.unsettled:
                    patience = patience or self._patience(waiting)
                    self._be_patient(waiting, patience)
                    continue
                elif waiting:
                    self.clock.wait(self.rule.stop, _LOOK_AGAIN_AT_HEALTH)
                patience = None

    def _next(
        self, waiting: list[PlannedNode], running: frozenset[str], admission: WaveAdmission
    ) -> Sequence[PlannedNode]:
        """Return the nodes that may begin now under the limit; `waiting` is emptied where none ever may."""
        if not waiting:
            return []
        taken_up = [node for node in waiting if node.name in self.begun - self._refused]
        if taken_up and not self.rule.why_halted():
            return taken_up
        try:
            if why := self.rule.why_stopped() or admission.look(running):
                self._give_up(waiting, why)
                return []
            in_flight = running | admission.unsettled
            if self._unasked(waiting, in_flight, admission, (), frozenset()) is None:
                return []
            if admitted := self._admitted(waiting, in_flight, admission):
                admission.begin(admitted)
        except ApiError as error:
            self._give_up(waiting, ApiUnavailable(error.message))
            return []
        return admitted

    def _admitted(
        self, waiting: list[PlannedNode], in_flight: frozenset[str], admission: WaveAdmission
    ) -> list[PlannedNode]:
        """As many as there is room for of those that no gate holds; those that are held for good leave `waiting`."""
        away = in_flight | self.unavailable()
        admitted: list[PlannedNode] = []
        asked = set[str]()
        while node := self._unasked(waiting, in_flight, admission, asked, away):
            asked.add(node.name)
            hold = self.hold(node)
            if hold.finding is None:
                admitted.append(node)
                in_flight |= {node.name}
            elif hold.final:
                waiting.remove(node)
                self.ledger.give_up([node], hold.finding)
            if hold.finding is None or hold.is_general:
                # what holds any node is not asked about more of them than could go
                away |= {node.name}
        return admitted

    def _unasked(
        self,
        waiting: Sequence[PlannedNode],
        in_flight: frozenset[str],
        admission: WaveAdmission,
        asked: Container[str],
        away: frozenset[str],
    ) -> PlannedNode | None:
        """Return the next that may begin, has room while those are away, and was not asked about yet."""
        left = [node for node in waiting if node.name not in in_flight]
        unasked = (node for node in admission.candidates(left, in_flight) if node.name not in asked)
        return next((node for node in unasked if not self.limit.why_full(node.name, away)), None)

    def _give_up(self, waiting: list[PlannedNode], why: Finding) -> None:
        self.ledger.give_up(waiting, why)
        waiting.clear()

    def _collect(
        self, running: NodeThreads, admission: WaveAdmission, *, more: bool
    ) -> frozenset[str]:
        """Take the ends of those that have ended; the nodes that were refused at their cordon, and wait again."""
        pause = _LOOK_AGAIN_AT_HEALTH if admission.unsettled else _LOOK_AGAIN
        refused = set[str]()
        for result in running.ended(pause if more else None):
            if result.waits:
                refused.add(result.node)
            else:
                self.ledger.take(result)
            admission.end(result)
        self._refused.update(refused)
        return frozenset(refused)

    def _patience(self, waiting: Sequence[PlannedNode]) -> Deadline:
        """Say who uses up the limit, and until when that is waited for; what gates hold is told by them."""
        with suppress(ApiError):
            for why in self.limit.full(waiting, self.unavailable()):
                self.notice(f"waiting for nodes to be back: {text(why)}")
        return Deadline(self.clock, self.settle_timeout)

    def _be_patient(self, waiting: list[PlannedNode], patience: Deadline) -> None:
        """Nothing runs and nothing may begin: others are away. Wait a little; what gates hold ends by itself."""
        if not patience.expired:
            self.clock.wait(self.rule.stop, min(_LOOK_AGAIN, patience.remaining))
            return
        full = self.limit.full(waiting, self.unavailable())
        for why, nodes in full.items():
            self.ledger.give_up(nodes, why)
            waiting[:] = [node for node in waiting if node not in nodes]
        if not full:
            self.clock.wait(self.rule.stop, _LOOK_AGAIN)
