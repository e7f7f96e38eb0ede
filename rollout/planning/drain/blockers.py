"""Find what will stop a node's drain, before anything is touched.

A budget can also block a drain because replacements fit on no other node. The order in which pods
take the last room is chance, so only a drain that fails in the best order is blocked; for the
others, the play warns. Preemption is not modeled: a drain that it would rescue is blocked here.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from rollout.model.cluster import Budget, Pod, budget_subject
from rollout.model.plan import Blocker, BlockerKind, PlanWarning, WarningKind
from rollout.model.policy import DrainPolicy
from rollout.model.quantity import Duration
from rollout.model.text import shortened
from rollout.planning.drain.budgets import BudgetIndex, Headcount, bypasses, counts_pods, in_words
from rollout.planning.drain.scheduler import Nowhere
from rollout.planning.drain.verdicts import Action, PodVerdict, VerdictReason

# These have no replicas to add: a Job's pods come and go with its work, a Node's are static.
_NOT_SCALED = ("DaemonSet", "Job", "Node")
_WHOLE = 100
_REFUSALS = {
    VerdictReason.UNMANAGED: BlockerKind.UNMANAGED_POD,
    VerdictReason.LOCAL_STORAGE: BlockerKind.LOCAL_STORAGE,
    VerdictReason.DAEMONSET_GONE: BlockerKind.DAEMONSET_GONE,
}


def drain_findings(
    node: str,
    verdicts: Iterable[PodVerdict],
    index: BudgetIndex,
    headcount: Headcount,
    rules: DrainPolicy,
) -> tuple[tuple[Blocker, ...], tuple[PlanWarning, ...]]:
    verdicts = tuple(verdicts)

    def unready_only(budget: Budget) -> bool:
        evicted = (verdict.pod for verdict in verdicts if verdict.action is Action.EVICT)
        return not any(pod.ready and budget.covers(pod) for pod in evicted)

    of_pods = list[PlanWarning]()
    of_drain = list[Blocker | PlanWarning]()
    for verdict in verdicts:
        pod = verdict.pod
        if verdict.action is Action.REFUSE:
            of_drain.append(
                Blocker(node, _REFUSALS[verdict.reason], f"pod/{pod.key}", verdict.message)
            )
            continue
        of_pods += [
            PlanWarning(node, f"pod/{pod.key}", warning, WarningKind.POD)
            for warning in verdict.warnings
        ]
        if verdict.action is Action.EVICT:
            of_drain += _overdue(node, pod, headcount, rules) if pod.deleted_at else ()
            of_drain += _slow_to_end(node, pod, headcount, rules)
            of_drain += _held_by_budgets(
                node,
                pod,
                index.covering(pod),
                headcount,
                patience=rules.timeout,
                unready_only=unready_only,
            )
    blockers = (finding for finding in of_drain if isinstance(finding, Blocker))
    warnings = (finding for finding in of_drain if isinstance(finding, PlanWarning))
    return tuple(dict.fromkeys(blockers)), tuple(dict.fromkeys((*of_pods, *warnings)))


def _overdue(
    node: str, pod: Pod, headcount: Headcount, rules: DrainPolicy
) -> Iterator[Blocker | PlanWarning]:
    seconds = headcount.overdue(pod)
    subject = f"pod/{pod.key}"
    if not seconds:
        return
    held = f" and is held by {', '.join(pod.finalizers)}" if pod.finalizers else ""
    since = f"should have been gone {Duration(round(seconds))} ago{held}"
    if seconds > rules.timeout:
        setting = f"--set drain.skip-wait-for-delete-timeout={rules.timeout}"
        way_out = f"see what holds it, or leave it behind with {setting}"
        message = f"{since}, longer than --drain-timeout waits: {way_out}"
        yield Blocker(node, BlockerKind.STUCK_TERMINATING, subject, message)
    else:
        message = (
            f"{since}: the drain waits for it, unless drain.skip-wait-for-delete-timeout leaves it"
            " behind"
        )
        yield PlanWarning(node, subject, message, WarningKind.TERMINATING)


def _slow_to_end(
    node: str, pod: Pod, headcount: Headcount, rules: DrainPolicy
) -> Iterator[PlanWarning]:
    """Warn if the pod's grace period is at least as long as the drain may take."""
    if pod.finished:
        return
    grace = rules.grace_of(pod.grace_period)
    if pod.terminating:
        # Another eviction can only shorten the grace period.
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
    node: str,
    pod: Pod,
    budgets: tuple[Budget, ...],
    headcount: Headcount,
    *,
    patience: float,
    unready_only: Callable[[Budget], bool],
) -> Iterator[Blocker | PlanWarning]:
    of_server = [budget for budget in budgets if not budget.critical]
    if (
        len(of_server) > 1
        and not pod.finished
        and not pod.terminating
        and not headcount.stays_pending(pod, patience)
    ):
        names = ", ".join(budget.name for budget in of_server)
        message = (
            f"is covered by {len(of_server)} budgets ({names}); the API server refuses to evict"
            " such a pod: delete all but one of these budgets, or use --disable-eviction"
        )
        yield Blocker(node, BlockerKind.TWO_BUDGETS, f"pod/{pod.key}", message)
        return
    for budget in budgets:
        subject = budget_subject(budget.key)
        is_open = budget.disruptions_allowed > 0
        opening = storage_opening(pod)
        if bypasses(pod, budget) or (is_open and opening):
            continue
        if opening:
            yield PlanWarning(node, subject, opening, WarningKind.BUDGET_WAITING)
        elif headcount.can_never_allow(budget):
            yield Blocker(node, BlockerKind.BUDGET_NEVER, subject, _never(budget, headcount, pod))
        elif is_open:
            continue
        elif unready := headcount.in_the_way(budget, patience):
            message = _unhealthy(budget, unready, are_all_unready=unready_only(budget))
            yield Blocker(node, BlockerKind.BUDGET_UNHEALTHY, subject, message)
        else:
            message = (
                f"allows no eviction now ({budget.current_healthy} of {budget.desired_healthy}"
                " needed pods are healthy): the drain waits for it, up to --drain-timeout; see why"
                " its pods are not ready"
            )
            yield PlanWarning(node, subject, message, WarningKind.BUDGET_WAITING)


