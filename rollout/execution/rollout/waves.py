"""One wave: its nodes side by side, never more away than the limit allows, none begun after a reason to stop."""

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field

from rollout.errors import ApiError
from rollout.execution.base.deadline import Deadline
from rollout.execution.base.stop import StopRequest
from rollout.execution.gates.gates import Gates, NoGates
from rollout.execution.rollout.ledger import Ledger
from rollout.model.plan import PlannedNode, Wave
from rollout.model.progress import NodeResult
from rollout.ports import Clock

Running = dict[Future[NodeResult], PlannedNode]

_LOOK_AGAIN = 2.0


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

    def run(self, wave: Wave) -> None:
        """Return when every node of the wave has finished, or will not be begun."""
        waiting, running = list(wave.nodes), Running()
        patience, has_reported = Deadline(self.clock, self.allowance.settle_timeout), False
        with ThreadPoolExecutor(max_workers=len(waiting), thread_name_prefix="node") as pool:
            while waiting or running:
                for node in self._next(waiting, running):
                    waiting.remove(node)
                    running[pool.submit(self.run_one, node)] = node
                if running:
                    self._collect(running, more=bool(waiting))
                    patience, has_reported = Deadline(self.clock, self.allowance.settle_timeout), False
                elif waiting:
                    has_reported = has_reported or self._report_limit()
                    self._be_patient(waiting, patience)

    def reason_to_halt(self) -> str:
        """Why not even nodes that were begun before may be taken on; empty where they may."""
        if self.ledger.fenced:
            return "the Lease was lost"
        return "stopped on request" if self.stop.requested else ""

    def reason_to_stop(self) -> str:
        """Why no further node may be begun; empty where it may."""
        if why := self.reason_to_halt():
            return why
        if self.ledger.failures >= self.allowance.failures:
            return f"{self.ledger.failures} failed, and --max-failures is {self.allowance.failures}"
        return ""

    def _next(self, waiting: list[PlannedNode], running: Running) -> list[PlannedNode]:
        """The nodes that may begin now under the limit; `waiting` is emptied where none ever may."""
        if not waiting:
            return []
        taken_up = [node for node in waiting if node.name in self.begun]
        if taken_up and not self.reason_to_halt():
            return taken_up
        if why := self.reason_to_stop():
            self._give_up(waiting, why)
            return []
        mine = {node.name for node in running.values()} | self.ledger.away
        try:
            foreign = self.unavailable() - mine
            return self._admitted(waiting, self.allowance.nodes - len(mine) - len(foreign))
        except ApiError as error:
            self._give_up(waiting, f"the API server is unavailable: {error.message}")
            return []

    def _admitted(self, waiting: list[PlannedNode], room: int) -> list[PlannedNode]:
        """As many as there is room for of those that no gate holds; those that are held for good leave `waiting`."""
        admitted: list[PlannedNode] = []
        for node in list(waiting):
            if len(admitted) >= room:
                break
            hold = self.gates.hold(node)
            if not hold.why:
                admitted.append(node)
            elif hold.final:
                waiting.remove(node)
                self.ledger.give_up([node], hold.why)
        return admitted

    def _give_up(self, waiting: list[PlannedNode], why: str) -> None:
        self.ledger.give_up(waiting, why)
        waiting.clear()

    def _collect(self, running: Running, *, more: bool) -> None:
        finished, _still = wait(running, timeout=_LOOK_AGAIN if more else None, return_when=FIRST_COMPLETED)
        for future in finished:
            del running[future]
            self.ledger.take(future.result())

    def _report_limit(self) -> bool:
        """Say who uses up the limit; what gates hold is told by them."""
        with suppress(ApiError):
            away = self.unavailable() | self.ledger.away
            if len(away) >= self.allowance.nodes:
                names = ", ".join(sorted(away))
                self.notice(
                    f"waiting for nodes to be Ready: --max-unavailable {self.allowance.nodes} is used up by {names}"
                )
        return True

    def _be_patient(self, waiting: list[PlannedNode], patience: Deadline) -> None:
        """Nothing runs and nothing may begin: others are away. Wait a little; what gates hold ends by itself."""
        if not patience.expired:
            self.stop.wait(min(_LOOK_AGAIN, patience.remaining))
            return
        away = self.unavailable() | self.ledger.away
        if len(away) < self.allowance.nodes:
            self.stop.wait(_LOOK_AGAIN)
            return
        self._give_up(waiting, f"--max-unavailable {self.allowance.nodes} is used up by {', '.join(sorted(away))}")
