"""What nodes that are away together share: budgets, owners and pools' limits.

A budget is a rate: a permit comes back once the evicted pod's replacement is ready. An owner
without a budget must keep one replica.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rollout.model.cluster import CRITICAL, Pod
from rollout.model.plan import PlanWarning
from rollout.model.warning_finding import AllReplicas
from rollout.planning.drain.budgets import BudgetIndex, Load
from rollout.planning.drain.verdicts import is_replaced
from rollout.wording.warnings import warning

# However long drains may take.
MOST_ROUNDS = 1000
_POOL = "pool:"


@dataclass(frozen=True, slots=True)
class NodeDemand:
    """A node to place in a wave, and what it needs.

    `group` is its value of the `--spread-by` label. `load` is what its drain takes of each key;
    `holds` is the part that is away until the node is back. `wait` is how many seconds its drain
    waits for pods to complete, `ending` until its slowest pod has ended. `move_cost` is pods to
    move, and their millicores.
    """

    name: str
    group: str
    control_plane: bool
    load: Load
    holds: Load = field(default_factory=dict)
    ending: int = 0
    move_cost: tuple[int, int] = (0, 0)
    pool: str = ""
    wait: int = 0


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast a budget lets pods go: `permits` of them at a time.

    An evicted pod is gone after `ending` seconds, its replacement ready after `round_seconds`.
    Another controller opens the budget `handover` seconds after the cordon; 0 if none has to.
    """

    permits: int
    ending: int
    round_seconds: int
    handover: int = 0

    def seconds(self, pods: int, held: int = 0) -> int:
        """Return when all pods are gone, if `held` permits do not come back."""
        at_once = max(1, self.permits - held)
        further_rounds = math.ceil(max(0, pods - at_once) / at_once)
        return self.handover + self.ending + further_rounds * self.round_seconds

    def rounds_within(self, seconds: float) -> int:
        further_rounds = int((seconds - self.ending) // max(1, self.round_seconds))
        return min(MOST_ROUNDS, max(1, further_rounds + 1))


@dataclass(frozen=True, slots=True)
class WaveLimits:
    """What the nodes of a wave may take together: `size` nodes, and so much of each key.

    A node that exceeds a limit by itself shares its wave with no other user of that key. `rounds`
    is how often a wave may use up each budget, at most `most_rounds`.
    """

    size: int
    allowed: Mapping[str, int]
    rates: Mapping[str, Rate] = field(default_factory=dict)
    rounds: Mapping[str, int] = field(default_factory=dict)
    most_rounds: int = MOST_ROUNDS
    _capacity: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def with_rounds_up_to(self, rounds: int) -> "WaveLimits":
        return replace(self, most_rounds=rounds)

    @property
    def with_another_round(self) -> "WaveLimits":
        return self.with_rounds_up_to(self.most_rounds + 1)

    def _rounds(self, key: str) -> int:
        return min(self.most_rounds, self.rounds.get(key, 1))

    @property
    def capacity(self) -> Mapping[str, int]:
        if not self._capacity:
            for key, most in self.allowed.items():
                self._capacity[key] = most * self._rounds(key)
        return self._capacity

    def usage(self, demand: NodeDemand) -> Load:
        """Return what a node uses of `capacity`: what it holds counts in every round."""
        if not demand.holds:
            return demand.load
        usage = dict(demand.load)
        for key, need in demand.holds.items():
            if key in usage:
                usage[key] += need * (self._rounds(key) - 1)
        return usage

    def drain_seconds(self, nodes: Sequence[NodeDemand]) -> int:
        load = sum_of(node.load for node in nodes)
        holds = sum_of(node.holds for node in nodes)
        seconds = max((node.ending for node in nodes), default=0)
        for key, need in load.items():
            if key in self.rates:
                held = min(need, holds.get(key, 0))
                seconds = max(seconds, self.rates[key].seconds(need - held, held))
        return seconds


def sum_of(loads: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    """Add loads up; `Counter.update` takes three times as long."""
    total: dict[str, int] = {}
    for load in loads:
        for key, need in load.items():
            total[key] = total.get(key, 0) + need
    return total


# Replicas of a Job do not stand in for each other.
_NOT_SERVING = ("Job",)


@dataclass(frozen=True, slots=True)
class UnbudgetedOwners:
    """Owners without a budget that could lose all pods; `loads` are by node."""

    allowed: Mapping[str, int]
    loads: Mapping[str, Load]

    @classmethod
    def of(
        cls, leaving: Mapping[str, Sequence[Pod]], pods: Iterable[Pod], index: BudgetIndex
    ) -> "UnbudgetedOwners":
        replicas = Counter(_owner_key(pod) for pod in pods if _is_serving(pod))
        loads = dict[str, Counter[str]]()
        for node, node_pods in leaving.items():
            serving = (pod for pod in node_pods if _is_serving(pod))
            loads[node] = Counter(_owner_key(pod) for pod in serving if not index.covering(pod))
        total_load = sum_of(loads.values())
        allowed = dict[str, int]()
        for owner, count in replicas.items():
            loses_all = total_load.get(owner, 0) >= count
            if count > 1 and loses_all:
                allowed[owner] = count - 1
        limited_loads = dict[str, Load]()
        for node, load in loads.items():
            limited_loads[node] = {owner: need for owner, need in load.items() if owner in allowed}
        return cls(allowed, limited_loads)

    def warnings_of(self, node: str) -> tuple[PlanWarning, ...]:
        warnings = list[PlanWarning]()
        for owner, need in sorted(self.loads.get(node, {}).items()):
            if need > self.allowed[owner]:
                warnings.append(warning(node, owner, AllReplicas(need)))
        return tuple(warnings)


def is_owner_key(key: str) -> bool:
    return key.count("/") > 1 and not key.startswith(CRITICAL)


def _is_serving(pod: Pod) -> bool:
    if pod.owner is None or pod.owner.kind in _NOT_SERVING:
        return False
    return pod.ready and is_replaced(pod)


def _owner_key(pod: Pod) -> str:
    owner = pod.owner
    return f"{owner.kind.lower()}/{pod.namespace}/{owner.name}" if owner else ""


def pool_key(pool: str) -> str:
    return f"{_POOL}{pool}"


def pool_in(key: str) -> str:
    return key.removeprefix(_POOL) if key.startswith(_POOL) else ""
