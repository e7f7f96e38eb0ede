"""Find what will stop a node's drain, before anything is touched.

A budget can also block a drain because replacements fit on no other node. Only a drain that fails
in the best order of pods is blocked; for the others, the play warns. Preemption is not modeled: a
drain that it would rescue is blocked.
"""

from collections.abc import Iterable, Iterator, Sequence

from rollout.model.blocker_finding import (
    BudgetNever,
    BudgetUncounted,
    BudgetUnhealthy,
    BudgetUnscaled,
    FitsNowhere,
    PodRefused,
    StuckTerminating,
    TwoBudgets,
)
from rollout.model.cluster import Budget, Pod, budget_subject
from rollout.model.drain_finding import Nowhere
from rollout.model.plan import Blocker, PlanWarning
from rollout.model.policy import DrainPolicy
from rollout.model.quantity import Duration
from rollout.model.warning_finding import (
    BudgetClosed,
    BudgetManaged,
    BudgetSurged,
    LongGrace,
    LonghornOpens,
    RookOpens,
    TerminatingLate,
)
from rollout.planning.drain.budgets import (
    BudgetIndex,
    Headcount,
    bypasses,
    controller_of,
    counts_pods,
)
from rollout.planning.drain.surge import Surges
from rollout.planning.drain.verdicts import Action, PodVerdict
from rollout.wording.blockers import blocker
from rollout.wording.warnings import warning

# These have no replicas to add: a Job's pods come and go with its work, a Node's are static.
_NOT_SCALED = ("DaemonSet", "Job", "Node")
_HUNDRED = 100


def drain_findings(
    node: str,
    verdicts: Sequence[PodVerdict],
    index: BudgetIndex,
    headcount: Headcount,
    rules: DrainPolicy,
    surges: Surges,
) -> tuple[tuple[Blocker, ...], tuple[PlanWarning, ...]]:
    evicted = [verdict.pod for verdict in verdicts if verdict.action is Action.EVICT]
    pod_warnings = list[PlanWarning]()
    findings = list[Blocker | PlanWarning]()
    for verdict in verdicts:
        pod = verdict.pod
        subject = f"pod/{pod.key}"
        if verdict.action is Action.REFUSE:
            findings.append(blocker(node, subject, PodRefused(verdict.because)))
            continue
        pod_warnings += [warning(node, subject, finding) for finding in verdict.warnings]
        if verdict.action is Action.EVICT:
            findings += _overdue_findings(node, pod, headcount, rules)
            findings += _grace_warnings(node, pod, headcount, rules)
            findings += _budget_findings(
                node,
                pod,
                index,
                headcount,
                patience=rules.timeout,
                evicted=evicted,
                surges=surges,
            )
    blockers = [finding for finding in findings if isinstance(finding, Blocker)]
    warnings = [finding for finding in findings if isinstance(finding, PlanWarning)]
    return tuple(dict.fromkeys(blockers)), tuple(dict.fromkeys((*pod_warnings, *warnings)))


def _overdue_findings(
    node: str, pod: Pod, headcount: Headcount, rules: DrainPolicy
) -> Iterator[Blocker | PlanWarning]:
    seconds = headcount.seconds_overdue(pod) if pod.terminating else 0
    if not seconds:
        return
    subject = f"pod/{pod.key}"
    overdue = Duration(round(seconds))
    if seconds > rules.timeout:
        yield blocker(node, subject, StuckTerminating(overdue, pod.finalizers, rules.timeout))
        return
    yield warning(node, subject, TerminatingLate(overdue, pod.finalizers))


def _grace_warnings(
    node: str, pod: Pod, headcount: Headcount, rules: DrainPolicy
) -> Iterator[PlanWarning]:
    if pod.finished:
        return
    grace = rules.grace_of(pod.grace_period)
    if pod.terminating:
        # Another eviction can only shorten the grace period.
        left = round(headcount.grace_seconds_left(pod))
        grace = left if rules.grace_period is None else min(grace, left)
    if grace < rules.timeout:
        return
    slow = LongGrace(Duration(grace), is_terminating=pod.terminating, timeout=rules.timeout)
    yield warning(node, f"pod/{pod.key}", slow)


