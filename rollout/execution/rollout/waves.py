"""One wave: its nodes, side by side or following one another, none begun after a reason to stop.

Never are more away than the limit allows.
"""

from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from rollout.errors import ApiError
from rollout.execution.base.deadline import Deadline
from rollout.execution.base.stop import StopRequest
from rollout.execution.gates.gates import Gates, NoGates
from rollout.execution.rollout.admission import Admission, SideBySide
from rollout.execution.rollout.lanes import Lanes, ThreadLanes
from rollout.execution.rollout.ledger import Ledger
from rollout.execution.rollout.pool_rooms import PoolRooms
from rollout.model.plan import PlannedNode, Wave
from rollout.model.progress import NodeResult
from rollout.ports import Clock

_LOOK_AGAIN = 2.0
_LOOK_AGAIN_AT_HEALTH = 1.0


@dataclass(frozen=True, slots=True)
class Allowance:
    """How much may go wrong or be away: `nodes` unavailable at once, `failures` before no further node is started.

    `settle_timeout` bounds, in seconds, how long a node's turn waits for other nodes to come back.
    """

    nodes: int
    failures: int
    settle_timeout: float


@dataclass(frozen=True, slots=True)
class WaveRunner:
    """Runs waves one after another into one ledger. `unavailable` asks the cluster which nodes are not Ready.

    `notice` hears why nothing goes on.
    Nodes that are `begun` use up the limit already, and go on whatever it, or the limit of failures, says.
    """

    run_one: Callable[[PlannedNode], NodeResult]
    unavailable: Callable[[], frozenset[str]]
    clock: Clock
    stop: StopRequest
    allowance: Allowance
    ledger: Ledger
    notice: Callable[[str], None]
    begun: frozenset[str] = frozenset()
    gates: Gates = field(default_factory=NoGates)
    lanes: Callable[[Callable[[PlannedNode], NodeResult], int], Lanes] = ThreadLanes
    pools: PoolRooms = field(default_factory=PoolRooms)

    def run(self, wave: Wave, admission: Admission | None = None) -> None:
        """Return when every node of the wave has finished, or will not be begun."""
        admission, waiting = admission or SideBySide(), list(wave.nodes)
        patience, has_reported = Deadline(self.clock, self.allowance.settle_timeout), False
        with self.lanes(self.run_one, len(waiting)) as running:
            while waiting or running.nodes:
                for node in self._next(waiting, running.nodes, admission):
                    waiting.remove(node)
                    running.begin(node)
                if running.nodes:
                    self._collect(running, admission, more=bool(waiting))
                elif waiting and not admission.unsettled:
                    has_reported = has_reported or self._report_limit(waiting)
                    self._be_patient(waiting, patience)
                    continue
                elif waiting:
                    self.stop.wait(_LOOK_AGAIN_AT_HEALTH)
                patience, has_reported = Deadline(self.clock, self.allowance.settle_timeout), False

    def reason_to_halt(self) -> str:
        """Why not even nodes that were begun before may be taken on; empty where they may."""
        if self.ledger.fenced:
            return "the Lease was lost"
        return self.stop.why if self.stop.requested else ""

    def reason_to_stop(self) -> str:
        """Why no further node may be begun; empty where it may."""
        if why := self.reason_to_halt():
            return why
        if self.ledger.failures >= self.allowance.failures:
            return f"{self.ledger.failures} failed, and --max-failures is {self.allowance.failures}"
        return ""

    def _next(self, waiting: list[PlannedNode], running: frozenset[str], admission: Admission) -> Sequence[PlannedNode]:
        """The nodes that may begin now under the limit; `waiting` is emptied where none ever may."""
        if not waiting:
            return []
        taken_up = [node for node in waiting if node.name in self.begun]
        if taken_up and not self.reason_to_halt():
            return taken_up
        try:
            if why := self.reason_to_stop() or admission.look(running):
                self._give_up(waiting, why)
                return []
            in_flight = running | admission.unsettled
            if self._unasked(waiting, in_flight, admission, (), in_flight | self.ledger.away) is None:
                return []
            if admitted := self._admitted(waiting, in_flight, admission):
                admission.begin(admitted)
        except ApiError as error:
            self._give_up(waiting, f"the API server is unavailable: {error.message}")
            return []
        return admitted

    def _admitted(
        self, waiting: list[PlannedNode], in_flight: frozenset[str], admission: Admission
    ) -> list[PlannedNode]:
        """As many as there is room for of those that no gate holds; those that are held for good leave `waiting`."""
        away = in_flight | self.ledger.away | self.unavailable()
        room = self.allowance.nodes - len(away)
        admitted: list[PlannedNode] = []
        asked = set[str]()
        while room > 0 and (node := self._unasked(waiting, in_flight, admission, asked, away)):
            asked.add(node.name)
            hold = self.gates.hold(node)
            if not hold.why:
                admitted.append(node)
                in_flight |= {node.name}
                away |= {node.name}
            elif hold.final:
                waiting.remove(node)
                self.ledger.give_up([node], hold.why)
            room -= not hold.why or hold.is_general
        return admitted

    def _unasked(
        self,
        waiting: Sequence[PlannedNode],
        in_flight: frozenset[str],
        admission: Admission,
        asked: Container[str],
        away: frozenset[str],
    ) -> PlannedNode | None:
        """The next that may begin, has room in its pool while those are away, and no gate was asked about yet."""
        left = [node for node in waiting if node.name not in in_flight]
        unasked = (node for node in admission.candidates(left, in_flight) if node.name not in asked)
        return next((node for node in unasked if self.pools.has_room(node.name, away)), None)

    def _give_up(self, waiting: list[PlannedNode], why: str) -> None:
        self.ledger.give_up(waiting, why)
        waiting.clear()

    def _collect(self, running: Lanes, admission: Admission, *, more: bool) -> None:
        pause = _LOOK_AGAIN_AT_HEALTH if admission.unsettled else _LOOK_AGAIN
        for result in running.ended(pause if more else None):
            self.ledger.take(result)
            admission.end(result)

    def _report_limit(self, waiting: Sequence[PlannedNode]) -> bool:
        """Say who uses up the limit; what gates hold is told by them."""
        with suppress(ApiError):
            away = self.unavailable() | self.ledger.away
            if len(away) >= self.allowance.nodes:
                names = ", ".join(sorted(away))
                self.notice(
                    f"waiting for nodes to be Ready: --max-unavailable {self.allowance.nodes} is used up by {names}"
                )
            for why in self.pools.full(waiting, away):
                self.notice(f"waiting for nodes to be Ready: {why}")
        return True

    def _be_patient(self, waiting: list[PlannedNode], patience: Deadline) -> None:
        """Nothing runs and nothing may begin: others are away. Wait a little; what gates hold ends by itself."""
        if not patience.expired:
            self.stop.wait(min(_LOOK_AGAIN, patience.remaining))
            return
        away = self.unavailable() | self.ledger.away
        if len(away) < self.allowance.nodes:
            full = self.pools.full(waiting, away)
            for why, nodes in full.items():
                self.ledger.give_up(nodes, why)
                waiting[:] = [node for node in waiting if node not in nodes]
            if not full:
                self.stop.wait(_LOOK_AGAIN)
            return
        self._give_up(waiting, f"--max-unavailable {self.allowance.nodes} is used up by {', '.join(sorted(away))}")
