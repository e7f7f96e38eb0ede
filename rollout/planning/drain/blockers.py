"""Find what will stop a node's drain, before anything is touched.

A drain is blocked only if it fails in the best order of pods. Preemption is not modeled.
"""

import math
from collections.abc import Iterator, Sequence

from msgspec import Struct

from rollout.model.blocker_finding import (
    BudgetNever,
    BudgetUncounted,
    BudgetUnhealthy,
    BudgetUnscaled,
    FitsNowhere,
    PodRefused,
    SeveralBudgets,
    StuckTerminating,
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
    bypasses_budget,
    counts_selected_pods,
    managing_owner,
)
from rollout.planning.drain.surge import Surges
from rollout.planning.drain.verdicts import Action, PodVerdict
from rollout.wording.blockers import blocker
from rollout.wording.warnings import warning

# Nobody can give these owners more replicas.
_NOT_SCALED = ("DaemonSet", "Job", "Node")
_HUNDRED = 100


class DrainChecker(Struct, frozen=True):
    node: str
    verdicts: Sequence[PodVerdict]
    index: BudgetIndex
    headcount: Headcount
    rules: DrainPolicy
    surges: Surges

    def check(self) -> tuple[tuple[Blocker, ...], tuple[PlanWarning, ...]]:
        pod_warnings = list[PlanWarning]()
        findings = list[Blocker | PlanWarning]()
        for verdict in self.verdicts:
            pod = verdict.pod
            subject = f"pod/{pod.key}"
            if verdict.action is Action.REFUSE:
                findings.append(blocker(self.node, subject, PodRefused(verdict.because)))
                continue
            pod_warnings += [warning(self.node, subject, reason) for reason in verdict.warnings]
            if verdict.action is Action.EVICT:
                findings += self._check_overdue(pod)
                findings += self._check_grace_period(pod)
                findings += self._check_budgets(pod)
        blockers = [finding for finding in findings if isinstance(finding, Blocker)]
        warnings = [finding for finding in findings if isinstance(finding, PlanWarning)]
        return tuple(dict.fromkeys(blockers)), tuple(dict.fromkeys((*pod_warnings, *warnings)))

    def _check_overdue(self, pod: Pod) -> Iterator[Blocker | PlanWarning]:
        seconds = self.headcount.seconds_overdue(pod) if pod.terminating else 0
        if not seconds:
            return
        subject = f"pod/{pod.key}"
        overdue = Duration(round(seconds))
        timeout = self.rules.timeout
        if seconds > timeout:
            yield blocker(self.node, subject, StuckTerminating(overdue, pod.finalizers, timeout))
        else:
            yield warning(self.node, subject, TerminatingLate(overdue, pod.finalizers))

    def _check_grace_period(self, pod: Pod) -> Iterator[PlanWarning]:
        if pod.finished:
            return
        rules = self.rules
        grace = rules.grace_of(pod.grace_period)
        if pod.terminating:
            # Another eviction can only shorten the time that is left.
            remaining = round(self.headcount.grace_seconds_left(pod))
            grace = remaining if rules.grace_period is None else min(grace, remaining)
        if grace >= rules.timeout:
            slow = LongGrace(Duration(grace), is_terminating=pod.terminating, timeout=rules.timeout)
            yield warning(self.node, f"pod/{pod.key}", slow)

    def _check_budgets(self, pod: Pod) -> Iterator[Blocker | PlanWarning]:
        budgets = self.index.covering(pod)
        names = tuple(budget.name for budget in budgets if not budget.critical)
        stays_pending = self.headcount.stays_pending(pod, self.rules.timeout)
        bypasses_all = pod.finished or pod.terminating or stays_pending
        # The API server refuses to evict a pod with several budgets, and knows no critical rules.
        if len(names) > 1 and not bypasses_all:
            yield blocker(self.node, f"pod/{pod.key}", SeveralBudgets(names))
            return
        for budget in budgets:
            if not bypasses_budget(pod, budget):
                yield from self._check_budget(pod, budget)

    def _check_budget(self, pod: Pod, budget: Budget) -> Iterator[Blocker | PlanWarning]:
        subject = budget_subject(budget.key)
        is_closed = budget.disruptions_allowed <= 0
        opened_by_storage = find_storage_operator(pod)
        if opened_by_storage is not None:
            if is_closed:
                yield warning(self.node, subject, opened_by_storage)
            return
        owner = managing_owner(budget, self._pods_held_by(budget)) if is_closed else None
        deployment = self.surges.deployment_to_restart(pod, budget)
        if owner is not None:
            is_alone = self.headcount.is_alone(pod, budget, owner)
            managed = BudgetManaged(budget.namespace, owner, is_alone=is_alone)
            yield warning(self.node, subject, managed)
        elif deployment is not None:
            yield warning(self.node, subject, BudgetSurged(deployment.key))
        elif self.headcount.can_never_allow(budget):
            finding = _why_never_open(budget, pod, self.headcount, self.surges)
            yield blocker(self.node, subject, finding)
        elif is_closed:
            yield self._check_closed(budget)

    def _check_closed(self, budget: Budget) -> Blocker | PlanWarning:
        """Return a blocker if long unready pods keep the budget closed, else a warning."""
        subject = budget_subject(budget.key)
        unready = self.headcount.unready_pods_blocking(budget, self.rules.timeout)
        if not unready:
            closed = BudgetClosed(budget.current_healthy, budget.desired_healthy)
            return warning(self.node, subject, closed)
        covered = [pod for pod in self._evicted() if budget.covers(pod)]
        finding = BudgetUnhealthy(
            budget=budget,
            unready=tuple(pod.name for pod in unready),
            since=unready[0].unready_since,
            # AlwaysAllow lets unready pods go, but no ready pod.
            is_policy_enough=not any(pod.ready for pod in covered),
        )
        return blocker(self.node, subject, finding)

    def _pods_held_by(self, budget: Budget) -> Iterator[Pod]:
        covered = (pod for pod in self._evicted() if budget.covers(pod))
        return (pod for pod in covered if not bypasses_budget(pod, budget))

    def _evicted(self) -> Iterator[Pod]:
        return (verdict.pod for verdict in self.verdicts if verdict.action is Action.EVICT)


