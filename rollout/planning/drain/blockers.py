"""What will stop a node's drain, found before anything is touched.

Besides what pods and budgets say by themselves, it is tried whether budgets wait in vain for replacements, which fit
nowhere else. Which nodes a pod moves to is foreseen, not known, and in which order a drain's pods get the last room is
chance: so the trial is the most favourable one, and where a drain fails merely if pods arrive as foreseen, or take room
in an unlucky order, the layout warns. Priorities are not known here: where a pod preempts another, whose budget is then
broken, a drain might end all the same.
"""

from collections.abc import Iterable, Iterator, Sequence

from rollout.model.cluster import Budget, Pod, finding_of
from rollout.model.plan import Blocker, BlockerKind, PlanWarning, WarningKind
from rollout.model.policy import DrainPolicy
from rollout.model.quantity import Duration
from rollout.model.text import shortened
from rollout.planning.drain.budgets import BudgetIndex, Headcount, bypasses, counts_pods, in_words
from rollout.planning.drain.verdicts import Action, PodVerdict, VerdictReason

_REFUSALS = {
    VerdictReason.UNMANAGED: BlockerKind.UNMANAGED_POD,
    VerdictReason.LOCAL_STORAGE: BlockerKind.LOCAL_STORAGE,
    VerdictReason.DAEMONSET_GONE: BlockerKind.DAEMONSET_GONE,
}


def drain_findings(
    node: str, verdicts: Iterable[PodVerdict], index: BudgetIndex, headcount: Headcount, rules: DrainPolicy
) -> tuple[tuple[Blocker, ...], tuple[PlanWarning, ...]]:
    """Return what keeps this node from being drained by these rules, and what the operator should know of that."""
    patience = rules.timeout
    of_pods, of_drain = list[PlanWarning](), list[Blocker | PlanWarning]()
    for verdict in verdicts:
        pod = verdict.pod
        if verdict.action is Action.REFUSE:
            of_drain.append(Blocker(node, _REFUSALS[verdict.reason], f"pod/{pod.key}", verdict.message))
            continue
        of_pods += [PlanWarning(node, f"pod/{pod.key}", warning, WarningKind.POD) for warning in verdict.warnings]
        if verdict.action is Action.EVICT:
            of_drain += _overdue(node, pod, headcount, patience) if pod.deleted_at else ()
            of_drain += _slow_to_end(node, pod, headcount, rules)
            of_drain += _held_by_budgets(node, pod, index.covering(pod), headcount, patience)
    blockers = (finding for finding in of_drain if isinstance(finding, Blocker))
    warnings = (finding for finding in of_drain if isinstance(finding, PlanWarning))
    return tuple(dict.fromkeys(blockers)), tuple(dict.fromkeys((*of_pods, *warnings)))


def _overdue(node: str, pod: Pod, headcount: Headcount, patience: float) -> Iterator[Blocker | PlanWarning]:
    seconds, subject = headcount.overdue(pod), f"pod/{pod.key}"
    if not seconds:
        return
    held = f" and is held by {', '.join(pod.finalizers)}" if pod.finalizers else ""
    since = f"should have been gone {Duration(round(seconds))} ago{held}"
    if seconds > patience:
        way_out = "see what holds it, or leave it behind with drain.skip-wait-for-delete-timeout"
        message = f"{since}, longer than --drain-timeout waits: {way_out}"
        yield Blocker(node, BlockerKind.STUCK_TERMINATING, subject, message)
    else:
        message = f"{since}: the drain waits for it, unless drain.skip-wait-for-delete-timeout leaves it behind"
        yield PlanWarning(node, subject, message, WarningKind.TERMINATING)


def _slow_to_end(node: str, pod: Pod, headcount: Headcount, rules: DrainPolicy) -> Iterator[PlanWarning]:
    """Warn of a pod whose grace period lasts as long as the drain may take."""
    if pod.finished:
        return
    grace = rules.grace_of(pod.grace_period)
    if pod.terminating:
        # a later eviction can shorten the grace period that it has, and no more
        left = round(headcount.grace_left(pod))
        grace = left if rules.grace_period is None else min(grace, left)
    if grace < rules.timeout:
        return
    period = f"another {Duration(grace)}" if pod.terminating else Duration(grace)
    message = (
        f"may take {period} to terminate, and the drain waits {rules.timeout}: "
        "raise --drain-timeout, or shorten the grace period with --grace-period"
    )
    yield PlanWarning(node, f"pod/{pod.key}", message, WarningKind.LONG_GRACE)


