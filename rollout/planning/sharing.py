"""What nodes must share beside budgets: owners without one, whose last replicas must not go at once, and room.

An owner whose pods no budget covers is treated like a budget that allows all replicas but one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rollout.model.cluster import Node, Pod
from rollout.model.plan import PlanWarning, WarningKind
from rollout.planning.budgets import BudgetIndex
from rollout.planning.forecast import is_replaced
from rollout.planning.node_demands import takes_pods
from rollout.planning.packing import Load, Weight
from rollout.planning.rooms import Rooms

_COMMON = ("Job",)


@dataclass(frozen=True, slots=True)
class Owners:
    """Owners without a budget: how many replicas of each may go at once, and what each node's drain takes of them."""

    allowed: Mapping[str, int]
    loads: Mapping[str, Load]

    @classmethod
    def of(cls, leaving: Mapping[str, Sequence[Pod]], pods: Iterable[Pod], index: BudgetIndex | None) -> "Owners":
        """The owners of the pods that leave; without an index no pod has a budget."""
        replicas = Counter(_key(pod) for pod in pods if _counts(pod))
        loads: dict[str, Counter[str]] = {
            node: Counter(_key(pod) for pod in pods_leaving if _counts(pod) and not (index and index.covering(pod)))
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
    return key.count("/") > 1


def _counts(pod: Pod) -> bool:
    """Whether it is one of an owner's replicas that serve."""
    return is_replaced(pod) and pod.ready and pod.owner is not None and pod.owner.kind not in _COMMON


def _key(pod: Pod) -> str:
    owner = pod.owner
    return f"{owner.kind.lower()}/{pod.namespace}/{owner.name}" if owner else ""


def free_room(rooms: Rooms) -> Weight:
    """What is free on all the nodes that take pods of any kind: CPU in thousandths, memory in bytes, pods."""
    shared = [room for room in rooms.rooms.values() if takes_pods(room.node) and not _kept_apart(room.node)]
    return (
        sum(max(0, room.cpu) for room in shared),
        sum(max(0, room.memory) for room in shared),
        sum(max(0, room.pods) for room in shared),
    )


def weight_of(node: Node, leaving: Sequence[Pod], rooms: Rooms) -> Weight:
    """What taking a node away costs of that: what its pods ask of other nodes, and its own free room."""
    if _kept_apart(node):
        return (0, 0, 0)
    rooms.close((node.name,))
    room, moving = rooms.rooms[node.name], [pod for pod in leaving if rooms.could_go(pod)]
    own = (room.cpu, room.memory, room.pods) if takes_pods(node) else (0, 0, 0)
    return (
        max(0, own[0]) + sum(pod.requests.cpu_milli for pod in moving),
        max(0, own[1]) + sum(pod.requests.memory for pod in moving),
        max(0, own[2]) + len(moving),
    )


def _kept_apart(node: Node) -> bool:
    """Whether taints keep it for pods of its own, which the common room says nothing about."""
    return any(taint.effect in ("NoSchedule", "NoExecute") for taint in node.taints)