def find_storage_operator(pod: Pod) -> LonghornOpens | RookOpens | None:
    """Return which operator opens the pod's budget during the drain, or None."""
    if pod.is_of_longhorn:
        return LonghornOpens()
    return RookOpens() if pod.is_osd else None


def _why_never_open(
    budget: Budget, pod: Pod, headcount: Headcount, surges: Surges
) -> BudgetUncounted | BudgetUnscaled | BudgetNever:
    if budget.sync_error:
        return BudgetUncounted(budget.sync_error)
    if headcount.lacks_scale(budget):
        # One less than there are pods, so that one may go.
        return BudgetUnscaled(budget, min_available=headcount.unowned_by_budget[budget.key] - 1)
    is_scalable = pod.owner is not None and pod.owner.kind not in _NOT_SCALED
    return BudgetNever(
        budget=budget,
        ended=headcount.ended_by_budget[budget.key] if counts_selected_pods(budget) else 0,
        replicas=_missing_replicas(budget, headcount) if is_scalable else 0,
        healthy=headcount.most_healthy(budget),
        restart=surges.find_restart(pod, budget),
    )


def stuck_budget_blocker(
    node: str, budget: Budget, headcount: Headcount, lost: Sequence[str], obstacle: Nowhere
) -> Blocker:
    """Return a blocker for a budget whose `lost` pods (names) fit on no other node."""
    finding = FitsNowhere(
        budget=budget,
        lost=tuple(lost),
        obstacle=obstacle,
        away=headcount.most_away(budget),
        healthy=headcount.most_healthy(budget),
    )
    return blocker(node, budget_subject(budget.key), finding)


def _missing_replicas(budget: Budget, headcount: Headcount) -> int:
    """Return how many more replicas would open the budget; 0 if no number does."""
    # A maxUnavailable of 0 stays 0 with more pods.
    if budget.max_unavailable:
        return 0
    most_healthy = headcount.most_healthy(budget)
    if not budget.min_available.endswith("%"):
        return budget.desired_healthy - most_healthy + 1
    percent = int(budget.min_available.removesuffix("%"))
    # With 100 more pods, each percent is at least one pod, so more replicas do not help.
    for added in range(1, _HUNDRED + 1):
        expected = budget.expected_pods + added
        # Kubernetes rounds up.
        needed = math.ceil(percent * expected / _HUNDRED)
        if most_healthy + added > needed:
            return added
    return 0