def _held_by_budgets(
    node: str, pod: Pod, budgets: tuple[Budget, ...], headcount: Headcount, patience: float
) -> Iterator[Blocker | PlanWarning]:
    of_server = [budget for budget in budgets if not budget.critical]
    if len(of_server) > 1 and not pod.finished and not pod.terminating and not headcount.stays_pending(pod, patience):
        names = ", ".join(budget.name for budget in of_server)
        message = (
            f"is covered by {len(of_server)} budgets ({names}); the API server refuses to evict such a pod: "
            "delete all but one"
        )
        yield Blocker(node, BlockerKind.TWO_BUDGETS, f"pod/{pod.key}", message)
        return
    for budget in budgets:
        subject, is_open = finding_of(budget.key), budget.disruptions_allowed > 0
        if bypasses(pod, budget) or (is_open and way_given(pod)):
            continue
        if way := way_given(pod):
            yield PlanWarning(node, subject, way, WarningKind.BUDGET_WAITING)
        elif headcount.can_never_allow(budget):
            yield Blocker(node, BlockerKind.BUDGET_NEVER, subject, _never(budget, headcount))
        elif is_open:
            continue
        elif unready := headcount.in_the_way(budget, patience):
            message = _unhealthy(budget, unready, itself=pod in unready)
            yield Blocker(node, BlockerKind.BUDGET_UNHEALTHY, subject, message)
        else:
            message = (
                f"allows no eviction now ({budget.current_healthy} of {budget.desired_healthy} needed pods are "
                "healthy): the drain waits for it, up to --drain-timeout; see why its pods are not ready"
            )
            yield PlanWarning(node, subject, message, WarningKind.BUDGET_WAITING)


def way_given(pod: Pod) -> str:
    """How the storage whose pod this is lets its own budget give way; empty for all other pods."""
    if pod.is_longhorns:
        return (
            "Longhorn takes it away once the node is cordoned, unless a volume has its last healthy replica here, "
            "or stays attached: then the drain waits in vain, up to --drain-timeout"
        )
    if pod.is_osd:
        return "Rook opens it for one failure domain at a time, once Ceph is healthy: the drain waits for it"
    return ""


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
    ended = headcount.ended[budget.key] if counts_pods(budget) else 0
    counted = f"{budget.expected_pods} pods" + (f", {ended} of which ended," if ended else "")
    return (
        f"{in_words(budget)} of {counted} never allows an eviction: "
        "add a replica, relax the budget temporarily, or use --disable-eviction"
    )


def _unhealthy(budget: Budget, unready: tuple[Pod, ...], *, itself: bool) -> str:
    policy = "set its unhealthyPodEvictionPolicy to AlwaysAllow, " if itself else ""
    names = shortened([pod.name for pod in unready], 1)
    return (
        f"needs {budget.desired_healthy} healthy pods and has {budget.current_healthy}, and {names} "
        f"has not been ready since {unready[0].unready_since}: fix it, {policy}or use --disable-eviction"
    )


def stuck_budget(node: str, key: str, lost: Sequence[str], most: int, why: str) -> Blocker:
    """Return what is said of a budget that will hold a drain up for ever, as too many replacements fit nowhere else.

    It lets `most` of its pods be away, and these are `lost` until the node is back; `why` is of the first of them.
    """
    more = f" (and {len(lost) - 1} more of this budget)" if len(lost) > 1 else ""
    message = (
        f"{lost[0]}{more} fits nowhere else while this node is away: {why}; and it lets {most} be away: make room on "
        "other nodes, relax the budget temporarily, or use --disable-eviction"
    )
    return Blocker(node, BlockerKind.FITS_NOWHERE, finding_of(key), message)
