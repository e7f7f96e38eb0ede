"""The eviction subresource, with a real server's order of checks.

The budget is charged before the UID is checked: an eviction meant for another pod costs a
disruption.
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
from rollout.lab.api.writing import Writer, check_uid, delete_options
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
    "This pod has more than one PodDisruptionBudget, "
    "which the eviction subresource does not support."
)
_DISRUPTION_TARGET = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


class EvictionEndpoint:
    def __init__(self, store: ObjectStore, writer: Writer) -> None:
        self._store = store
        self._writer = writer

    def evict(self, target: Target, eviction: Json, query: Mapping[str, str]) -> Json:
        """Budgets protect only running pods that are not terminating."""
        if (eviction.get("metadata") or {}).get("name") != target.name:
            raise bad_request("name in URL does not match name in Eviction object")
        self._writer.check_namespace(PODS, target.namespace, target.name)
        options = delete_options(query, eviction.get("deleteOptions"))
        pod = self._writer.current(PODS, target.name, target.namespace)
        if phase(pod) == "Running" and not is_deleting(pod):
            self._charge_budget(pod, dry_run=options.dry_run)
            check_uid(PODS, pod, options.uid)
            if not options.dry_run:
                marked = with_condition(pod, _DISRUPTION_TARGET, self._store.now())
                pod = self._store.put(PODS, marked)
        self._writer.delete_object(PODS, pod, options)
        return evicted()

    def _charge_budget(self, pod: Json, *, dry_run: bool) -> None:
        budgets = [
            budget
            for budget in self._store.items(BUDGETS, namespace_of(pod))
            if matches(budget["spec"].get("selector"), labels_of(pod))
        ]
        if len(budgets) > 1:
            raise server_error(_TOO_MANY_BUDGETS)
        for budget in budgets:
            if not is_ready(pod) and _unhealthy_may_go(budget):
                continue
            _check_budget(budget)
            if not dry_run:
                charged = _use_disruption(budget, name_of(pod), self._store.now())
                self._store.put(BUDGETS, charged)


def _unhealthy_may_go(budget: Json) -> bool:
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget["status"]
    desired = status.get("desiredHealthy", 0)
    return bool(status.get("currentHealthy", 0) >= desired > 0)


def _check_budget(budget: Json) -> None:
    name = name_of(budget)
    status = budget["status"]
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        why = f"The disruption budget {name} is still being processed by the server."
        raise budget_refuses(why, retry_seconds=BUDGET_RETRY_SECONDS)
    if status.get("disruptionsAllowed"):
        return
    verdict = condition(budget, "DisruptionAllowed")
    if verdict is not None and verdict.get("reason") == "SyncFailed":
        raise budget_refuses(
            f"The disruption budget {name} does not allow evicting pods currently because it"
            f" failed sync: {verdict.get('message', '')}"
        )
    desired = status.get("desiredHealthy", 0)
    current = status.get("currentHealthy", 0)
    raise budget_refuses(
        f"The disruption budget {name} needs {desired} healthy pods and has {current} currently"
    )


def _use_disruption(budget: Json, pod: str, now: datetime) -> Json:
    status = budget["status"]
    allowed = status["disruptionsAllowed"] - 1
    disrupted = {**(status.get("disruptedPods") or {}), pod: timestamp(now)}
    charged = with_status(budget, disruptionsAllowed=allowed, disruptedPods=disrupted)
    if allowed:
        return charged
    exhausted = {
        "type": "DisruptionAllowed",
        "status": "False",
        "reason": "InsufficientPods",
        "message": "",
        "observedGeneration": status.get("observedGeneration", 0),
    }
    return with_condition(charged, exhausted, now)
