"""Where the pods of a node that is drained can go, and the budgets that will wait for them in vain."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from rollout.model.cluster import Budget, Pod
from rollout.model.plan import Blocker, BlockerKind
from rollout.planning.budgets import BudgetIndex, Headcount, bypasses
from rollout.planning.rooms import Rooms
from rollout.planning.verdicts import Action, PodVerdict

_NEVER_REPLACED = ("DaemonSet", "Node")


def is_replaced(pod: Pod) -> bool:
    """Whether a controller will start the pod anew somewhere."""
    return pod.owner is not None and pod.owner.kind not in _NEVER_REPLACED and not pod.finished and not pod.terminating


def movable(verdicts: Iterable[PodVerdict]) -> tuple[Pod, ...]:
    """The pods that these verdicts send elsewhere."""
    return tuple(verdict.pod for verdict in verdicts if verdict.action is Action.EVICT and is_replaced(verdict.pod))


def stuck_budgets(
    node: str, verdicts: Iterable[PodVerdict], index: BudgetIndex, rooms: Rooms, headcount: Headcount
) -> tuple[Blocker, ...]:
    """Budgets that will hold this node's drain up for ever, because the replacements they wait for fit nowhere else.

    A budget that allows fewer evictions than the node needs lets the rest follow as replacements become ready; those
    must run on other nodes, for this one is closed.
    """
    moving = movable(verdicts)
    covered: dict[int, list[tuple[Budget, Pod]]] = defaultdict(list)
    for pod in moving:
        budget = _only(index.covering(pod))
        if budget is not None and budget.disruptions_allowed > 0 and not bypasses(pod, budget):
            covered[id(budget)].append((budget, pod))
    blockers = (
        _stuck(node, group[0][0], [pod for _, pod in group], moving, rooms, headcount)
        for group in covered.values()
        if len(group) > group[0][0].disruptions_allowed
    )
    return tuple(blocker for blocker in blockers if blocker)


def _only(budgets: Sequence[Budget]) -> Budget | None:
    """The one budget of a pod; of two, none ever allows anything."""
    return budgets[0] if len(budgets) == 1 else None


def _stuck(
    node: str, budget: Budget, pods: Sequence[Pod], moving: Iterable[Pod], rooms: Rooms, headcount: Headcount
) -> Blocker | None:
    at_once = max(budget.disruptions_allowed, headcount.most_healthy(budget) - budget.desired_healthy)
    if len(pods) <= at_once:
        return None
    homeless, why = _left_waiting(node, pods, at_once, rooms)
    if not homeless or not _stuck_without(moving, node, pods, at_once, rooms):
        return None
    return Blocker(
        node,
        BlockerKind.FITS_NOWHERE,
        f"pdb/{budget.key}",
        f"allows {at_once} of its {len(pods)} pods here to leave before replacements are ready, and they fit nowhere "
        f"else ({homeless.name}: {why}): make room on other nodes, relax the budget temporarily, or use "
        "--disable-eviction",
    )


def _stuck_without(moving: Iterable[Pod], node: str, pods: Sequence[Pod], at_once: int, rooms: Rooms) -> bool:
    """Whether they are stuck as well once all others have left: they may be drawn to those, or kept away by them."""
    own = {pod.uid for pod in pods}
    others = [pod for pod in moving if pod.uid not in own]
    for pod in others:
        rooms.take_out(pod)
    targets = places_for(others, rooms)
    homeless, _ = _left_waiting(node, pods, at_once, rooms)
    for pod in others:
        if targets[pod.uid]:
            rooms.take_out(pod)
        rooms.put(pod, node)
    return homeless is not None


def _left_waiting(node: str, pods: Sequence[Pod], at_once: int, rooms: Rooms) -> tuple[Pod | None, str]:
    """Let pods leave as a budget does; one without a place, and why, if they never all leave. Changes nothing."""
    rooms.close((node,))
    staying, waiting, placed = list(pods), list[Pod](), list[Pod]()
    while staying and len(waiting) < at_once:
        going, staying = staying[: at_once - len(waiting)], staying[at_once - len(waiting) :]
        for pod in going:
            rooms.take_out(pod)
        targets = places_for([*waiting, *going], rooms)
        placed += [pod for pod in (*waiting, *going) if targets[pod.uid]]
        waiting = [pod for pod in (*waiting, *going) if not targets[pod.uid]]
    homeless = waiting[0] if staying else None
    why = rooms.why_nowhere(homeless) if homeless else ""
    for pod in placed:
        rooms.take_out(pod)
    for pod in (*placed, *waiting):
        rooms.put(pod, node)
    return homeless, why


def without_place(node: str, moving: Iterable[Pod], rooms: Rooms) -> frozenset[str]:
    """Of the pods that leave a node, the UIDs of those that run nowhere else while it is away. Changes nothing."""
    pods = tuple(moving)
    rooms.close((node,))
    for pod in pods:
        rooms.take_out(pod)
    targets = places_for(pods, rooms)
    for pod in pods:
        if targets[pod.uid]:
            rooms.take_out(pod)
        rooms.put(pod, node)
    return frozenset(uid for uid, target in targets.items() if target in ("", node))


def places_for(pods: Sequence[Pod], rooms: Rooms) -> Mapping[str, str]:
    """Put pods that stand nowhere on nodes, by UID, empty for nowhere; those drawn to others are tried again."""
    targets: dict[str, str] = {}
    waiting = list(pods)
    while waiting:
        homeless = []
        for pod in waiting:
            targets[pod.uid] = rooms.place(pod)
            if targets[pod.uid]:
                rooms.put(pod, targets[pod.uid])
            else:
                homeless.append(pod)
        drawn = [pod for pod in homeless if pod.placement.attractions]
        if len(homeless) == len(waiting) or not drawn:
            break
        waiting = drawn
    return targets
