"""What the steps of a node share, and which of several drains goes first."""

import threading
from collections.abc import Mapping

from msgspec import Struct, field

from rollout.execution.base.deadline import Deadline, Guard, PatientApi
from rollout.execution.base.reporting import Reporter
from rollout.execution.drain.eviction import CriticalPods
from rollout.gather.cluster.snapshot import read_node, read_node_pods
from rollout.model.cluster import Node, Pod
from rollout.model.completion import AwaitedPod
from rollout.model.plan import PlannedNode
from rollout.model.policy import Policy
from rollout.model.progress import Activity, Phase

# Seconds that a permit is left to another drain.
_LONGEST_DEFERENCE = 3.0


class DrainDemand(Struct, frozen=True):
    pods_left: int
    # By budget's key.
    permits_wanted: Mapping[str, int]
    # Half of the drain's time is over.
    is_urgent: bool = False


class Precedence(Struct):
    """Decides which drain of this process gets a budget's permits.

    A permit is an eviction that a budget allows now. Other drains defer to an urgent drain, then to
    the one with the fewest pods left, but only for a moment.
    """

    critical: CriticalPods = field(default_factory=CriticalPods)
    _demands: dict[str, DrainDemand] = field(default_factory=dict)
    # Monotonic seconds when a node began to defer, by node and budget.
    _deferring: dict[tuple[str, str], float] = field(default_factory=dict)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def update(self, node: str, demand: DrainDemand) -> None:
        with self._mutex:
            self._demands[node] = demand

    def remove(self, node: str) -> None:
        with self._mutex:
            self._demands.pop(node, None)
            of_node = [key for key in self._deferring if key[0] == node]
            for key in of_node:
                del self._deferring[key]

    def defer_to(self, node: str, budget: str, allowance: int, now: float) -> str:
        with self._mutex:
            first = self._find_first(node, budget, allowance)
            if not first:
                self._deferring.pop((node, budget), None)
                return ""
            deferring_since = self._deferring.setdefault((node, budget), now)
            has_deferred_enough = now - deferring_since >= _LONGEST_DEFERENCE
            return "" if has_deferred_enough else first

    def note_closed_budget(self, node: str, budget: str) -> None:
        """When the budget opens again, this node may defer for the full time."""
        with self._mutex:
            self._deferring.pop((node, budget), None)

    def _find_first(self, node: str, budget: str, allowance: int) -> str:
        own_rank = self._rank(node)
        nodes_before = []
        permits_before = 0
        for other, demand in self._demands.items():
            permits = demand.permits_wanted.get(budget, 0)
            if permits and self._rank(other) < own_rank:
                nodes_before.append(other)
                permits_before += permits
        has_permit_left = permits_before < allowance
        if not nodes_before or has_permit_left:
            return ""
        return min(nodes_before, key=self._rank)

    def _rank(self, node: str) -> tuple[bool, int, str]:
        demand = self._demands[node]
        # False sorts before True.
        return not demand.is_urgent, demand.pods_left, node


class NodeTask(Struct, frozen=True):
    planned: PlannedNode
    run_id: str
    cluster: PatientApi
    check_may_act: Guard
    report: Reporter
    # Monotonic seconds.
    started: float = 0.0
    policy: Policy = field(default_factory=Policy)
    # Seconds of the drain timeout that an earlier process used.
    drain_seconds_used: float = 0.0
    # UIDs.
    returning_owners: set[str] = field(default_factory=set)
    precedence: Precedence = field(default_factory=Precedence)
    # UIDs.
    moved_pods: set[str] = field(default_factory=set)

    @property
    def name(self) -> str:
        return self.planned.name

    @property
    def now(self) -> float:
        return self.cluster.clock.monotonic()

    @property
    def seconds(self) -> float:
        return self.now - self.started

    def report_step(
        self,
        phase: Phase,
        detail: str,
        *,
        activity: Activity | None = None,
        awaited: tuple[AwaitedPod, ...] = (),
    ) -> None:
        self.report.step(self.name, phase, detail, activity=activity, awaited=awaited)

    def read_node(self, deadline: Deadline | None = None) -> Node:
        return self.cluster.ask(lambda api: read_node(api, self.name), deadline)

    def read_pods(self, deadline: Deadline | None = None) -> tuple[Pod, ...]:
        return self.cluster.ask(lambda api: read_node_pods(api, self.name), deadline)
