"""Budgets that another controller opens.

Operators of databases allow no disruption of a pod while it has a role, such as the primary. Once
its node is cordoned, they give the role to another pod, or move the pod themselves. A drain waits
for that, so such a budget is not a blocker.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rollout.model.cluster import Budget, OwnerRef, Pod
from rollout.planning.drain.budgets import BudgetIndex, bypasses

# Zalando's postgres-operator runs its pods in StatefulSets. By default, neither the budget nor the
# StatefulSet names the `postgresql` that they belong to, but the StatefulSet has its name.
_SPILO = ("application", "spilo")
_ZALANDO = ("acid.zalan.do/v1", "postgresql")
_KEY = "controller:"


def controller_of(budget: Budget, pods: Iterable[Pod]) -> OwnerRef | None:
    """Return the owner whose controller opens the budget for all these pods, which it covers.

    None if Kubernetes' own controllers are responsible for the budget and one of the pods.
    """
    if budget.critical:
        return None
    if budget.owner is not None and not budget.owner.is_of_kubernetes:
        return budget.owner
    controllers = [_controller_of_pod(pod) for pod in pods]
    if not controllers or None in controllers:
        return None
    return controllers[0]


def _controller_of_pod(pod: Pod) -> OwnerRef | None:
    owner = pod.owner
    if owner is None or not owner.is_of_kubernetes:
        return owner
    if _SPILO not in pod.labels.items():
        return None
    api_version, kind = _ZALANDO
    return replace(owner, api_version=api_version, kind=kind)


def controller_key(namespace: str, controller: OwnerRef) -> str:
    return f"{_KEY}{controller.named_in(namespace)}"


def controller_in(key: str) -> str:
    """Return the controller that the key names; empty for other keys."""
    return key.removeprefix(_KEY) if key.startswith(_KEY) else ""


@dataclass(frozen=True, slots=True)
class NodeControllers:
    """The keys of the controllers that move a node's pods, or open their budgets.

    `awaited` are those of `keys` of which a budget allows no eviction now.
    """

    keys: frozenset[str]
    awaited: frozenset[str]

    @classmethod
    def of(cls, pods: Iterable[Pod], index: BudgetIndex) -> "NodeControllers":
        """`pods` are those that leave the node."""
        keys = set[str]()
        awaited = set[str]()
        for pod in pods:
            pod_controller = _controller_of_pod(pod)
            if pod_controller is not None:
                keys.add(controller_key(pod.namespace, pod_controller))
            for budget in index.covering(pod):
                controller = None if bypasses(pod, budget) else controller_of(budget, (pod,))
                if controller is None:
                    continue
                key = controller_key(pod.namespace, controller)
                keys.add(key)
                if budget.disruptions_allowed <= 0:
                    awaited.add(key)
        return cls(frozenset(keys), frozenset(awaited))
