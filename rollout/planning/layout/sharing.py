"""What nodes that are away together share: budgets, owners and other limits.

A permit of a budget comes back once the evicted pod's replacement is ready. An owner without a
budget must keep one replica.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from sys import intern
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from rollout.model.cluster import CRITICAL, Pod
from rollout.model.plan import PlanWarning
from rollout.model.warning_finding import AllReplicas
from rollout.planning.drain.budgets import BudgetIndex, Load
from rollout.planning.drain.verdicts import is_replaced
from rollout.wording.warnings import warning

MOST_ROUNDS = 1000
_POOL = "pool:"


class MoveCost(NamedTuple):
    """CPU is in requested millicores."""

    pods: int = 0
    cpu_milli: int = 0


class NodeDemand(Struct, frozen=True):
    """What a node takes while it is away."""

    name: str
    # The value of the `--spread-by` label.
    group: str
    control_plane: bool
    load: Load
    # Permits by budget that come back only with the node, of pods that fit nowhere else.
    kept_permits: Load = {}
    # Until its slowest pod ends.
    ending_seconds: int = 0
    move_cost: MoveCost = MoveCost()
    pool: str = ""
    # Its drain's wait if it began now, and when all pods have completed.
    wait_seconds: int = 0
    completed_in: int = 0

    def completion_wait_at(self, drain_start: int) -> int:
        """`drain_start` is in seconds from now."""
        return min(self.wait_seconds, max(0, self.completed_in - drain_start))


class Rate(Struct, frozen=True):
    """How fast a budget lets pods go: in rounds of `permits` pods."""

    permits: int
    # From an eviction until the pod is gone.
    ending_seconds: int
    # From an eviction until its replacement is ready.
    seconds_per_round: int
    # From the cordon until another controller opens the budget, or 0.
    handover_seconds: int = 0

    def drain_seconds(self, pods: int, kept_permits: int = 0) -> int:
        """Return when so many pods are gone, if some permits do not come back."""
        # A budget without permits is assumed to let one pod go later.
        pods_per_round = max(1, self.permits - kept_permits)
        remaining_pods = max(0, pods - pods_per_round)
        further_rounds = math.ceil(remaining_pods / pods_per_round)
        return self._first_round_seconds + further_rounds * self.seconds_per_round

    def rounds_within(self, seconds: float) -> int:
        """Return how many rounds are over by then, from 1 to `MOST_ROUNDS`."""
        seconds_left = seconds - self._first_round_seconds
        further_rounds = int(seconds_left // max(1, self.seconds_per_round))
        return min(MOST_ROUNDS, max(1, further_rounds + 1))

    @property
    def _first_round_seconds(self) -> int:
        return self.handover_seconds + self.ending_seconds


class WaveLimits(Struct, frozen=True, dict=True):
    """What nodes of a wave may take together.

    A node over a limit shares its wave with no other that needs it. In each round, a wave may use
    up each budget once.
    """

    size: int
    # How much of each limit at the same time.
    allowed: Mapping[str, int]
    rates: Mapping[str, Rate] = {}
    # By budget, up to `most_rounds`; other limits have one round.
    rounds: Mapping[str, int] = {}
    most_rounds: int = MOST_ROUNDS

    def with_rounds_up_to(self, rounds: int) -> "WaveLimits":
        return replace(self, most_rounds=rounds)

    @property
    def with_another_round(self) -> "WaveLimits":
        return self.with_rounds_up_to(self.most_rounds + 1)

    def _rounds(self, key: str) -> int:
        return min(self.most_rounds, self.rounds.get(key, 1))

    @cached_property
    def allowed_in_all_rounds(self) -> Mapping[str, int]:
        return {key: most * self._rounds(key) for key, most in self.allowed.items()}

    def usage(self, demand: NodeDemand) -> Load:
        """Return what a node uses of `allowed_in_all_rounds`.

        A kept permit is missing in every round.
        """
        if not demand.kept_permits:
            return demand.load
        usage = dict(demand.load)
        for key, kept_permits in demand.kept_permits.items():
            if key in usage:
                further_rounds = self._rounds(key) - 1
                usage[key] += kept_permits * further_rounds
        return usage

    def drain_seconds(self, nodes: Sequence[NodeDemand]) -> int:
        """Return when all nodes are empty, if drains begin together."""
        load = sum_of(node.load for node in nodes)
        kept_permits = sum_of(node.kept_permits for node in nodes)
        seconds = max((node.ending_seconds for node in nodes), default=0)
        for key, pods in load.items():
            if key in self.rates:
                kept = min(pods, kept_permits.get(key, 0))
                budget_seconds = self.rates[key].drain_seconds(pods - kept, kept)
                seconds = max(seconds, budget_seconds)
        return seconds


def sum_of(loads: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    """`Counter.update` takes three times as long."""
    total: dict[str, int] = {}
    for load in loads:
        for key, need in load.items():
            total[key] = total.get(key, 0) + need
    return total


_NOT_SERVING = ("Job",)


class UnbudgetedOwners(Struct, frozen=True):
    """Owners (keys) without a budget that could lose all their pods at once."""

    # How many pods of each owner may be away.
    allowed: Mapping[str, int]
    # By node.
    loads: Mapping[str, Load]

    @classmethod
    def of(
        cls, leaving: Mapping[str, Sequence[Pod]], pods: Iterable[Pod], index: BudgetIndex
    ) -> "UnbudgetedOwners":
        """`leaving` has the pods that each node's drain moves."""
        replica_counts = Counter(_owner_key(pod) for pod in pods if _is_serving(pod))
        loads = dict[str, Counter[str]]()
        for node, leaving_pods in leaving.items():
            serving = [pod for pod in leaving_pods if _is_serving(pod)]
            without_budget = [pod for pod in serving if not index.covering(pod)]
            loads[node] = Counter(_owner_key(pod) for pod in without_budget)
        total_load = sum_of(loads.values())
        allowed = dict[str, int]()
        for owner, replicas in replica_counts.items():
            could_lose_all = total_load.get(owner, 0) >= replicas
            # An only replica has to leave, whatever the limit.
            if could_lose_all and replicas > 1:
                allowed[owner] = replicas - 1
        limited_loads = dict[str, Load]()
        for node, load in loads.items():
            limited_loads[node] = {owner: load[owner] for owner in load if owner in allowed}
        return cls(allowed, limited_loads)

    def warnings_of(self, node: str) -> tuple[PlanWarning, ...]:
        warnings = list[PlanWarning]()
        for owner, pods_on_node in sorted(self.loads.get(node, {}).items()):
            if pods_on_node > self.allowed[owner]:
                warnings.append(warning(node, owner, AllReplicas(pods_on_node)))
        return tuple(warnings)


def is_owner_key(key: str) -> bool:
    return key.count("/") > 1 and not key.startswith(CRITICAL)


def _is_serving(pod: Pod) -> bool:
    if pod.owner is None or pod.owner.kind in _NOT_SERVING:
        return False
    return pod.ready and is_replaced(pod)


def _owner_key(pod: Pod) -> str:
    owner = pod.owner
    return intern(f"{owner.kind.lower()}/{pod.namespace}/{owner.name}") if owner else ""


def pool_key(pool: str) -> str:
    return f"{_POOL}{pool}"


def pool_in(key: str) -> str:
    """Return the pool whose limit this is; empty for others."""
    return key.removeprefix(_POOL) if key.startswith(_POOL) else ""
