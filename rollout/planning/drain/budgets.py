"""What disruption budgets allow now, later and never.

Drains wait for a database operator to open its budget, so such a budget is no blocker.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct, field
from msgspec.structs import replace

from rollout.model.cluster import Budget, OwnerRef, Pod, PodPhase
from rollout.model.policy import Critical
from rollout.model.selectors import first_in_requirement, parse_selector
from rollout.model.timestamps import seconds_since

Load = Mapping[str, int]
"""How much of each limit nodes take, by the limit's key.

Keys are `namespace/name` for a budget (its pods), `kind/namespace/name` for an owner without one
(its pods), `type.group/namespace/name` for stored data (copies), and `controller:` and `pool:`.
"""

_LabelKey = tuple[str, str, str]
_PodLabels = tuple[str, tuple[tuple[str, str], ...]]
# Zalando's operator sets no owner by default, but the StatefulSet has its `postgresql`'s name.
SPILO = ("application", "spilo")
_ZALANDO = ("acid.zalan.do/v1", "postgresql")
_CONTROLLER = "controller:"


class BudgetIndex(Struct, frozen=True):
    """Finds a pod's budgets without trying every selector of its namespace.

    Most selectors require a label's value (`by_label`); the others are `unselective`.
    """

    by_label: Mapping[_LabelKey, Sequence[Budget]]
    # By namespace.
    unselective: Mapping[str, Sequence[Budget]]
    # By the namespace and labels of a workload's pods.
    found: dict[_PodLabels, tuple[Budget, ...]] = field(default_factory=dict)
    shared_keys: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, budgets: Iterable[Budget]) -> "BudgetIndex":
        by_label: dict[_LabelKey, list[Budget]] = defaultdict(list)
        unselective: dict[str, list[Budget]] = defaultdict(list)
        for budget in budgets:
            requirements = budget.selector.requirements if budget.selector else ()
            in_requirement = first_in_requirement(requirements)
            if in_requirement is None:
                unselective[budget.namespace].append(budget)
                continue
            # The API server accepts a selector that repeats a value.
            for value in dict.fromkeys(in_requirement.values):
                by_label[budget.namespace, in_requirement.key, value].append(budget)
        return cls(by_label, unselective)

    def covering(self, pod: Pod) -> tuple[Budget, ...]:
        key = (pod.namespace, tuple(pod.labels.items()))
        budgets = self.found.get(key)
        if budgets is None:
            budgets = self._look_up(pod)
            self.found[key] = budgets
        return budgets

    def _look_up(self, pod: Pod) -> tuple[Budget, ...]:
        candidates = list(self.unselective.get(pod.namespace, ()))
        for key, value in pod.labels.items():
            candidates += self.by_label.get((pod.namespace, key, value), ())
        budgets = [budget for budget in candidates if budget.covers(pod)]
        return tuple(sorted(budgets, key=lambda budget: budget.name))


def critical_budget(rule: Critical, pods: Iterable[Pod], leaving: Collection[str] = ()) -> Budget:
    """Return a rule of drain.critical as a disruption budget.

    Pods that are `leaving` (UIDs) do not count as healthy.
    """
    min_available = rule.min_available
    selector = parse_selector(rule.selector)
    in_namespace = [pod for pod in pods if pod.namespace == rule.namespace]
    covered = [pod for pod in in_namespace if selector.matches(pod.labels)]
    staying = [pod for pod in covered if not pod.terminating and pod.uid not in leaving]
    healthy = sum(pod.ready for pod in staying)
    return Budget(
        namespace=rule.namespace,
        name=rule.selector,
        selector=selector,
        min_available=str(min_available),
        max_unavailable="",
        disruptions_allowed=max(0, healthy - min_available),
        current_healthy=healthy,
        desired_healthy=min_available,
        expected_pods=len(covered),
        always_allow_unhealthy=False,
        critical=True,
    )


def bypasses_budget(pod: Pod, budget: Budget) -> bool:
    """Whether the API server evicts the pod now without asking the budget.

    Source: the eviction subresource of kube-apiserver.
    """
    if pod.finished or pod.terminating or pod.phase is PodPhase.PENDING:
        return True
    if pod.ready:
        return False
    # The eviction of an unready pod leaves as many healthy ones.
    has_enough_healthy = budget.current_healthy >= budget.desired_healthy > 0
    return budget.always_allow_unhealthy or has_enough_healthy


def guarding_budgets(pod: Pod, index: BudgetIndex) -> tuple[str, ...]:
    """Return the keys of the budgets that must allow the pod's eviction."""
    covering = index.covering(pod)
    keys = tuple(budget.key for budget in covering if not bypasses_budget(pod, budget))
    # Thousands of pods share one tuple.
    return index.shared_keys.setdefault(keys, keys)


def counts_selected_pods(budget: Budget) -> bool:
    return not budget.max_unavailable and not budget.min_available.endswith("%")


