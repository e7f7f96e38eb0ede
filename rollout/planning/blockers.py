"""What will stop a node's drain, found before anything is touched."""

from collections.abc import Iterable, Iterator

from rollout.model.cluster import Budget, Pod
from rollout.model.plan import Blocker, BlockerKind, PlanWarning, WarningKind
from rollout.model.quantity import Duration
from rollout.model.text import shortened
from rollout.planning.budgets import BudgetIndex, Headcount, bypasses, counts_pods, in_words
from rollout.planning.stuck_pods import StuckPods
from rollout.planning.verdicts import Action, PodVerdict, VerdictReason

_REFUSALS = {
    VerdictReason.UNMANAGED: BlockerKind.UNMANAGED_POD,
    VerdictReason.LOCAL_STORAGE: BlockerKind.LOCAL_STORAGE,
    VerdictReason.DAEMONSET_GONE: BlockerKind.DAEMONSET_GONE,
}


def drain_blockers(
    node: str, verdicts: Iterable[PodVerdict], index: BudgetIndex, stuck_pods: StuckPods, *, evicting: bool
) -> tuple[Blocker, ...]:
    """Everything that keeps this node from being drained; `evicting` is whether budgets are asked at all."""
    blockers: list[Blocker] = []
    for verdict in verdicts:
        if verdict.action is Action.REFUSE:
            blockers.append(_refusal(node, verdict))
        elif verdict.action is Action.EVICT and not _goes_freely(verdict.pod, index, stuck_pods):
            blockers.extend(_stuck(node, verdict.pod, stuck_pods))
            if evicting:
                blockers.extend(_budget_blockers(node, verdict.pod, index.covering(verdict.pod), stuck_pods))
    return tuple(dict.fromkeys(blockers))


def _goes_freely(pod: Pod, index: BudgetIndex, stuck_pods: StuckPods) -> bool:
    """Whether there is nothing to say of its eviction, as of most: a large cluster has many."""
    budgets = index.covering(pod)
    return not pod.deleted_at and (not budgets or (len(budgets) == 1 and stuck_pods.is_open(budgets[0])))


def _refusal(node: str, verdict: PodVerdict) -> Blocker:
    return Blocker(node, _REFUSALS[verdict.reason], f"pod/{verdict.pod.key}", verdict.message)


def _stuck(node: str, pod: Pod, stuck_pods: StuckPods) -> Iterator[Blocker]:
    seconds = stuck_pods.overdue(pod)
    if seconds > stuck_pods.patience:
        yield Blocker(
            node,
            BlockerKind.STUCK_TERMINATING,
            f"pod/{pod.key}",
            f"should have been gone {Duration(round(seconds))} ago{_held(pod)}, longer than --drain-timeout waits: "
            "see what holds it, or leave it behind with drain.skip-wait-for-delete-timeout",
        )


def _held(pod: Pod) -> str:
    return f" and is held by {', '.join(pod.finalizers)}" if pod.finalizers else ""


def _budget_blockers(node: str, pod: Pod, budgets: tuple[Budget, ...], stuck_pods: StuckPods) -> Iterator[Blocker]:
    if len(budgets) > 1 and not pod.finished and not pod.terminating and not stuck_pods.stays_pending(pod):
        names = ", ".join(budget.name for budget in budgets)
        yield Blocker(
            node,
            BlockerKind.TWO_BUDGETS,
            f"pod/{pod.key}",
            f"is covered by {len(budgets)} budgets ({names}); the API server refuses to evict such a pod: "
            "delete all but one",
        )
        return
    for budget in budgets:
        if bypasses(pod, budget):
            continue
        if stuck_pods.can_never_allow(budget):
            message = _never(budget, stuck_pods.headcount)
            yield Blocker(node, BlockerKind.BUDGET_NEVER, f"pdb/{budget.key}", message)
        elif unready := _in_the_way(budget, stuck_pods):
            message = _unhealthy(budget, unready, itself=pod in unready)
            yield Blocker(node, BlockerKind.BUDGET_UNHEALTHY, f"pdb/{budget.key}", message)


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
    """The long unready pods of a budget that allows nothing now, and nothing as long as they stay so."""
    if budget.disruptions_allowed > 0:
        return ()
    unready = stuck_pods.unready_under(budget)
    return () if stuck_pods.is_held_open_by(budget, unready) else unready


def _unhealthy(budget: Budget, unready: tuple[Pod, ...], *, itself: bool) -> str:
    policy = "set its unhealthyPodEvictionPolicy to AlwaysAllow, " if itself else ""
    names = shortened([pod.name for pod in unready], 1)
    return (
        f"needs {budget.desired_healthy} healthy pods and has {budget.current_healthy}, and {names} "
        f"has not been ready since {unready[0].unready_since}: fix it, {policy}or use --disable-eviction"
    )


def drain_warnings(
    node: str, verdicts: Iterable[PodVerdict], index: BudgetIndex, stuck_pods: StuckPods, *, evicting: bool
) -> tuple[PlanWarning, ...]:
    """What the operator should know about this node's drain."""
    warnings = [
        PlanWarning(node, f"pod/{verdict.pod.key}", warning, WarningKind.POD)
        for verdict in verdicts
        if verdict.action is not Action.REFUSE
        for warning in verdict.warnings
    ]
    for verdict in verdicts:
        if verdict.action is Action.EVICT and not _goes_freely(verdict.pod, index, stuck_pods):
            warnings.extend(_leaving(node, verdict.pod, stuck_pods))
            if evicting:
                warnings.extend(_budget_warnings(node, verdict.pod, index.covering(verdict.pod), stuck_pods))
    return tuple(dict.fromkeys(warnings))


def _leaving(node: str, pod: Pod, stuck_pods: StuckPods) -> Iterator[PlanWarning]:
    seconds = stuck_pods.overdue(pod)
    if 0 < seconds <= stuck_pods.patience:
        message = (
            f"should have been gone {Duration(round(seconds))} ago{_held(pod)}: the drain waits for it, unless "
            "drain.skip-wait-for-delete-timeout leaves it behind"
        )
        yield PlanWarning(node, f"pod/{pod.key}", message, WarningKind.TERMINATING)


def _budget_warnings(node: str, pod: Pod, budgets: tuple[Budget, ...], stuck_pods: StuckPods) -> Iterator[PlanWarning]:
    for budget in budgets:
        if bypasses(pod, budget) or stuck_pods.can_never_allow(budget) or budget.disruptions_allowed > 0:
            continue
        if not _in_the_way(budget, stuck_pods):
            yield PlanWarning(
                node,
                f"pdb/{budget.key}",
                f"allows no eviction now ({budget.current_healthy} of {budget.desired_healthy} needed pods are "
                "healthy): the drain waits for it, up to --drain-timeout; see why its pods are not ready",
                WarningKind.BUDGET_WAITING,
            )
