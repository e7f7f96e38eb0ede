"""Who of a wave may begin beside whom, and when the place of a node that has ended is free again.

Side by side any may begin. Rolling on, a node that has ended keeps its place until the cluster has settled from it;
then the next begins.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from rollout.execution.base.deadline import Deadline
from rollout.execution.base.stop import StopRequest
from rollout.execution.record.stored import Health
from rollout.execution.rollout.ledger import Ledger
from rollout.execution.rollout.settle import Before, Settler
from rollout.model.plan import PlannedNode, Rolling, Wave
from rollout.model.progress import NodeResult
from rollout.planning.layout.rolling import Following

_PAUSE = 1.0


class Admission:
    """What a wave's runner asks. Side by side any may begin, and none waits for another to settle.

    Reading the cluster may raise `ApiError`.
    """

    @property
    def unsettled(self) -> frozenset[str]:
        """Nodes that have ended, and keep their places until the cluster has settled from them."""
        return frozenset()

    def candidates(
        self,
        waiting: Sequence[PlannedNode],
        in_flight: Collection[str],  # noqa: ARG002 - for those that roll on
    ) -> Iterator[PlannedNode]:
        """Those of the waiting that may begin beside those in flight, in their order."""
        return iter(waiting)

    def begin(self, nodes: Sequence[PlannedNode]) -> None:
        """Note that these are about to begin."""

    def end(self, result: NodeResult) -> None:
        """Note that a node has ended."""

    def look(self, running: frozenset[str]) -> str:  # noqa: ARG002 - for those that roll on
        """See who has settled, while these are under way; why no further node may begin, empty where one may."""
        return ""


@dataclass(slots=True)
class _Ended:
    """A node that has ended: by when it has to have settled, how often in a row it had, and what it was seen to lack.

    `soaking` is whether it has settled once, and soaks; `again` is when it is looked at next.
    """

    deadline: Deadline
    again: Deadline
    soaks: bool
    good: int = 0
    missing: str = ""


@dataclass
class RollingAdmission(Admission):
    """The nodes of one wave that follow one another. Asked by one thread.

    `keep` is told what was well before the nodes that are in flight.
    """

    wave: Wave
    rules: Rolling
    settler: Settler
    ledger: Ledger
    keep: Callable[[Health], None]
    why: str = ""
    _before: dict[str, Before] = field(default_factory=dict)
    _ended: dict[str, _Ended] = field(default_factory=dict)

    @property
    def unsettled(self) -> frozenset[str]:
        """Nodes that have ended, and that the cluster has not settled from."""
        return frozenset(self._ended)

    def candidates(self, waiting: Sequence[PlannedNode], in_flight: Collection[str]) -> Iterator[PlannedNode]:
        """Those that hold no more than is left, in the plan's order."""
        nodes, order = {node.name: node for node in waiting}, [node.name for node in self.wave.nodes]
        return (nodes[name] for name in Following(self.rules, order, nodes, in_flight).candidates())

    def begin(self, nodes: Sequence[PlannedNode]) -> None:
        """Measure what is well before these begin: what others in flight have taken is not held against them."""
        self._before.update(self.settler.measured([node.name for node in nodes], self._before))
        self.keep(Health.of_all(before.health for before in self._before.values()))

    def end(self, result: NodeResult) -> None:
        """Its place stays taken until the cluster has settled from it."""
        if result.node in self._before:
            succeeded, soak = result.succeeded, self.settler.policy.gates.soak
            self._ended[result.node] = _Ended(self._patience(), self._pause(0), soaks=succeeded and bool(soak))

    def look(self, running: frozenset[str]) -> str:
        """Free the places of those that have settled; why no further node may begin, once one has not in its time."""
        due = {name: ended for name, ended in self._ended.items() if ended.again.expired}
        if not due:
            return self.why
        look, expected = self.settler.look(), running | self.ledger.away
        others = {name: before for name, before in self._before.items() if name in running}
        for name, ended in due.items():
            self._judge(name, ended, look.missing(self._before[name], expected, others))
        return self.why

    def settle(self, stop: StopRequest) -> str:
        """Wait until nothing is left to settle; why no further wave may begin, empty where one may."""
        while self._ended and not (self.look(frozenset()) or stop.requested):
            if self._ended:
                self.settler.cluster.clock.wait(stop, _PAUSE)
        return self.why

    def _judge(self, name: str, ended: _Ended, missing: str) -> None:
        """Judge by what it lacks whether its place is free."""
        ended.again = self._pause(_PAUSE)
        ended.good = 0 if missing else ended.good + 1
        if ended.good >= self.settler.policy.gates.health_checks or (ended.deadline.expired and not missing):
            self._settled(name, ended)
        elif ended.deadline.expired:
            patience = self.settler.policy.settle_timeout
            self.why = self.why or f"after {name} the cluster did not settle within {patience}: {missing}"
            self._free(name)
        elif missing and missing != ended.missing:
            ended.missing = missing
            self.settler.report.settling(self.wave.index, f"after {name}: {missing}")

    def _settled(self, name: str, ended: _Ended) -> None:
        """Its place is free, once it has soaked and settled again where that is asked for."""
        if not ended.soaks:
            self._free(name)
            return
        soak = self.settler.policy.gates.soak
        self.settler.report.notice(f"{name} is back; soaking for {soak}")
        again = self._pause(soak)
        self._ended[name] = _Ended(self._patience(soak), again, soaks=False)

    def _free(self, name: str) -> None:
        del self._ended[name], self._before[name]

    def _patience(self, later: float = 0.0) -> Deadline:
        return self.settler.cluster.deadline(later + self.settler.policy.settle_timeout)

    def _pause(self, seconds: float) -> Deadline:
        return self.settler.cluster.deadline(seconds)
