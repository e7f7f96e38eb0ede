"""Find what will stop a node's drain, before anything is touched.

A budget can also block a drain because replacements fit on no other node. The order in which pods
take the last room is chance, so only a drain that fails in the best order is blocked; for the
others, the play warns. Preemption is not modeled: a drain that it would rescue is blocked here.
"""

from collections.abc import Iterator, Mapping, Sequence

from rollout.model.blocker_finding import (
    BudgetNever,
    BudgetUncounted,
    BudgetUnhealthy,
    BudgetUnscaled,
    DaemonSetGone,
    FitsNowhere,
    LocalStorage,
    PodRefused,
    StuckTerminating,
    TwoBudgets,
    UnmanagedPod,
)
from rollout.model.cluster import Budget, Pod, budget_subject
from rollout.model.plan import Blocker, PlanWarning, WarningKind
from rollout.model.policy import DrainPolicy
from rollout.model.quantity import Duration
from rollout.planning.drain.budgets import BudgetIndex, Headcount, bypasses, counts_pods
from rollout.planning.drain.scheduler import Nowhere
from rollout.planning.drain.verdicts import Action, PodVerdict, VerdictReason
from rollout.wording.blockers import blocker, stuck_terminating

# These have no replicas to add: a Job's pods come and go with its work, a Node's are static.
_NOT_SCALED = ("DaemonSet", "Job", "Node")
_WHOLE = 100
_REFUSALS: Mapping[VerdictReason, type[PodRefused]] = {
    VerdictReason.UNMANAGED: UnmanagedPod,
    VerdictReason.LOCAL_STORAGE: LocalStorage,
    VerdictReason.DAEMONSET_GONE: DaemonSetGone,
}


def drain_findings(
    node: str,
    verdicts: Sequence[PodVerdict],
    index: BudgetIndex,
    headcount: Headcount,
    rules: DrainPolicy,
) -> tuple[tuple[Blocker, ...], tuple[PlanWarning, ...]]:
    evicted = [verdict.pod for verdict in verdicts if verdict.action is Action.EVICT]
    pod_warnings = list[PlanWarning]()
    findings = list[Blocker | PlanWarning]()
    for verdict in verdicts:
        pod = verdict.pod
        subject = f"pod/{pod.key}"
        if verdict.action is Action.REFUSE:
            refusal = _REFUSALS[verdict.reason](verdict.message)
            findings.append(blocker(node, subject, refusal))
            continue
        pod_warnings += [
            PlanWarning(node, subject, warning, WarningKind.POD) for warning in verdict.warnings
        ]
        if verdict.action is Action.EVICT:
            findings += _overdue(node, pod, headcount, rules)
            findings += _slow_to_end(node, pod, headcount, rules)
            findings += _held_by_budgets(
                node, pod, index, headcount, patience=rules.timeout, evicted=evicted
            )
    blockers = [finding for finding in findings if isinstance(finding, Blocker)]
    warnings = [finding for finding in findings if isinstance(finding, PlanWarning)]
    return tuple(dict.fromkeys(blockers)), tuple(dict.fromkeys((*pod_warnings, *warnings)))


def _overdue(
    node: str, pod: Pod, headcount: Headcount, rules: DrainPolicy
) -> Iterator[Blocker | PlanWarning]:
    seconds = headcount.overdue(pod) if pod.terminating else 0
    if not seconds:
        return
    subject = f"pod/{pod.key}"
    overdue = Duration(round(seconds))
    if seconds > rules.timeout:
        yield blocker(node, subject, StuckTerminating(overdue, pod.finalizers, rules.timeout))
        return
    message = (
        f"{stuck_terminating(overdue, pod.finalizers)}; the drain waits for it, unless"
        " drain.skip-wait-for-delete-timeout skips it"
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
        f"may take {period} to terminate, and the drain waits {rules.timeout}: raise"
        " --drain-timeout, or shorten the grace period with --grace-period"
    )
    yield PlanWarning(node, f"pod/{pod.key}", message, WarningKind.LONG_GRACE)