def _budget_findings(
    node: str,
    pod: Pod,
    index: BudgetIndex,
    headcount: Headcount,
    *,
    patience: float,
    evicted: Sequence[Pod],
    surges: Surges,
) -> Iterator[Blocker | PlanWarning]:
    budgets = index.covering(pod)
    names = tuple(budget.name for budget in budgets if not budget.critical)
    bypasses_all = pod.finished or pod.terminating or headcount.stays_pending(pod, patience)
    if len(names) > 1 and not bypasses_all:
        yield blocker(node, f"pod/{pod.key}", TwoBudgets(names))
        return
    opened_by_storage = storage_opening(pod)
    for budget in budgets:
        if bypasses(pod, budget):
            continue
        subject = budget_subject(budget.key)
        is_closed = budget.disruptions_allowed <= 0
        controller = controller_of(budget, _pods_held_by(budget, evicted)) if is_closed else None
        restarted = surges.restarted(pod, budget)
        if opened_by_storage:
            if is_closed:
                yield warning(node, subject, opened_by_storage)
        elif controller is not None:
            is_alone = headcount.is_alone(pod, budget, controller)
            managed = BudgetManaged(budget.namespace, controller, is_alone=is_alone)
            yield warning(node, subject, managed)
        elif restarted is not None:
            yield warning(node, subject, BudgetSurged(restarted.key))
        elif headcount.can_never_allow(budget):
            yield blocker(node, subject, _why_never_open(budget, headcount, pod, surges))
        elif is_closed:
            yield _closed_budget_finding(
                node, budget, headcount, patience=patience, evicted=evicted
            )


def _pods_held_by(budget: Budget, pods: Iterable[Pod]) -> Iterator[Pod]:
    return (pod for pod in pods if budget.covers(pod) and not bypasses(pod, budget))


def _closed_budget_finding(
    node: str, budget: Budget, headcount: Headcount, patience: float, evicted: Sequence[Pod]
) -> Blocker | PlanWarning:
    subject = budget_subject(budget.key)
    unready = headcount.unready_in_the_way(budget, patience)
    if not unready:
        closed = BudgetClosed(budget.current_healthy, budget.desired_healthy)
        return warning(node, subject, closed)
    finding = BudgetUnhealthy(
        budget=budget,
        unready=tuple(pod.name for pod in unready),
        since=unready[0].unready_since,
        is_policy_enough=not any(pod.ready and budget.covers(pod) for pod in evicted),
    )
    return blocker(node, subject, finding)


def storage_opening(pod: Pod) -> LonghornOpens | RookOpens | None:
    """Return the warning if the pod's storage system opens its budget."""
    if pod.is_of_longhorn:
        return LonghornOpens()
    return RookOpens() if pod.is_osd else None


def _why_never_open(
    budget: Budget, headcount: Headcount, pod: Pod, surges: Surges
) -> BudgetUncounted | BudgetUnscaled | BudgetNever:
    if budget.sync_error:
        return BudgetUncounted(budget.sync_error)
    if headcount.lacks_scale(budget):
        # One pod may be evicted then.
        return BudgetUnscaled(budget, min_available=headcount.unowned[budget.key] - 1)
    is_scalable = pod.owner is not None and pod.owner.kind not in _NOT_SCALED
    return BudgetNever(
        budget=budget,
        ended=headcount.ended[budget.key] if counts_pods(budget) else 0,
        replicas=_missing_replicas(budget, headcount) if is_scalable else 0,
        healthy=headcount.most_healthy(budget),
        restart=surges.restart_of(pod, budget),
    )


def stuck_budget(
    node: str, budget: Budget, headcount: Headcount, lost: Sequence[str], obstacle: Nowhere
) -> Blocker:
    """`lost` are the names of pods without a place; `obstacle` says why the first has none."""
    finding = FitsNowhere(
        budget=budget,
        lost=tuple(lost),
        obstacle=obstacle,
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
    for more in range(1, _HUNDRED + 1):
        needed = -(-percent * (budget.expected_pods + more) // _HUNDRED)
        if most + more > needed:
            return more
    return 0