def storage_opening(pod: Pod) -> str:
    """Return how a storage system opens its pod's budget; empty for other pods."""
    if pod.is_longhorns:
        return (
            "Longhorn takes it away once the node is cordoned, unless a volume has its last healthy"
            " replica here, or stays attached: then the drain waits in vain, up to --drain-timeout"
        )
    if pod.is_osd:
        return (
            "Rook opens it for one failure domain at a time, once Ceph is healthy: the drain waits"
            " for it"
        )
    return ""


def _never(budget: Budget, headcount: Headcount, pod: Pod) -> str:
    if budget.sync_error:
        options = _fixes(
            "give it an absolute minAvailable", "let it cover only pods of scalable controllers"
        )
        return (
            "allows no eviction because its controller cannot count its pods"
            f" ({budget.sync_error}): {options}"
        )
    if headcount.lacks_scale(budget):
        absolute = f"give it an absolute minAvailable of {headcount.unowned[budget.key] - 1}"
        return (
            f"{in_words(budget)} never allows an eviction because it goes by the scale of its pods'"
            f" controllers, and they have none: {_fixes(absolute)}"
        )
    ended = headcount.ended[budget.key] if counts_pods(budget) else 0
    counted = f"{budget.expected_pods} pods" + (f", {ended} of which ended," if ended else "")
    options = _fixes(_scaled_up(budget, headcount, pod), _let_away(budget, headcount, 1))
    return f"{in_words(budget)} of {counted} never allows an eviction: {options}"


def _unhealthy(budget: Budget, unready: tuple[Pod, ...], *, are_all_unready: bool) -> str:
    """`are_all_unready`: none of its pods that leave this node is ready."""
    policy = "set its unhealthyPodEvictionPolicy to AlwaysAllow" if are_all_unready else ""
    names = shortened([pod.name for pod in unready], 1)
    has, them = ("has", "it") if len(unready) == 1 else ("have", "them")
    return (
        f"needs {budget.desired_healthy} healthy pods and has {budget.current_healthy}, and {names}"
        f" {has} not been ready since {unready[0].unready_since}:"
        f" {_fixes(f'make {them} ready', policy)}"
    )


def stuck_budget(
    node: str, budget: Budget, headcount: Headcount, lost: Sequence[str], nowhere: Nowhere
) -> Blocker:
    """Return the blocker for a budget whose replacements fit on no other node.

    `lost` are the names of the pods without a place; `nowhere` says why the first has none.
    """
    more = f" (and {len(lost) - 1} more of this budget)" if len(lost) > 1 else ""
    room = "make room on other nodes" if nowhere.lacks_room else ""
    message = (
        f"{lost[0]}{more} fits nowhere else while this node is away: {nowhere.why}; and it lets"
        f" {headcount.most_away(budget)} be away:"
        f" {_fixes(room, _let_away(budget, headcount, len(lost)))}"
    )
    return Blocker(node, BlockerKind.FITS_NOWHERE, budget_subject(budget.key), message)


def _fixes(*clauses: str) -> str:
    """Join the changes that are not empty; each of them alone clears the blocker."""
    offered = [clause for clause in (*clauses, "use --disable-eviction") if clause]
    if len(offered) == 1:
        return offered[0]
    comma = "," if len(offered) > 2 else ""  # noqa: PLR2004 - two are joined by "or" alone
    return f"{', '.join(offered[:-1])}{comma} or {offered[-1]}"


def _let_away(budget: Budget, headcount: Headcount, away: int) -> str:
    """Return the change of the budget that lets `away` pods be away at once."""
    if budget.max_unavailable:
        return f"raise its maxUnavailable to {away}"
    field = "min-available" if budget.critical else "minAvailable"
    return f"lower its {field} to {max(0, headcount.most_healthy(budget) - away)}"


def _scaled_up(budget: Budget, headcount: Headcount, pod: Pod) -> str:
    """Return how many more replicas make the budget allow an eviction; empty if no number does."""
    if pod.owner is None or pod.owner.kind in _NOT_SCALED:
        return ""
    missing = _missing_replicas(budget, headcount)
    if not missing:
        return ""
    return "add a replica" if missing == 1 else f"add {missing} replicas"


def _missing_replicas(budget: Budget, headcount: Headcount) -> int:
    """Return how many more replicas open the budget; 0 if no number does."""
    if budget.max_unavailable:
        return 0
    most = headcount.most_healthy(budget)
    if not budget.min_available.endswith("%"):
        return budget.desired_healthy - most + 1
    percent = int(budget.min_available.removesuffix("%"))
    # With 100 more pods, each percent is at least one pod that may be unavailable.
    for more in range(1, _WHOLE + 1):
        needed = -(-percent * (budget.expected_pods + more) // _WHOLE)
        if most + more > needed:
            return more
    return 0
