"""What will stop a node's drain, found before anything is touched.

Besides what pods and budgets say by themselves, two things are reckoned: budgets that wait in vain for replacements
which fit nowhere else, and nodes whose drain can never end, wherever schedulers put pods until then.

Which nodes a pod moves to is foreseen, not known, and in which order a drain's pods get the last room is chance. What
is certain is the sum: pods that budgets keep running must all have room on the other nodes before the last of them may
leave. Only that is a blocker. Where a drain fails merely if pods arrive as foreseen, or take room in an unlucky order,
the simulation warns.

Left out of the sum, since a real cluster may do without their room: as many pods of each budget as it lets be away (the
largest), pods that no budget keeps, pods of nobody, and those that come back to a node that is closed. Priorities are
not known here: where a pod preempts another, whose budget is then broken, a drain might end all the same.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest

from rollout.model.cluster import Budget, ClusterSnapshot, Node, Pod, Resources, finding_of
from rollout.model.plan import Blocker, BlockerKind, PlanWarning, WarningKind
from rollout.model.quantity import Duration
from rollout.model.text import shortened
from rollout.planning.drain.budgets import (
    BudgetIndex,
    Headcount,
    StuckPods,
    bypasses,
    counts_pods,
    in_words,
    of_the_server,
)
from rollout.planning.drain.capacity import USUAL_PODS, requests_in_words
from rollout.planning.drain.scheduler import Scheduler
from rollout.planning.drain.verdicts import Action, PodVerdict, VerdictReason, is_replaced, movable

_REFUSALS = {
    VerdictReason.UNMANAGED: BlockerKind.UNMANAGED_POD,
    VerdictReason.LOCAL_STORAGE: BlockerKind.LOCAL_STORAGE,
    VerdictReason.DAEMONSET_GONE: BlockerKind.DAEMONSET_GONE,
}


def drain_findings(
    node: str, verdicts: Iterable[PodVerdict], index: BudgetIndex, stuck_pods: StuckPods, *, evicting: bool
) -> tuple[tuple[Blocker, ...], tuple[PlanWarning, ...]]:
    """Everything that keeps this node from being drained, and what the operator should know of its drain.

    `evicting` is whether budgets are asked at all.
    """
    of_pods, of_drain = list[PlanWarning](), list[Blocker | PlanWarning]()
    for verdict in verdicts:
        pod = verdict.pod
        if verdict.action is Action.REFUSE:
            of_drain.append(Blocker(node, _REFUSALS[verdict.reason], f"pod/{pod.key}", verdict.message))
            continue
        of_pods += [PlanWarning(node, f"pod/{pod.key}", warning, WarningKind.POD) for warning in verdict.warnings]
        if verdict.action is Action.EVICT and not _goes_freely(pod, index, stuck_pods):
            of_drain += _overdue(node, pod, stuck_pods)
            of_drain += _held_by_budgets(node, pod, index.covering(pod), stuck_pods) if evicting else ()
    blockers = (finding for finding in of_drain if isinstance(finding, Blocker))
    warnings = (finding for finding in of_drain if isinstance(finding, PlanWarning))
    return tuple(dict.fromkeys(blockers)), tuple(dict.fromkeys((*of_pods, *warnings)))


def _goes_freely(pod: Pod, index: BudgetIndex, stuck_pods: StuckPods) -> bool:
    """Whether there is nothing to say of its eviction, as of most: a large cluster has many."""
    budgets = index.covering(pod)
    return not pod.deleted_at and (not budgets or (len(budgets) == 1 and stuck_pods.is_open(budgets[0])))


def _overdue(node: str, pod: Pod, stuck_pods: StuckPods) -> Iterator[Blocker | PlanWarning]:
    seconds, subject = stuck_pods.overdue(pod), f"pod/{pod.key}"
    if not seconds:
        return
    held = f" and is held by {', '.join(pod.finalizers)}" if pod.finalizers else ""
    since = f"should have been gone {Duration(round(seconds))} ago{held}"
    if seconds > stuck_pods.patience:
        way_out = "see what holds it, or leave it behind with drain.skip-wait-for-delete-timeout"
        message = f"{since}, longer than --drain-timeout waits: {way_out}"
        yield Blocker(node, BlockerKind.STUCK_TERMINATING, subject, message)
    else:
        message = f"{since}: the drain waits for it, unless drain.skip-wait-for-delete-timeout leaves it behind"
        yield PlanWarning(node, subject, message, WarningKind.TERMINATING)


def _held_by_budgets(
    node: str, pod: Pod, budgets: tuple[Budget, ...], stuck_pods: StuckPods
) -> Iterator[Blocker | PlanWarning]:
    of_server = of_the_server(budgets)
    if len(of_server) > 1 and not pod.finished and not pod.terminating and not stuck_pods.stays_pending(pod):
        names = ", ".join(budget.name for budget in of_server)
        message = (
            f"is covered by {len(of_server)} budgets ({names}); the API server refuses to evict such a pod: "
            "delete all but one"
        )
        yield Blocker(node, BlockerKind.TWO_BUDGETS, f"pod/{pod.key}", message)
        return
    for budget in budgets:
        subject, is_open = finding_of(budget.key), budget.disruptions_allowed > 0
        if bypasses(pod, budget) or (is_open and _gives_way(pod)):
            continue
        if _gives_way(pod):
            message = (
                "Longhorn takes it away once the node is cordoned, unless a volume has its last healthy replica here, "
                "or stays attached: then the drain waits in vain, up to --drain-timeout"
            )
            yield PlanWarning(node, subject, message, WarningKind.BUDGET_WAITING)
        elif stuck_pods.can_never_allow(budget):
            yield Blocker(node, BlockerKind.BUDGET_NEVER, subject, _never(budget, stuck_pods.headcount))
        elif is_open:
            continue
        elif unready := _in_the_way(budget, stuck_pods):
            message = _unhealthy(budget, unready, itself=pod in unready)
            yield Blocker(node, BlockerKind.BUDGET_UNHEALTHY, subject, message)
        else:
            message = (
                f"allows no eviction now ({budget.current_healthy} of {budget.desired_healthy} needed pods are "
                "healthy): the drain waits for it, up to --drain-timeout; see why its pods are not ready"
            )
            yield PlanWarning(node, subject, message, WarningKind.BUDGET_WAITING)


def _gives_way(pod: Pod) -> bool:
    """Whether whoever made the pod and its budget takes that away once the node is cordoned, as Longhorn does."""
    return pod.owner is not None and pod.owner.api_version.startswith("longhorn.io/")


def _never(budget: Budget, headcount: Headcount) -> str:
    if budget.sync_error:
        return (
            f"allows no eviction because its controller cannot count its pods ({budget.sync_error}): give it an "
            "absolute minAvailable, let it cover only pods of scalable controllers, or use --disable-eviction"
        )
    if headcount.lacks_scale(budget):
        return (
            f"{in_words(budget)} never allows an eviction because it goes by the scale of its pods' controllers, and "
            "they have none: give it an absolute minAvailable, or use --disable-eviction"
        )
    ended = headcount.ended.get(budget.key, 0) if counts_pods(budget) else 0
    counted = f"{budget.expected_pods} pods" + (f", {ended} of which ended," if ended else "")
    return (
        f"{in_words(budget)} of {counted} never allows an eviction: "
        "add a replica, relax the budget temporarily, or use --disable-eviction"
    )


def _in_the_way(budget: Budget, stuck_pods: StuckPods) -> tuple[Pod, ...]:
    """The long unready pods of a budget that allows nothing as long as they stay so."""
    unready = stuck_pods.unready_under(budget)
    return () if stuck_pods.is_held_open_by(budget, unready) else unready


def _unhealthy(budget: Budget, unready: tuple[Pod, ...], *, itself: bool) -> str:
    policy = "set its unhealthyPodEvictionPolicy to AlwaysAllow, " if itself else ""
    names = shortened([pod.name for pod in unready], 1)
    return (
        f"needs {budget.desired_healthy} healthy pods and has {budget.current_healthy}, and {names} "
        f"has not been ready since {unready[0].unready_since}: fix it, {policy}or use --disable-eviction"
    )


def stuck_budgets(
    node: str, verdicts: Iterable[PodVerdict], index: BudgetIndex, scheduler: Scheduler, stuck_pods: StuckPods
) -> tuple[Blocker, ...]:
    """Budgets that will hold this node's drain up for ever, because the replacements they wait for fit nowhere else.

    A budget that allows fewer evictions than the node needs lets the rest follow as replacements become ready; those
    must run on other nodes, for this one is closed.
    """
    moving = movable(verdicts)
    covered: dict[int, list[tuple[Budget, Pod]]] = defaultdict(list)
    for pod in moving:
        for budget in _asked(index.covering(pod)):
            if budget.disruptions_allowed > 0 and not bypasses(pod, budget):
                covered[id(budget)].append((budget, pod))
    blockers = (
        _in_vain(node, group[0][0], [pod for _, pod in group], moving, scheduler, stuck_pods.most_away(group[0][0]))
        for group in covered.values()
        if len(group) > group[0][0].disruptions_allowed
    )
    return tuple(blocker for blocker in blockers if blocker)


def _asked(budgets: Sequence[Budget]) -> Sequence[Budget]:
    """The budgets of a pod that may let it go; of two of the server's, none ever allows anything."""
    return budgets if len(of_the_server(budgets)) < 2 else ()  # noqa: PLR2004