class Headcount(Struct, frozen=True):
    """Counts the pods of each budget as the disruption controller does.

    Source: Kubernetes' `getExpectedPodCount`. With an absolute `minAvailable`, the budget expects
    every pod it selects; otherwise the scale of their controllers.
    """

    # None if the API server's time is unknown: then no pod is late.
    now: datetime | None
    # By the budget's key or the owner's UID. Owners' pods are not finished.
    finished_by_budget: Counter[str]
    unowned_by_budget: Counter[str]
    pods_by_owner: Counter[str]
    unready: tuple[Pod, ...] = ()

    @classmethod
    def of(cls, pods: Sequence[Pod], index: BudgetIndex, now: datetime | None) -> "Headcount":
        finished_by_budget = Counter[str]()
        unowned_by_budget = Counter[str]()
        pods_by_owner = Counter[str]()
        for pod in pods:
            if pod.finished:
                finished_by_budget.update(budget.key for budget in index.covering(pod))
            elif pod.owner is None:
                unowned_by_budget.update(budget.key for budget in index.covering(pod))
            else:
                pods_by_owner[pod.owner.uid] += 1
        running = [pod for pod in pods if not pod.finished and not pod.terminating]
        unready = tuple(pod for pod in running if pod.unready_since)
        return cls(now, finished_by_budget, unowned_by_budget, pods_by_owner, unready)

    def most_healthy(self, budget: Budget) -> int:
        if counts_selected_pods(budget):
            # Finished pods are expected, but never healthy.
            return budget.expected_pods - self.finished_by_budget[budget.key]
        # Pods without an owner are not expected, but may be healthy.
        return budget.expected_pods + self.unowned_by_budget[budget.key]

    def lacks_scale(self, budget: Budget) -> bool:
        if counts_selected_pods(budget) or budget.expected_pods:
            return False
        return self.unowned_by_budget[budget.key] > 0

    def can_never_allow(self, budget: Budget) -> bool:
        if budget.sync_error or self.lacks_scale(budget):
            return True
        if not budget.expected_pods:
            return False
        has_spare_pod = self.most_healthy(budget) > budget.desired_healthy
        return not has_spare_pod

    def permits(self, budget: Budget) -> int:
        """If none may go now, return how many may go later."""
        if budget.disruptions_allowed:
            return budget.disruptions_allowed
        if self.can_never_allow(budget):
            return 0
        return self.most_away(budget)

    def most_away(self, budget: Budget) -> int:
        spare = self.most_healthy(budget) - budget.desired_healthy
        return max(0, budget.disruptions_allowed, spare)

    def unready_pods_blocking(self, budget: Budget, drain_timeout: float) -> tuple[Pod, ...]:
        """Return pods that keep the budget closed: unready for longer than the drain."""
        covered = [pod for pod in self.unready if budget.covers(pod)]
        unready = tuple(pod for pod in covered if self._is_unready_for(pod, drain_timeout))
        has_enough_others = self.most_healthy(budget) - len(unready) > budget.desired_healthy
        return () if has_enough_others else unready

    def is_alone(self, pod: Pod, budget: Budget, managing_owner: OwnerRef) -> bool:
        """Whether no other pod of the budget or its owners can take over."""
        # The managing owner may own the pod itself, or through a StatefulSet.
        owner = pod.owner or managing_owner
        most_owned = max(self.pods_by_owner[owner.uid], self.pods_by_owner[managing_owner.uid])
        return budget.expected_pods <= 1 and most_owned <= 1

    def stays_pending(self, pod: Pod, drain_timeout: float) -> bool:
        return pod.phase is PodPhase.PENDING and self._is_unready_for(pod, drain_timeout)

    def seconds_overdue(self, pod: Pod) -> float:
        return max(0.0, seconds_since(pod.deleted_at, self.now))

    def grace_seconds_left(self, pod: Pod) -> float:
        return max(0.0, -seconds_since(pod.deleted_at, self.now))

    def _is_unready_for(self, pod: Pod, seconds: float) -> bool:
        return seconds_since(pod.unready_since, self.now) > seconds


def managing_owner(budget: Budget, pods: Iterable[Pod]) -> OwnerRef | None:
    """Return the owner whose operator opens the budget for all pods, or None."""
    if budget.critical:
        return None
    if budget.owner is not None and not budget.owner.is_of_kubernetes:
        return budget.owner
    owners = [_managing_owner_of_pod(pod) for pod in pods]
    if not owners or None in owners:
        return None
    return owners[0]


def _managing_owner_of_pod(pod: Pod) -> OwnerRef | None:
    owner = pod.owner
    if owner is None or not owner.is_of_kubernetes:
        return owner
    is_of_zalando = SPILO in pod.labels.items()
    if not is_of_zalando:
        return None
    api_version, kind = _ZALANDO
    return replace(owner, api_version=api_version, kind=kind)


def controller_key(namespace: str, owner: OwnerRef) -> str:
    return f"{_CONTROLLER}{owner.named_in(namespace)}"


def controller_in(key: str) -> str:
    """Return `Cluster db/shop` for `controller:Cluster db/shop`; empty for other keys."""
    return key.removeprefix(_CONTROLLER) if key.startswith(_CONTROLLER) else ""


class NodeControllers(Struct, frozen=True):
    """Operators' controllers, by key, that move pods or open budgets.

    A drain waits for those `awaited` to open a closed budget.
    """

    keys: frozenset[str]
    awaited: frozenset[str]

    @classmethod
    def of(cls, pods: Iterable[Pod], index: BudgetIndex) -> "NodeControllers":
        keys = set[str]()
        awaited = set[str]()
        for pod in pods:
            owner_of_pod = _managing_owner_of_pod(pod)
            if owner_of_pod is not None:
                keys.add(controller_key(pod.namespace, owner_of_pod))
            for budget in index.covering(pod):
                owner_of_budget = managing_owner(budget, (pod,))
                if owner_of_budget is None or bypasses_budget(pod, budget):
                    continue
                key = controller_key(pod.namespace, owner_of_budget)
                keys.add(key)
                if budget.disruptions_allowed <= 0:
                    awaited.add(key)
        return cls(frozenset(keys), frozenset(awaited))
