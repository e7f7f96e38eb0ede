"""Disruption budgets as a planner meets them: who is covered, what a node's drain costs, what can never be.

What will not pass by itself counts too: pods unready, or on their way out, for longer than a drain would wait for them.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rollout.model.cluster import Budget, Pod, PodPhase
from rollout.model.memory import seconds_since
from rollout.model.policy import Critical
from rollout.model.selectors import first_naming_values
from rollout.planning.eligibility.selector import parse_selector

Load = Mapping[str, int]
"""What one node takes of each budget, by the budget's namespace/name; owners' keys are kind/namespace/name."""

_Bucket = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class BudgetIndex:
    """Budgets by a label that they demand, for looking up a pod's without trying every selector of its namespace.

    `by_label` is by namespace, label and value; `unselective` holds, by namespace, those that demand no certain value.
    `by_uid` remembers, by UID, what was looked up: a plan asks for every pod several times.
    """

    by_label: Mapping[_Bucket, Sequence[Budget]]
    unselective: Mapping[str, Sequence[Budget]]
    by_uid: dict[str, tuple[Budget, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, budgets: Iterable[Budget]) -> "BudgetIndex":
        """Index of these budgets."""
        by_label: dict[_Bucket, list[Budget]] = defaultdict(list)
        unselective: dict[str, list[Budget]] = defaultdict(list)
        for budget in budgets:
            demanded = first_naming_values(budget.selector.requirements if budget.selector else ())
            if demanded is None:
                unselective[budget.namespace].append(budget)
                continue
            for value in demanded.values:
                by_label[budget.namespace, demanded.key, value].append(budget)
        return cls(by_label, unselective)

    def covering(self, pod: Pod) -> tuple[Budget, ...]:
        """Return the budgets that this pod counts against."""
        budgets = self.by_uid.get(pod.uid)
        if budgets is None:
            budgets = self.by_uid[pod.uid] = self._look_up(pod)
        return budgets

    def _look_up(self, pod: Pod) -> tuple[Budget, ...]:
        budgets = [budget for budget in self.unselective.get(pod.namespace, ()) if budget.covers(pod)]
        for key, value in pod.labels.items():
            bucket = self.by_label.get((pod.namespace, key, value), ())
            budgets += [budget for budget in bucket if budget.covers(pod)]
        return tuple(sorted(budgets, key=lambda budget: budget.name))


def critical_budget(rule: Critical, pods: Iterable[Pod], leaving: Collection[str] = ()) -> Budget:
    """Return an operator's rule as the budget that it stands for, its pods counted as the disruption controller would.

    Pods whose UIDs are `leaving` are as good as gone.
    """
    least, selector = rule.min_available, parse_selector(rule.selector)
    covered = [pod for pod in pods if pod.namespace == rule.namespace and selector.matches(pod.labels)]
    healthy = sum(pod.ready and not pod.terminating and pod.uid not in leaving for pod in covered)
    return Budget(
        namespace=rule.namespace,
        name=rule.selector,
        selector=selector,
        min_available=str(least),
        max_unavailable="",
        disruptions_allowed=max(0, healthy - least),
        current_healthy=healthy,
        desired_healthy=least,
        expected_pods=len(covered),
        always_allow_unhealthy=False,
        critical=True,
    )


def bypasses(pod: Pod, budget: Budget) -> bool:
    """Whether the API server evicts this pod without asking the budget, as it is now.

    Source: the eviction rules of kube-apiserver (pods that do not run, that are going already, or that are not
    ready while the budget is otherwise satisfied or always lets unhealthy pods go).
    """
    if pod.finished or pod.terminating or pod.phase is PodPhase.PENDING:
        return True
    if pod.ready:
        return False
    return budget.always_allow_unhealthy or budget.current_healthy >= budget.desired_healthy > 0


def guards(pod: Pod, index: BudgetIndex) -> Iterator[str]:
    """Return the keys of the budgets that are asked before this pod is evicted."""
    return (budget.key for budget in index.covering(pod) if not bypasses(pod, budget))


def counts_pods(budget: Budget) -> bool:
    """Whether it expects the pods that its selector picks, rather than the scale of their controllers."""
    return not budget.max_unavailable and not budget.min_available.endswith("%")


def in_words(budget: Budget) -> str:
    """Return what a budget's specification demands."""
    if budget.max_unavailable:
        return f"maxUnavailable {budget.max_unavailable}"
    return f"minAvailable {budget.min_available or '1'}"


