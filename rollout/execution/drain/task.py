"""What a node's turn has at hand, and what the drains of one process know of each other.

Where several drains want the permits of one budget, the node that is nearest to being empty goes
first: then its reboot begins while the others still drain, where all would end together otherwise.
A drain that has used up half of its time goes before those that have not. Nobody waits for a drain
that lets a permit lie: after a few seconds it is taken.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from rollout.execution.base.deadline import Deadline, Guard, PatientApi
from rollout.execution.base.reporting import Reporter
from rollout.execution.drain.eviction import CriticalPods
from rollout.gather.cluster.snapshot import read_node, read_node_pods
from rollout.model.cluster import Node, Pod
from rollout.model.plan import PlannedNode
from rollout.model.policy import Policy
from rollout.model.progress import Activity, Edge, Phase

# Seconds that a permit is left to a drain which is to go first.
_MOST_DEFERENCE = 3.0


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """Where a drain stands: how many pods are left, and of each budget how many could go at once if it let them.

    `pressed`: half of its time is over.
    """

    left: int
    wanted: Mapping[str, int]
    pressed: bool = False


@dataclass(slots=True)
class Precedence:
    """The drains of one process. Used by all of their threads."""

    critical: CriticalPods = field(default_factory=CriticalPods)
    _demands: dict[str, DrainProgress] = field(default_factory=dict)
    _deferring: dict[tuple[str, str], float] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def update(self, node: str, demand: DrainProgress) -> None:
        """Where this node's drain stands now."""
        with self._turn:
            self._demands[node] = demand

    def leave(self, node: str) -> None:
        """Forget this node: its drain has ended."""
        with self._turn:
            self._demands.pop(node, None)
            self._deferring = {
                known: since for known, since in self._deferring.items() if known[0] != node
            }

    def ahead(self, node: str, budget: str, allowance: int, now: float) -> str:
        """Return the node for which this one leaves a budget's permits, of which there are so many; empty: none."""
        with self._turn:
            first = self._first(node, budget, allowance)
            if not first:
                self._deferring.pop((node, budget), None)
                return ""
            since = self._deferring.setdefault((node, budget), now)
            return first if now - since < _MOST_DEFERENCE else ""

    def closed(self, node: str, budget: str) -> None:
        """Note that the budget lets nothing go now: those who are ahead have taken what there was."""
        with self._turn:
            self._deferring.pop((node, budget), None)

    def _first(self, node: str, budget: str, allowance: int) -> str:
        own = self._rank(node)
        ahead = [other for other in self._demands if self._rank(other) < own]
        wanting = {
            other: wanted
            for other in ahead
            if (wanted := self._demands[other].wanted.get(budget, 0))
        }
        if not wanting or sum(wanting.values()) < allowance:
            return ""
        return min(wanting, key=self._rank)

    def _rank(self, node: str) -> tuple[bool, int, str]:
        demand = self._demands[node]
        return not demand.pressed, demand.left, node


@dataclass(frozen=True, slots=True)
class NodeTask:
    """One node's turn: what was planned for it, for which rollout (its id), by which rules, and since when.

    `started` is in monotonic seconds; `spent` is how many of its drain's time-out another process
    has had. `returning` takes up the UIDs of owners whose pods the drain leaves, for they come back
    however often they are evicted, and `moved` those of pods that were evicted or deleted.
    `precedence` and `moved` are what the drains of one process have in common.
    """

    planned: PlannedNode
    rollout: str
    cluster: PatientApi
    check: Guard
    report: Reporter
    started: float = 0.0
    policy: Policy = field(default_factory=Policy)
    spent: float = 0.0
    returning: set[str] = field(default_factory=set)
    precedence: Precedence = field(default_factory=Precedence)
    moved: set[str] = field(default_factory=set)

    @property
    def name(self) -> str:
        """The Node's name."""
        return self.planned.name

    @property
    def now(self) -> float:
        """Monotonic seconds."""
        return self.cluster.clock.monotonic()

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return self.now - self.started

    def step(
        self,
        phase: Phase,
        detail: str = "",
        endings: tuple[tuple[str, float], ...] = (),
        *,
        staged: str = "",
        edge: Edge | None = None,
        activity: Activity | None = None,
    ) -> None:
        """Report the node's progress, as `Reporter.step` does."""
        self.report.step(
            self.name, phase, detail, endings, staged=staged, edge=edge, activity=activity
        )

    def node(self, deadline: Deadline | None = None) -> Node:
        """Return the Node as it is now; an outage is waited out until the deadline."""
        return self.cluster.ask(lambda api: read_node(api, self.name), deadline)

    def pods(self, deadline: Deadline | None = None) -> tuple[Pod, ...]:
        """Return the pods that are bound to it, in the same way."""
        return self.cluster.ask(lambda api: read_node_pods(api, self.name), deadline)
