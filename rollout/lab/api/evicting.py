"""The eviction subresource: a deletion that asks the disruption budgets first.

The order of the checks is a real server's, its oddities included: the budget is taken down before
the UID precondition is looked at, so an eviction meant for another pod costs the budget a
disruption; and a dry run takes nothing, so two dry runs can both succeed where only one eviction is
allowed.
"""

from collections.abc import Mapping
from datetime import datetime

from rollout.lab.api.requests import Target
from rollout.lab.api.resources import BUDGETS, PODS
from rollout.lab.api.selectors import matches
from rollout.lab.api.statuses import (
    BUDGET_RETRY_SECONDS,
    bad_request,
    budget_refuses,
    evicted,
    server_error,
)
from rollout.lab.api.store import Json, ObjectStore, timestamp
from rollout.lab.api.writing import Writer, check_uid, deletion_request
from rollout.lab.objects import (
    condition,
    is_deleting,
    is_ready,
    labels_of,
    name_of,
    namespace_of,
    phase,
    with_condition,
    with_status,
)

_TOO_MANY_BUDGETS = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not"
    " support."
)
_DISRUPTION_TARGET = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


class EvictionEndpoint:
    """Evicts pods as the API server does."""

    def __init__(self, store: ObjectStore, writer: Writer) -> None:
        self._store = store
        self._writer = writer

    def evict(self, target: Target, eviction: Json, query: Mapping[str, str]) -> Json:
        """Evict a pod; raises what a real server answers instead of 201.

        No budget protects pods that do not run yet or any more, and those already going.
        """
        if (eviction.get("metadata") or {}).get("name") != target.name:
            raise bad_request("name in URL does not match name in Eviction object")
        self._writer.check_namespace(PODS, target.namespace, target.name)
        request = deletion_request(query, eviction.get("deleteOptions"))
        pod = self._writer.current(PODS, target.name, target.namespace)
        if phase(pod) == "Running" and not is_deleting(pod):
            self._ask_budget(pod, dry_run=request.dry_run)
            check_uid(PODS, pod, request.uid)
            if not request.dry_run:
                pod = self._store.put(
                    PODS, with_condition(pod, _DISRUPTION_TARGET, self._store.now())
                )
        self._writer.delete_object(PODS, pod, request)
        return evicted()

    def _ask_budget(self, pod: Json, *, dry_run: bool) -> None:
        budgets = self._store.items(BUDGETS, namespace_of(pod))
        covering = [
            budget for budget in budgets if matches(budget["spec"].get("selector"), labels_of(pod))
        ]
        if len(covering) > 1:
            raise server_error(_TOO_MANY_BUDGETS)
        for budget in covering:
            if is_ready(pod) or not _unhealthy_may_go(budget):
                _check_budget(budget)
                if not dry_run:
                    self._store.put(
                        BUDGETS, _use_disruption(budget, name_of(pod), self._store.now())
                    )


def _unhealthy_may_go(budget: Json) -> bool:
    """Whether an unready pod may be evicted without costing the budget anything."""
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget["status"]
    desired = status.get("desiredHealthy", 0)
    return bool(status.get("currentHealthy", 0) >= desired > 0)


def _check_budget(budget: Json) -> None:
    metadata = budget["metadata"]
    status = budget["status"]
    if status.get("observedGeneration", 0) < metadata.get("generation", 0):
        still = f"The disruption budget {metadata['name']} is still being processed by the server."
        raise budget_refuses(still, retry_seconds=BUDGET_RETRY_SECONDS)
    if not status.get("disruptionsAllowed"):
        raise budget_refuses(_why_exhausted(budget))


def _why_exhausted(budget: Json) -> str:
    name = name_of(budget)
    status = budget["status"]
    failed = condition(budget, "DisruptionAllowed")
    if failed is not None and failed.get("reason") == "SyncFailed":
        why = failed.get("message", "")
        return (
            f"The disruption budget {name} does not allow evicting pods currently because it failed"
            f" sync: {why}"
        )
    desired = status.get("desiredHealthy", 0)
    current = status.get("currentHealthy", 0)
    return f"The disruption budget {name} needs {desired} healthy pods and has {current} currently"


def _use_disruption(budget: Json, pod: str, now: datetime) -> Json:
    """Return a budget with one disruption used up for a pod; its controller clears the entry again."""
    status = budget["status"]
    allowed = status["disruptionsAllowed"] - 1
    disrupted = status.get("disruptedPods") or {}
    after = with_status(
        budget, disruptionsAllowed=allowed, disruptedPods={**disrupted, pod: timestamp(now)}
    )
    if allowed:
        return after
    exhausted = {
        "type": "DisruptionAllowed",
        "status": "False",
        "reason": "InsufficientPods",
        "message": "",
    }
    return with_condition(
        after, {**exhausted, "observedGeneration": status.get("observedGeneration", 0)}, now
    )