@dataclass(frozen=True, slots=True)
class Headcount:
    """How the pods under each budget, by its key, are counted, and which of them are not ready, at the plan's moment.

    Source: the disruption controller of Kubernetes (`getExpectedPodCount`, `getExpectedScale`). A plain number of
    `minAvailable` expects every pod that the selector picks, those that have ended too. All else goes by the scale of
    the pods' controllers, to which a pod without one adds nothing, though it counts where it is healthy.

    `now` is the API server's own clock: without it no pod is unready for long, or overdue. When a pod became unready
    its kubelet has stamped, whose clock may differ a little: that is compared by minutes, never by less than the
    `patience` in seconds that is asked with, a drain's deadline.
    """

    now: datetime | None
    ended: Counter[str]
    unowned: Counter[str]
    unready: tuple[Pod, ...] = ()

    @classmethod
    def of(cls, pods: Sequence[Pod], index: BudgetIndex, now: datetime | None) -> "Headcount":
        """Count these pods; only few of a cluster's are looked up."""
        ended, unowned = Counter[str](), Counter[str]()
        for pod in pods:
            if pod.finished or pod.owner is None:
                (ended if pod.finished else unowned).update(budget.key for budget in index.covering(pod))
        unready = (pod for pod in pods if pod.unready_since and not pod.finished and not pod.terminating)
        return cls(now, ended, unowned, tuple(unready))

    def most_healthy(self, budget: Budget) -> int:
        """Return how many of its pods can be healthy at most, as long as nobody changes their number."""
        if counts_pods(budget):
            return budget.expected_pods - self.ended[budget.key]
        return budget.expected_pods + self.unowned[budget.key]

    def lacks_scale(self, budget: Budget) -> bool:
        """Whether it goes by a scale that none of its pods has: its controller expects none, and allows none."""
        return not budget.expected_pods and not counts_pods(budget) and self.unowned[budget.key] > 0

    def can_never_allow(self, budget: Budget) -> bool:
        """Whether it leaves no disruption even when every pod is healthy, or its controller cannot count its pods."""
        if budget.sync_error or self.lacks_scale(budget):
            return True
        return budget.expected_pods > 0 and self.most_healthy(budget) <= budget.desired_healthy

    def permits(self, budget: Budget) -> int:
        """Return how many of its pods may be away at a time: as it is now, or once all are well where none may now."""
        return budget.disruptions_allowed or (0 if self.can_never_allow(budget) else self.most_away(budget))

    def most_away(self, budget: Budget) -> int:
        """Return how many of its pods may be away at any time: never fewer than now, nor than once all are well."""
        return max(0, budget.disruptions_allowed, self.most_healthy(budget) - budget.desired_healthy)

    def in_the_way(self, budget: Budget, patience: float) -> tuple[Pod, ...]:
        """Return the long unready pods of a budget that allows nothing as long as they stay so."""
        unready = tuple(pod for pod in self.unready if budget.covers(pod) and self._is_late(pod, patience))
        return () if self.most_healthy(budget) - len(unready) > budget.desired_healthy else unready

    def stays_pending(self, pod: Pod, patience: float) -> bool:
        """Whether it has long waited to run on its node. No budget is asked about such a pod, however many cover it."""
        return pod.phase is PodPhase.PENDING and self._is_late(pod, patience)

    def overdue(self, pod: Pod) -> float:
        """Return for how many seconds the pod should have been gone; 0 where it is not, or need not be yet."""
        return max(0.0, seconds_since(pod.deleted_at, self.now))

    def grace_left(self, pod: Pod) -> float:
        """Return the seconds left of a terminating pod's grace period; 0 if it is over."""
        return max(0.0, -seconds_since(pod.deleted_at, self.now))

    def _is_late(self, pod: Pod, patience: float) -> bool:
        return seconds_since(pod.unready_since, self.now) > patience
