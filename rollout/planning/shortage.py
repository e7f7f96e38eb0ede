"""Nodes whose drain can never end, wherever schedulers put pods until then: the others lack the room that budgets need.

Which nodes a pod moves to is foreseen, not known, and in which order a drain's pods get the last room is chance. What
is certain is the sum: pods that budgets keep running must all have room on the other nodes before the last of them may
leave. Only that is a blocker. Where a drain fails merely if pods arrive as foreseen, or take room in an unlucky order,
the simulation warns.

Left out of the sum, since a real cluster may do without their room: as many pods of each budget as it lets be away (the
largest), pods that no budget keeps, pods of nobody, and those that come back to a node that is closed. Priorities are
not known here: where a pod preempts another, whose budget is then broken, a drain might end all the same.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest

from rollout.model.cluster import Budget, ClusterSnapshot, Node, Pod, Resources
from rollout.model.plan import Blocker, BlockerKind
from rollout.planning.budgets import BudgetIndex, bypasses
from rollout.planning.forecast import is_replaced
from rollout.planning.rooms import USUAL_PODS, Rooms, in_words
from rollout.planning.stuck_pods import StuckPods

_Amounts = tuple[int, int, int]
_NONE: _Amounts = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Shortage:
    """What must keep running, and the room for it: CPU in thousandths, memory in bytes, pods.

    `kept` is what budgets keep, wherever it runs; `free` the room for it on all nodes together, and on each. Empty
    where no node can lack anything.
    """

    kept: _Amounts = _NONE
    free: _Amounts = _NONE
    free_on: Mapping[str, _Amounts] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: ClusterSnapshot, index: BudgetIndex, rooms: Rooms, stuck_pods: StuckPods) -> "Shortage":
        """The shortage of a cluster, whose budgets the index knows."""
        free_on = {node.name: _offered(node) for node in snapshot.nodes}
        running = [pod for pod in snapshot.pods if pod.node in free_on and not (pod.finished or pod.terminating)]
        if not snapshot.budgets or _is_ample(running, free_on):
            return cls()
        guarded: dict[Budget, list[Pod]] = defaultdict(list)
        for pod in running:
            if pod.owner is not None and not is_replaced(pod):
                free_on[pod.node] = _less(free_on[pod.node], pod.requests)
            elif (budget := _guarding(pod, index)) and not rooms.may_return(pod):
                guarded[budget].append(pod)
        kept = _sum(_kept(pods, stuck_pods.most_away(budget)) for budget, pods in guarded.items())
        return cls(kept, _sum(free_on.values()), free_on)

    def blockers(self, node: str) -> tuple[Blocker, ...]:
        """Why this node can never be emptied, if so."""
        own = self.free_on.get(node, _NONE)
        cpu, memory, pods = room = tuple(free - lost for free, lost in zip(self.free, own, strict=True))
        if not any(need > free for need, free in zip(self.kept, room, strict=True)):
            return ()
        message = (
            f"can never be empty: what budgets keep running asks for {in_words(Resources(*self.kept))}, "
            f"{self.kept[2]} pods, and the other nodes have {in_words(Resources(cpu, memory))}, {pods} pods for it: "
            "make room on other nodes, relax a budget temporarily, or use --disable-eviction"
        )
        return (Blocker(node, BlockerKind.FITS_NOWHERE, f"node/{node}", message),)


def _is_ample(pods: Iterable[Pod], offered: Mapping[str, _Amounts]) -> bool:
    """Whether everything fits without whichever node, so that nothing need be looked at closely."""
    total, room = _sum(_amounts(pod.requests) for pod in pods), _sum(offered.values())
    largest = (max((amounts[number] for amounts in offered.values()), default=0) for number in range(len(room)))
    return all(most - lost >= need for most, lost, need in zip(room, largest, total, strict=True))


def _guarding(pod: Pod, index: BudgetIndex) -> Budget | None:
    """The one budget that keeps the pod running."""
    budgets = index.covering(pod) if is_replaced(pod) else ()
    return budgets[0] if len(budgets) == 1 and not bypasses(pod, budgets[0]) else None


def _kept(pods: Sequence[Pod], away: int) -> _Amounts:
    """What these pods need at least while so many of them are away."""
    asked = [_amounts(pod.requests) for pod in pods]
    cpu, memory, number = (sum(amounts) - sum(nlargest(away, amounts)) for amounts in zip(*asked, strict=True))
    return cpu, memory, number


def _sum(amounts: Iterable[_Amounts]) -> _Amounts:
    cpu = memory = pods = 0
    for more in amounts:
        cpu, memory, pods = cpu + more[0], memory + more[1], pods + more[2]
    return cpu, memory, pods


def _less(offered: _Amounts, taken: Resources) -> _Amounts:
    cpu, memory, pods = offered
    return max(0, cpu - taken.cpu_milli), max(0, memory - taken.memory), max(0, pods - taken.pods)


def _amounts(requests: Resources) -> _Amounts:
    return requests.cpu_milli, requests.memory, requests.pods


def _offered(node: Node) -> _Amounts:
    offered = node.allocatable
    return offered.cpu_milli, offered.memory, offered.pods or USUAL_PODS