def _in_vain(
    node: str, budget: Budget, pods: Sequence[Pod], moving: Iterable[Pod], scheduler: Scheduler, at_once: int
) -> Blocker | None:
    if len(pods) <= at_once:
        return None
    homeless, why = _left_waiting(node, pods, at_once, scheduler)
    if not homeless or not _stuck_without(moving, node, pods, at_once, scheduler):
        return None
    return Blocker(
        node,
        BlockerKind.FITS_NOWHERE,
        finding_of(budget.key),
        f"allows {at_once} of its {len(pods)} pods here to leave before replacements are ready, and they fit nowhere "
        f"else ({homeless.name}: {why}): make room on other nodes, relax the budget temporarily, or use "
        "--disable-eviction",
    )


def _stuck_without(moving: Iterable[Pod], node: str, pods: Sequence[Pod], at_once: int, scheduler: Scheduler) -> bool:
    """Whether they are stuck as well once all others have left: they may be drawn to those, or kept away by them."""
    own = {pod.uid for pod in pods}
    with scheduler.departed([(node, pod) for pod in moving if pod.uid not in own]):
        homeless, _ = _left_waiting(node, pods, at_once, scheduler)
    return homeless is not None


def _left_waiting(node: str, pods: Sequence[Pod], at_once: int, scheduler: Scheduler) -> tuple[Pod | None, str]:
    """Let pods leave as a budget does; one without a place, and why, if they never all leave. Changes nothing."""
    scheduler.close((node,))
    staying, waiting, targets = list(pods), list[Pod](), dict[str, str]()
    while staying and len(waiting) < at_once:
        going, staying = staying[: at_once - len(waiting)], staying[at_once - len(waiting) :]
        for pod in going:
            scheduler.take_out(pod)
        targets |= scheduler.put_anywhere([*waiting, *going])
        waiting = [pod for pod in (*waiting, *going) if not targets[pod.uid]]
    homeless = waiting[0] if staying else None
    why = scheduler.why_nowhere(homeless) if homeless else ""
    scheduler.move_back([(node, pod) for pod in pods if pod.uid in targets], targets)
    return homeless, why


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
    def of(
        cls, snapshot: ClusterSnapshot, index: BudgetIndex, scheduler: Scheduler, stuck_pods: StuckPods
    ) -> "Shortage":
        """The shortage of a cluster, whose budgets the index knows."""
        free_on = {node.name: _offered(node) for node in snapshot.nodes}
        running = [pod for pod in snapshot.pods if pod.node in free_on and not (pod.finished or pod.terminating)]
        if index.is_empty or _is_ample(running, free_on):
            return cls()
        guarded: dict[Budget, list[Pod]] = defaultdict(list)
        for pod in running:
            if pod.owner is not None and not is_replaced(pod):
                free_on[pod.node] = _less(free_on[pod.node], pod.requests)
            elif (budget := _guarding(pod, index)) and not scheduler.may_return(pod):
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
            f"can never be empty: what budgets keep running asks for {requests_in_words(Resources(*self.kept))}, "
            f"{self.kept[2]} pods, and the other nodes have {requests_in_words(Resources(cpu, memory))}, {pods} pods "
            "for it: make room on other nodes, relax a budget temporarily, or use --disable-eviction"
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