def _held_by_budgets(
    node: str,
    pod: Pod,
    index: BudgetIndex,
    headcount: Headcount,
    *,
    patience: float,
    evicted: Sequence[Pod],
) -> Iterator[Blocker | PlanWarning]:
    """Yield what the pod's budgets do to its eviction; `evicted` are the drain's pods."""
    budgets = index.covering(pod)
    names = tuple(budget.name for budget in budgets if not budget.critical)
    bypasses_all = pod.finished or pod.terminating or headcount.stays_pending(pod, patience)
    if len(names) > 1 and not bypasses_all:
        yield blocker(node, f"pod/{pod.key}", TwoBudgets(names))
        return
    opening = storage_opening(pod)
    for budget in budgets:
        if bypasses(pod, budget):
            continue
        subject = budget_subject(budget.key)
        is_closed = budget.disruptions_allowed <= 0
        if opening:
            if is_closed:
                yield PlanWarning(node, subject, opening, WarningKind.BUDGET_WAITING)
        elif headcount.can_never_allow(budget):
            yield blocker(node, subject, _never(budget, headcount, pod))
        elif is_closed:
            yield _closed_budget(node, budget, headcount, patience, evicted)


def _closed_budget(
    node: str, budget: Budget, headcount: Headcount, patience: float, evicted: Sequence[Pod]
) -> Blocker | PlanWarning:
    subject = budget_subject(budget.key)
    unready = headcount.in_the_way(budget, patience)
    if not unready:
        message = (
            f"allows no eviction now ({budget.current_healthy} of {budget.desired_healthy}"
            " needed pods are healthy): the drain waits for it, up to --drain-timeout; see why"
            " its pods are not ready"
        )
        return PlanWarning(node, subject, message, WarningKind.BUDGET_WAITING)
    finding = BudgetUnhealthy(
        budget=budget,
        unready=tuple(pod.name for pod in unready),
        since=unready[0].unready_since,
        is_policy_enough=not any(pod.ready and budget.covers(pod) for pod in evicted),
    )
    return blocker(node, subject, finding)


def storage_opening(pod: Pod) -> str:
    """Return how a storage system opens its pod's budget; empty for other pods."""
    if pod.is_longhorns:
        return (
            "Longhorn removes it once the node is cordoned, unless a volume has its last healthy"
            " replica here, or stays attached; in that case the drain waits until --drain-timeout"
            " and fails"
        )
    if pod.is_osd:
        return (
            "Rook opens it for one failure domain at a time, once Ceph is healthy: the drain waits"
            " for it"
        )
    return ""


def _never(
    budget: Budget, headcount: Headcount, pod: Pod
) -> BudgetUncounted | BudgetUnscaled | BudgetNever:
    if budget.sync_error:
        return BudgetUncounted(budget.sync_error)
    if headcount.lacks_scale(budget):
        return BudgetUnscaled(budget, headcount.unowned[budget.key] - 1)
    is_scalable = pod.owner is not None and pod.owner.kind not in _NOT_SCALED
    return BudgetNever(
        budget=budget,
        ended=headcount.ended[budget.key] if counts_pods(budget) else 0,
        replicas=_missing_replicas(budget, headcount) if is_scalable else 0,
        healthy=headcount.most_healthy(budget),
    )


def stuck_budget(
    node: str, budget: Budget, headcount: Headcount, lost: Sequence[str], nowhere: Nowhere
) -> Blocker:
    """Return the blocker for a budget whose replacements fit on no other node.

    `lost` are the names of the pods without a place; `nowhere` says why the first has none.
    """
    finding = FitsNowhere(
        budget=budget,
        lost=tuple(lost),
        obstacle=nowhere.why,
        lacks_room=nowhere.lacks_room,
        away=headcount.most_away(budget),
        healthy=headcount.most_healthy(budget),
    )
    return blocker(node, budget_subject(budget.key), finding)


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
