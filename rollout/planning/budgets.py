"""Disruption budgets as a planner meets them: who is covered, what a node's drain costs, what can never be."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rollout.model.cluster import Budget, Pod, PodPhase, Requirement
from rollout.model.selectors import first_naming_values
from rollout.planning.packing import Load
from rollout.planning.verdicts import PodVerdict

_Bucket = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class BudgetIndex:
    """Budgets by a label that they demand, for looking up a pod's without trying every selector of its namespace.

    `by_label` is by namespace, label and value; `unselective` holds, by namespace, those that demand no certain value.
    `found` remembers, by UID, what was looked up: a plan asks for every pod several times.
    """

    by_label: Mapping[_Bucket, tuple[Budget, ...]]
    unselective: Mapping[str, tuple[Budget, ...]]
    by_uid: dict[str, tuple[Budget, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, budgets: Iterable[Budget]) -> "BudgetIndex":
        """Index of these budgets."""
        by_label: dict[_Bucket, list[Budget]] = defaultdict(list)
        unselective: dict[str, list[Budget]] = defaultdict(list)
        for budget in budgets:
            demanded = _demanded(budget)
            if demanded is None:
                unselective[budget.namespace].append(budget)
                continue
            for value in demanded.values:
                by_label[budget.namespace, demanded.key, value].append(budget)
        return cls(
            {bucket: tuple(group) for bucket, group in by_label.items()},
            {namespace: tuple(group) for namespace, group in unselective.items()},
        )

    def covering(self, pod: Pod) -> tuple[Budget, ...]:
        """The budgets that this pod counts against."""
        budgets = self.by_uid.get(pod.uid)
        if budgets is None:
            budgets = self.by_uid[pod.uid] = self._look_up(pod)
        return budgets

    def _look_up(self, pod: Pod) -> tuple[Budget, ...]:
        budgets = [budget for budget in self.unselective.get(pod.namespace, ()) if budget.covers(pod)]
        for key, value in pod.labels.items():
            bucket = self.by_label.get((pod.namespace, key, value), ())
            budgets += [budget for budget in bucket if budget.covers(pod)]
        return tuple(sorted(budgets, key=lambda budget: budget.name)) if len(budgets) > 1 else tuple(budgets)


def _demanded(budget: Budget) -> Requirement | None:
    requirements = budget.selector.requirements if budget.selector else ()
    return first_naming_values(requirements)


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
    """Whether it leaves no disruption even when every pod is healthy, or its controller cannot count its pods."""
    return bool(budget.sync_error) or 0 < budget.expected_pods <= budget.desired_healthy


def in_words(budget: Budget) -> str:
    """What a budget's specification demands."""
    if budget.max_unavailable:
        return f"maxUnavailable {budget.max_unavailable}"
    return f"minAvailable {budget.min_available or '1'}"
