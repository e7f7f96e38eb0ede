"""Find what will stop a node's drain.

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
        verdict_warnings = list[PlanWarning]()
        findings = list[Blocker | PlanWarning]()
        for verdict in self.verdicts:
            pod = verdict.pod
            subject = f"pod/{pod.key}"
            if verdict.action is Action.REFUSE:
                findings.append(blocker(self.node, subject, PodRefused(verdict.because)))
                continue
            verdict_warnings += [warning(self.node, subject, reason) for reason in verdict.warnings]
            if verdict.action is Action.EVICT:
                findings += self._check_overdue(pod)
                findings += self._check_grace_period(pod)
                findings += self._check_budgets(pod)
        blockers = [finding for finding in findings if isinstance(finding, Blocker)]
        warnings = [finding for finding in findings if isinstance(finding, PlanWarning)]
        unique_warnings = dict.fromkeys((*verdict_warnings, *warnings))
        return tuple(dict.fromkeys(blockers)), tuple(unique_warnings)

    def _check_overdue(self, pod: Pod) -> Iterator[Blocker | PlanWarning]:
        if not pod.terminating:
            return
        seconds_overdue = self.headcount.seconds_overdue(pod)
        if not seconds_overdue:
            return
        subject = f"pod/{pod.key}"
        overdue = Duration(round(seconds_overdue))
        timeout = self.rules.timeout
        # Such a late pod is likely to outlast the drain, too.
        if seconds_overdue > timeout:
            yield blocker(self.node, subject, StuckTerminating(overdue, pod.finalizers, timeout))
        else:
            yield warning(self.node, subject, TerminatingLate(overdue, pod.finalizers))

    def _check_grace_period(self, pod: Pod) -> Iterator[PlanWarning]:
        if pod.finished:
            return
        rules = self.rules
        grace = rules.grace_of(pod.grace_period)
        if pod.terminating:
            remaining = round(self.headcount.grace_seconds_left(pod))
            is_evicted_again = rules.grace_period is not None
            grace = min(grace, remaining) if is_evicted_again else remaining
        if grace >= rules.timeout:
            slow = LongGrace(Duration(grace), is_terminating=pod.terminating, timeout=rules.timeout)
            yield warning(self.node, f"pod/{pod.key}", slow)

    def _check_budgets(self, pod: Pod) -> Iterator[Blocker | PlanWarning]:
        budgets = self.index.covering(pod)
        known_to_server = tuple(budget.name for budget in budgets if not budget.critical)
        stays_pending = self.headcount.stays_pending(pod, self.rules.timeout)
        needs_no_budget = pod.finished or pod.terminating or stays_pending
        # The API server refuses to evict a pod that several budgets cover.
        if len(known_to_server) > 1 and not needs_no_budget:
            yield blocker(self.node, f"pod/{pod.key}", SeveralBudgets(known_to_server))
            return
        for budget in budgets:
            if bypasses_budget(pod, budget):
                continue
            finding = self._check_budget(pod, budget)
            if finding is not None:
                yield finding

    def _check_budget(self, pod: Pod, budget: Budget) -> Blocker | PlanWarning | None:
        subject = budget_subject(budget.key)
        is_closed = budget.disruptions_allowed <= 0
        opened_by_storage = find_storage_operator(pod)
        if opened_by_storage is not None:
            return warning(self.node, subject, opened_by_storage) if is_closed else None
        if is_closed:
            owner = managing_owner(budget, self._pods_held_by(budget))
            if owner is not None:
                is_alone = self.headcount.is_alone(pod, budget, owner)
                opened_by_controller = BudgetManaged(budget.namespace, owner, is_alone=is_alone)
                return warning(self.node, subject, opened_by_controller)
        deployment = self.surges.deployment_to_restart(pod, budget)
        if deployment is not None:
            return warning(self.node, subject, BudgetSurged(deployment.key))
        if self.headcount.can_never_allow(budget):
            finding = _why_never_open(budget, pod, self.headcount, self.surges)
            return blocker(self.node, subject, finding)
        return self._explain_closed(budget) if is_closed else None

    def _explain_closed(self, budget: Budget) -> Blocker | PlanWarning:
        """Return a blocker if long unready pods keep the budget closed, else a warning."""
        subject = budget_subject(budget.key)
        unready = self.headcount.unready_pods_blocking(budget, self.rules.timeout)
        if not unready:
            closed = BudgetClosed(budget.current_healthy, budget.desired_healthy)
            return warning(self.node, subject, closed)
        evicts_ready_pod = any(pod.ready for pod in self._evicted() if budget.covers(pod))
        finding = BudgetUnhealthy(
            budget=budget,
            unready=tuple(pod.name for pod in unready),
            since=unready[0].unready_since,
            # AlwaysAllow lets only unready pods be evicted.
            is_policy_enough=not evicts_ready_pod,
        )
        return blocker(self.node, subject, finding)

    def _pods_held_by(self, budget: Budget) -> Iterator[Pod]:
        covered = (pod for pod in self._evicted() if budget.covers(pod))
        return (pod for pod in covered if not bypasses_budget(pod, budget))

    def _evicted(self) -> Iterator[Pod]:
        return (verdict.pod for verdict in self.verdicts if verdict.action is Action.EVICT)


def find_storage_operator(pod: Pod) -> LonghornOpens | RookOpens | None:
    if pod.is_of_longhorn:
        return LonghornOpens()
    return RookOpens() if pod.is_osd else None


def _why_never_open(
    budget: Budget, pod: Pod, headcount: Headcount, surges: Surges
) -> BudgetUncounted | BudgetUnscaled | BudgetNever:
    if budget.sync_error:
        return BudgetUncounted(budget.sync_error)
    if headcount.lacks_scale(budget):
        return BudgetUnscaled(budget, min_available=headcount.unowned_by_budget[budget.key] - 1)
    finished = headcount.finished_by_budget[budget.key]
    can_add_replicas = pod.owner is not None and pod.owner.kind not in _NOT_SCALED
    return BudgetNever(
        budget=budget,
        ended=finished if counts_selected_pods(budget) else 0,
        replicas=_missing_replicas(budget, headcount) if can_add_replicas else 0,
        healthy=headcount.most_healthy(budget),
        restart=surges.find_restart(pod, budget),
    )


def stuck_budget_blocker(
    node: str, budget: Budget, headcount: Headcount, lost: Sequence[str], obstacle: Nowhere
) -> Blocker:
    """`lost` pods (names) fit on no other node."""
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
    # One of 100 more pods is not required, unless the percentage is 100.
    for added in range(1, _HUNDRED + 1):
        expected_pods = budget.expected_pods + added
        # Kubernetes rounds up.
        required_healthy = math.ceil(percent * expected_pods / _HUNDRED)
        if most_healthy + added > required_healthy:
            return added
    return 0
