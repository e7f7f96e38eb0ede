"""What nodes that are away together share: budgets as rates, and owners without a budget.

An evicted pod gives its permit back once its replacement is ready. So the drains of a wave are played through every
budget: pod after pod, as many at a time as it allows, the nodes that are nearest to being empty first. An owner whose
pods no budget covers is treated like a budget that allows all replicas but one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rollout.model.cluster import CRITICAL, Pod
from rollout.model.plan import PlanWarning, WarningKind
from rollout.planning.drain.budgets import BudgetIndex, Load
from rollout.planning.drain.verdicts import is_replaced

# No node waits longer than that many turns for a budget, however late the deadline of a drain.
MOST_ROUNDS = 1000
_POOL = "pool:"


@dataclass(frozen=True, slots=True)
class NodeDemand:
    """A node to place. `group` is its value of the `--spread-by` label; `load` what its turn takes of what is shared.

    Shared are budgets, owners, and a pool with a limit of its own (`pool_key`).

    `holds` is the part of the load that comes back only with the node: pods without a place while it is away. `ending`
    is the seconds that the slowest of them takes to end. `price` is how many pods its drain
    moves, and the CPU that these request (thousandths).
    """

    name: str
    group: str
    control_plane: bool
    load: Load
    holds: Load = field(default_factory=dict)
    ending: int = 0
    price: tuple[int, int] = (0, 0)
    pool: str = ""


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast a budget lets pods go: `permits` at a time, each away until its replacement is ready.

    All else is seconds: `ending` until a pod is gone, `turn` until its replacement is ready.
    """

    permits: int
    ending: int
    turn: int

    def seconds(self, pods: int, held: int = 0) -> int:
        """How long it takes until the last of so many pods is gone, `held` permits being away all the while."""
        at_once = max(1, self.permits - held)
        return self.ending + -(-max(0, pods - at_once) // at_once) * self.turn

    def rounds_within(self, seconds: float) -> int:
        """How often its permits may be given anew within so many seconds; at least once."""
        return min(MOST_ROUNDS, max(1, int((seconds - self.ending) // max(1, self.turn)) + 1))


@dataclass(frozen=True, slots=True)
class Limits:
    """What a group may hold: `size` nodes, and of each budget what it allows.

    A node that exceeds one of them alone may be in a group, but with no other node that uses of it.
    `rates` says how fast the budgets that drains meet let pods go, and `rounds` how often, one after another, a group
    may use a budget up: once where it is not named, and no budget more than `most_rounds` times. What a node holds
    until it is back is away in all of these rounds.
    """

    size: int
    allowed: Mapping[str, int]
    rates: Mapping[str, Rate] = field(default_factory=dict)
    rounds: Mapping[str, int] = field(default_factory=dict)
    most_rounds: int = MOST_ROUNDS
    _capacity: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def up_to(self, rounds: int) -> "Limits":
        """Return the same with at most so many rounds of each budget."""
        return replace(self, most_rounds=rounds)

    @property
    def wider(self) -> "Limits":
        """The same with one more round."""
        return self.up_to(self.most_rounds + 1)

    def _rounds(self, key: str) -> int:
        return min(self.most_rounds, self.rounds.get(key, 1))

    @property
    def capacity(self) -> Mapping[str, int]:
        """What a group may use of each budget, all rounds together."""
        if not self._capacity:
            self._capacity.update({key: most * self._rounds(key) for key, most in self.allowed.items()})
        return self._capacity

    def use(self, load: Load, holds: Load) -> Load:
        """Return what a node uses of that: what it holds counts in every round."""
        if not holds:
            return load
        held = {key: need * (self._rounds(key) - 1) for key, need in holds.items() if key in load}
        return {**load, **{key: load[key] + more for key, more in held.items()}}

    def drain(self, nodes: Sequence[NodeDemand]) -> int:
        """When the last of these nodes is empty, in seconds: in which order they go makes no difference to that."""
        load, holds = sum_of(node.load for node in nodes), sum_of(node.holds for node in nodes)
        seconds = max((node.ending for node in nodes), default=0)
        for key, need in load.items():
            if rate := self.rates.get(key):
                held = min(need, holds.get(key, 0))
                seconds = max(seconds, rate.seconds(need - held, held))
        return seconds


def sum_of(loads: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    """Several loads in one; a Counter's own `update` takes three times as long."""
    total: dict[str, int] = {}
    for load in loads:
        for key, need in load.items():
            total[key] = total.get(key, 0) + need
    return total


_COMMON = ("Job",)


@dataclass(frozen=True, slots=True)
class Owners:
    """Owners without a budget: how many replicas of each may go at once, and what each node's drain takes of them."""

    allowed: Mapping[str, int]
    loads: Mapping[str, Load]

    @classmethod
    def of(cls, leaving: Mapping[str, Sequence[Pod]], pods: Iterable[Pod], index: BudgetIndex) -> "Owners":
        """Return the owners of the pods that leave; the index knows the budgets that are asked."""
        replicas = Counter(_key(pod) for pod in pods if _counts(pod))
        loads: dict[str, Counter[str]] = {
            node: Counter(_key(pod) for pod in pods_leaving if _counts(pod) and not index.covering(pod))
            for node, pods_leaving in leaving.items()
        }
        leave: Counter[str] = Counter()
        for load in loads.values():
            leave.update(load)
        last = {owner: count - 1 for owner, count in replicas.items() if count > 1 and leave[owner] >= count}
        limited = {node: {key: need for key, need in load.items() if key in last} for node, load in loads.items()}
        return cls(last, limited)

    def all_at_once(self, node: str) -> tuple[PlanWarning, ...]:
        """Owners that have all their replicas on this one node."""
        return tuple(
            PlanWarning(
                node,
                owner,
                f"all its {need} pods are on this node, and no budget keeps them from leaving at once: spread them, or "
                "give it a budget",
                WarningKind.ALL_REPLICAS,
            )
            for owner, need in sorted(self.loads.get(node, {}).items())
            if need > self.allowed[owner]
        )


def is_owner(key: str) -> bool:
    """Whether a key of a load is an owner's, rather than a budget's."""
    return key.count("/") > 1 and not key.startswith(CRITICAL)


def _counts(pod: Pod) -> bool:
    """Whether it is one of an owner's replicas that serve."""
    return is_replaced(pod) and pod.ready and pod.owner is not None and pod.owner.kind not in _COMMON


def _key(pod: Pod) -> str:
    owner = pod.owner
    return f"{owner.kind.lower()}/{pod.namespace}/{owner.name}" if owner else ""


def pool_key(pool: str) -> str:
    """Return what stands for a pool's own limit among budgets and owners, whose keys have a slash."""
    return f"{_POOL}{pool}"


def is_pool(key: str) -> str:
    """Return the pool whose limit a key of a load stands for; empty where it is none of these."""
    return key.removeprefix(_POOL) if key.startswith(_POOL) else ""
