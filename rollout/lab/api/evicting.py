"""The eviction subresource: a deletion that asks the disruption budgets first.

The order of the checks is a real server's, its oddities included: the budget is taken down before the UID
precondition is looked at, so an eviction meant for another pod costs the budget a disruption; and a dry run
takes nothing, so two dry runs can both succeed where only one eviction is allowed.
"""

from datetime import datetime

from rollout.lab.api.requests import Target
from rollout.lab.api.resources import BUDGETS, PODS
from rollout.lab.api.selectors import matches
from rollout.lab.api.statuses import (
    BUDGET_RETRY_SECONDS,
    bad_request,
    budget_refuses,
    server_error,
    success,
)
from rollout.lab.api.store import Json, ObjectStore, timestamp
from rollout.lab.api.writing import DeletionRequest, Writer, check_uid, deletion_request
from rollout.lab.objects import condition, is_deleting, is_ready, labels_of, with_condition

_UNGUARDED_PHASES = frozenset({"Pending", "Succeeded", "Failed"})
_TOO_MANY_BUDGETS = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
_CREATED = 201
_DISRUPTION_TARGET = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


class Evictor:
    """Evicts pods as the API server does."""

    def __init__(self, store: ObjectStore, writer: Writer) -> None:
        self._store = store
        self._writer = writer

    def evict(self, target: Target, eviction: Json, *, dry_run: bool = False) -> Json:
        """Evict a pod; raises what a real server answers instead of 201."""
        _check_body(target, eviction)
        self._writer.check_namespace(PODS, target.namespace, target.name)
        request = deletion_request({"dryRun": "All"} if dry_run else {}, eviction.get("deleteOptions"))
        pod = self._writer.current(PODS, target.name, target.namespace)
        if _unguarded(pod):
            self._writer.delete_object(PODS, pod, request)
        else:
            self._evict_guarded(pod, request)
        return success(_CREATED)

    def _evict_guarded(self, pod: Json, request: DeletionRequest) -> None:
        budgets = self._store.items(BUDGETS, pod["metadata"]["namespace"])
        covering = [budget for budget in budgets if matches(budget["spec"].get("selector"), labels_of(pod))]
        if len(covering) > 1:
            raise server_error(_TOO_MANY_BUDGETS)
        for budget in covering:
            if is_ready(pod) or not _unhealthy_may_go(budget):
                self._take(budget, pod, dry_run=request.dry_run)
        self._mark_and_delete(pod, request)

    def _take(self, budget: Json, pod: Json, *, dry_run: bool) -> None:
        """Use one allowed disruption up, or refuse."""
        _check_budget(budget)
        if not dry_run:
            after = taken(budget["status"], pod["metadata"]["name"], self._store.now())
            self._store.put(BUDGETS, {**budget, "status": after})

    def _mark_and_delete(self, pod: Json, request: DeletionRequest) -> None:
        check_uid(PODS, pod, request.uid)
        if not request.dry_run:
            pod = self._store.put(PODS, with_condition(pod, _DISRUPTION_TARGET, self._store.now()))
        self._writer.delete_object(PODS, pod, request)


def _check_body(target: Target, eviction: Json) -> None:
    if (eviction.get("metadata") or {}).get("name") != target.name:
        raise bad_request("name in URL does not match name in Eviction object")


def _unguarded(pod: Json) -> bool:
    """Pods that no budget protects: those that do not run yet or any more, and those already going."""
    return (pod.get("status") or {}).get("phase") in _UNGUARDED_PHASES or is_deleting(pod)


def _unhealthy_may_go(budget: Json) -> bool:
    """Whether an unready pod may be evicted without costing the budget anything."""
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget["status"]
    desired = status.get("desiredHealthy", 0)
    return bool(status.get("currentHealthy", 0) >= desired > 0)


def _check_budget(budget: Json) -> None:
    metadata, status = budget["metadata"], budget["status"]
    name = metadata["name"]
    if status.get("observedGeneration", 0) < metadata.get("generation", 0):
        still = f"The disruption budget {name} is still being processed by the server."
        raise budget_refuses(still, retry_seconds=BUDGET_RETRY_SECONDS)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed == 0:
        raise budget_refuses(_why_exhausted(name, status))


def _why_exhausted(name: str, status: Json) -> str:
    failed = condition({"status": status}, "DisruptionAllowed")
    if failed is not None and failed.get("reason") == "SyncFailed":
        why = failed.get("message", "")
        return f"The disruption budget {name} does not allow evicting pods currently because it failed sync: {why}"
    desired, current = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
    return f"The disruption budget {name} needs {desired} healthy pods and has {current} currently"


def taken(status: Json, pod: str, now: datetime) -> Json:
    """Return a budget's status with one disruption used up for a pod; its controller clears the entry again."""
    allowed = status["disruptionsAllowed"] - 1
    disrupted = {**(status.get("disruptedPods") or {}), pod: timestamp(now)}
    after: Json = {"status": {**status, "disruptionsAllowed": allowed, "disruptedPods": disrupted}}
    if allowed == 0:
        exhausted = {"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": ""}
        after = with_condition(after, {**exhausted, "observedGeneration": status.get("observedGeneration", 0)}, now)
    return dict(after["status"])
