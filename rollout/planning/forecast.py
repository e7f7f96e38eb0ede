"""The plan played through wave by wave: where the evicted pods can go, and what later waves meet of them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rollout.model.cluster import Budget, Pod
from rollout.model.plan import Blocker, BlockerKind, PlanWarning, WarningKind
from rollout.planning.budgets import BudgetIndex, bypasses
from rollout.planning.rooms import Rooms
from rollout.planning.verdicts import Action, PodVerdict

_NEVER_REPLACED = ("DaemonSet", "Node")


@dataclass(frozen=True, slots=True)
class Foresight:
    """What playing a plan through has shown; `arrivals` counts, by node, the pods that earlier waves moved there."""

    arrivals: Mapping[str, int]
    warnings: tuple[PlanWarning, ...]


def is_replaced(pod: Pod) -> bool:
    """Whether a controller will start the pod anew somewhere."""
    return pod.owner is not None and pod.owner.kind not in _NEVER_REPLACED and not pod.finished and not pod.terminating


def movable(verdicts: Iterable[PodVerdict]) -> tuple[Pod, ...]:
    """The pods that these verdicts send elsewhere."""
    return tuple(each.pod for each in verdicts if each.action is Action.EVICT and is_replaced(each.pod))


def play_through(waves: Sequence[Sequence[str]], leaving: Mapping[str, Sequence[Pod]], rooms: Rooms) -> Foresight:
    """Move every pod as its node's turn comes; `leaving` are each node's movable pods. `rooms` ends as the cluster."""
    residents: dict[str, list[Pod]] = defaultdict(list, {name: list(pods) for name, pods in leaving.items()})
    arrivals: dict[str, int] = {}
    warnings: list[PlanWarning] = []
    for wave in waves:
        rooms.close(wave)
        for name in wave:
            arrivals[name] = sum(pod.node != name for pod in residents[name])
        going = [(name, pod) for name in wave for pod in residents.pop(name, ())]
        for _, pod in going:
            rooms.take_out(pod)
        for name, pod in going:
            target = rooms.place(pod)
            if not target:
                warnings.append(_homeless(name, pod, rooms))
            rooms.put(pod, target or name)
            residents[target or name].append(pod)
    return Foresight({name: count for name, count in arrivals.items() if count}, tuple(dict.fromkeys(warnings)))


def _homeless(node: str, pod: Pod, rooms: Rooms) -> PlanWarning:
    why = rooms.why_nowhere(pod)
    return PlanWarning(
        node, f"pod/{pod.key}", f"{why}: it does not run until the node is back", WarningKind.FITS_NOWHERE
    )


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
    homeless = _without_place(node, pods, rooms)
    if len(pods) - len(homeless) >= lacking:
        return None
    return Blocker(
        node,
        BlockerKind.FITS_NOWHERE,
        f"pdb/{budget.key}",
        f"allows {at_once} of its {len(pods)} pods here to leave before replacements are ready, and they fit nowhere "
        f"else ({homeless[0].name}: {_why(homeless[0], node, rooms)}): make room on other nodes, relax the budget for "
        "the while, or use --disable-eviction",
    )


def _without_place(node: str, pods: Sequence[Pod], rooms: Rooms) -> list[Pod]:
    """Those of the pods that fit on no other node, all of them moving; nothing stays changed."""
    rooms.close((node,))
    placed: list[Pod] = []
    homeless: list[Pod] = []
    for pod in pods:
        rooms.take_out(pod)
        target = rooms.place(pod)
        rooms.put(pod, target or node)
        (placed if target else homeless).append(pod)
    for pod in placed:
        rooms.take_out(pod)
        rooms.put(pod, node)
    return homeless


def _why(pod: Pod, node: str, rooms: Rooms) -> str:
    rooms.close((node,))
    return rooms.why_nowhere(pod)
