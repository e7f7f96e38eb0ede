"""Where the pods of a node that is drained can go, and the budgets that will wait for them in vain."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from rollout.model.cluster import Budget, Pod
from rollout.model.plan import Blocker, BlockerKind
from rollout.planning.budgets import BudgetIndex, bypasses
from rollout.planning.rooms import Rooms
from rollout.planning.verdicts import Action, PodVerdict

_NEVER_REPLACED = ("DaemonSet", "Node")


def is_replaced(pod: Pod) -> bool:
    """Whether a controller will start the pod anew somewhere."""
    return pod.owner is not None and pod.owner.kind not in _NEVER_REPLACED and not pod.finished and not pod.terminating


def movable(verdicts: Iterable[PodVerdict]) -> tuple[Pod, ...]:
    """The pods that these verdicts send elsewhere."""
    return tuple(each.pod for each in verdicts if each.action is Action.EVICT and is_replaced(each.pod))


def stuck_budgets(node: str, verdicts: Iterable[PodVerdict], index: BudgetIndex, rooms: Rooms) -> tuple[Blocker, ...]:
    """Budgets that will hold this node's drain up for ever, because the replacements they wait for fit nowhere else.

    A budget that allows fewer evictions than the node needs lets the rest follow as replacements become ready; those
    must run on other nodes, for this one is closed.
    """
    covered: dict[str, list[Pod]] = defaultdict(list)
    budgets: dict[str, Budget] = {}
    for pod in movable(verdicts):
        budget = _only(index.covering(pod))
        if budget is not None and not bypasses(pod, budget) and budget.disruptions_allowed > 0:
            budgets[budget.key] = budget
            covered[budget.key].append(pod)
    found = (_stuck(node, budgets[key], pods, rooms) for key, pods in covered.items())
    return tuple(blocker for blocker in found if blocker)


def _only(budgets: Sequence[Budget]) -> Budget | None:
    """The one budget of a pod; of two, none ever allows anything."""
    return budgets[0] if len(budgets) == 1 else None


def _stuck(node: str, budget: Budget, pods: Sequence[Pod], rooms: Rooms) -> Blocker | None:
    at_once = max(budget.disruptions_allowed, budget.expected_pods - budget.desired_healthy)
    lacking = len(pods) - at_once
    if lacking <= 0:
        return None
    homeless, why = _without_place(node, pods, rooms)
    if len(pods) - len(homeless) >= lacking:
        return None
    return Blocker(
        node,
        BlockerKind.FITS_NOWHERE,
        f"pdb/{budget.key}",
        f"allows {at_once} of its {len(pods)} pods here to leave before replacements are ready, and they fit nowhere "
        f"else ({homeless[0].name}: {why}): make room on other nodes, relax the budget for the while, or use "
        "--disable-eviction",
    )


def _without_place(node: str, pods: Sequence[Pod], rooms: Rooms) -> tuple[list[Pod], str]:
    """Those of the pods that fit on no other node, all of them moving, and why the first does not; nothing changes."""
    rooms.close((node,))
    for pod in pods:
        rooms.take_out(pod)
    targets = settle(pods, rooms)
    homeless = [pod for pod in pods if not targets[pod.uid]]
    why = rooms.why_nowhere(homeless[0]) if homeless else ""
    for pod in pods:
        if targets[pod.uid]:
            rooms.take_out(pod)
        rooms.put(pod, node)
    return homeless, why


def settle(pods: Sequence[Pod], rooms: Rooms) -> Mapping[str, str]:
    """Put pods that stand nowhere on nodes, by UID, empty for nowhere; those drawn to others are tried again."""
    targets: dict[str, str] = {}
    waiting = list(pods)
    while waiting:
        left = []
        for pod in waiting:
            targets[pod.uid] = rooms.place(pod)
            if targets[pod.uid]:
                rooms.put(pod, targets[pod.uid])
            else:
                left.append(pod)
        drawn = [pod for pod in left if pod.placement.attractions]
        if len(left) == len(waiting) or not drawn:
            break
        waiting = drawn
    return targets
