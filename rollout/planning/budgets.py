"""Disruption budgets as a planner meets them: who is covered, what a node's drain costs, what can never be."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rollout.model.cluster import Budget, Pod, PodPhase
from rollout.planning.verdicts import PodVerdict

Load = Mapping[str, int]
"""Disruptions that a drain takes from each budget, by the budget's namespace/name."""


@dataclass(frozen=True, slots=True)
class BudgetIndex:
    """Budgets by namespace, for looking up a pod's."""

    by_namespace: Mapping[str, tuple[Budget, ...]]

    @classmethod
    def of(cls, budgets: Iterable[Budget]) -> "BudgetIndex":
        """Index of these budgets."""
        grouped: dict[str, list[Budget]] = defaultdict(list)
        for budget in budgets:
            grouped[budget.namespace].append(budget)
        return cls({namespace: tuple(group) for namespace, group in grouped.items()})

    def covering(self, pod: Pod) -> tuple[Budget, ...]:
        """The budgets that this pod counts against."""
        return tuple(budget for budget in self.by_namespace.get(pod.namespace, ()) if budget.covers(pod))


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


def drain_load(evictions: Iterable[PodVerdict], index: BudgetIndex) -> Load:
    """How many disruptions each budget must allow for these evictions."""
    load: Counter[str] = Counter()
    for verdict in evictions:
        for budget in index.covering(verdict.pod):
            if not bypasses(verdict.pod, budget):
                load[budget.key] += 1
    return load


def can_never_allow(budget: Budget) -> bool:
    """Whether the budget's specification leaves no disruption even when every pod is healthy."""
    return budget.expected_pods > 0 and budget.desired_healthy >= budget.expected_pods


def in_words(budget: Budget) -> str:
    """What a budget's specification demands."""
    if budget.max_unavailable:
        return f"maxUnavailable {budget.max_unavailable}"
    return f"minAvailable {budget.min_available or '1'}"
