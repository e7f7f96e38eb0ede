import math
from collections.abc import Callable, Mapping
from datetime import datetime

from rollout.lab.api.resources import BUDGETS, DEPLOYMENTS, REPLICASETS, STATEFULSETS, Resource
from rollout.lab.api.store import Change, Json
from rollout.lab.objects import (
    controller_of,
    field_of,
    is_deleting,
    is_ready,
    key,
    labels_of,
    name_of,
    namespace_of,
    spec_of,
    status_of,
    uid,
    with_condition,
)
from rollout.lab.world.cluster import SimulatedCluster


def expectation(budget: Json, pods: int, scale: Callable[[], int]) -> tuple[int, int]:
    """Return how many pods a budget expects, and how many must be healthy.

    `pods` is how many are selected, `scale` returns their controllers' replicas. Only a plain
    `minAvailable` number counts the pods themselves; percentages round up.
    """
    spec = spec_of(budget)
    max_unavailable = spec.get("maxUnavailable")
    min_available = spec.get("minAvailable", 1)
    if max_unavailable is None and not str(min_available).endswith("%"):
        return pods, int(min_available)
    expected = scale()
    if max_unavailable is None:
        return expected, _count(min_available, expected)
    return expected, max(0, expected - _count(max_unavailable, expected))


def _count(value: str | int, total: int) -> int:
    text = str(value)
    if text.endswith("%"):
        return math.ceil(total * int(text[:-1]) / 100)
    return int(text)


# The controller's lag, and how long an eviction counts if its pod stays.
_LAG_SECONDS = 0.2
_EXPIRY_SECONDS = 120

_SCALABLE: dict[str, Resource] = {"ReplicaSet": REPLICASETS, "StatefulSet": STATEFULSETS}


class UnscalableError(Exception):
    """A pod's controller has no scale to count with."""


class DisruptionController:
    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._store = cluster.store

    def budget_changed(self, change: Change) -> None:
        if not change.gone:
            self._reconcile_later(change.obj)

    def pod_changed(self, change: Change) -> None:
        if change.differs(is_ready, is_deleting, labels_of):
            for pod in (change.obj, change.previous or change.obj):
                self._reconcile_selecting(namespace_of(pod), labels_of(pod))

    def scale_changed(self, change: Change) -> None:
        if change.differs(spec_of):
            labels = field_of(change.obj, "spec.template.metadata.labels") or {}
            self._reconcile_selecting(namespace_of(change.obj), labels)

    def _reconcile_selecting(self, namespace: str, labels: Mapping[str, str]) -> None:
        for budget in self._cluster.budgets_selecting(namespace, labels):
            self._reconcile_later(budget)

    def _reconcile_later(self, budget: Json) -> None:
        self._cluster.agenda.later(_LAG_SECONDS, self._reconcile, *key(budget))

    def _reconcile(self, namespace: str, name: str) -> None:
        budget = self._store.get(BUDGETS, name, namespace)
        if budget is None:
            return
        pods = self._cluster.pods_matching(namespace, spec_of(budget).get("selector"))
        try:
            expected, desired = expectation(budget, len(pods), lambda: self._total_scale(pods))
        except UnscalableError as error:
            before = {"currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
            before |= status_of(budget) | {"disruptionsAllowed": 0}
            self._write(budget, before, reason="SyncFailed", message=str(error))
            return
        disrupted = self._still_disrupted(budget, pods)
        healthy = sum(_is_healthy(pod, disrupted) for pod in pods)
        allowed = max(0, healthy - desired) if expected else 0
        status = {
            **status_of(budget),
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "disruptedPods": disrupted,
            "disruptionsAllowed": allowed,
            "expectedPods": expected,
        }
        if disrupted:
            # By then the oldest entry has led to a deletion or expired.
            agenda = self._cluster.agenda
            agenda.after(_EXPIRY_SECONDS, self._reconcile, namespace, name, is_skippable=False)
        else:
            del status["disruptedPods"]
        self._write(budget, status, "SufficientPods" if allowed else "InsufficientPods")

    def _write(self, budget: Json, status: Json, reason: str, message: str = "") -> None:
        generation = budget["metadata"].get("generation", 1)
        verdict = {
            "type": "DisruptionAllowed",
            "status": "True" if status["disruptionsAllowed"] else "False",
            "reason": reason,
            "message": message,
            "observedGeneration": generation,
        }
        status = {**status, "observedGeneration": generation}
        counted = with_condition({**budget, "status": status}, verdict, self._cluster.now())
        self._store.put(BUDGETS, counted)

    def _still_disrupted(self, budget: Json, pods: list[Json]) -> dict[str, str]:
        granted: dict[str, str] = status_of(budget).get("disruptedPods") or {}
        staying = {name_of(pod) for pod in pods if not is_deleting(pod)}
        disrupted = {}
        for name, moment in granted.items():
            age = self._cluster.clock.age(datetime.fromisoformat(moment))
            if name in staying and age < _EXPIRY_SECONDS:
                disrupted[name] = moment
        return disrupted

    def _total_scale(self, pods: list[Json]) -> int:
        owners: dict[str, tuple[Json, Json]] = {}
        for pod in pods:
            owner = controller_of(pod)
            if owner is not None:
                owners.setdefault(owner["uid"], (pod, owner))
        # During a rolling update, several ReplicaSets share one Deployment's scale.
        scalable = [self._find_scalable(pod, owner) for pod, owner in owners.values()]
        return sum({uid(item): int(spec_of(item).get("replicas", 1)) for item in scalable}.values())

    def _find_scalable(self, pod: Json, owner: Json) -> Json:
        resource = _SCALABLE.get(owner["kind"])
        workload = None
        if resource is not None:
            workload = self._store.get(resource, owner["name"], namespace_of(pod))
        if workload is None or uid(workload) != owner["uid"]:
            raise UnscalableError(_why_unscalable(pod, owner))
        deployment = controller_of(workload)
        if deployment is None or deployment["kind"] != "Deployment":
            return workload
        return self._store.get(DEPLOYMENTS, deployment["name"], namespace_of(pod)) or workload


def _is_healthy(pod: Json, disrupted: Mapping[str, str]) -> bool:
    return not is_deleting(pod) and name_of(pod) not in disrupted and is_ready(pod)


def _why_unscalable(pod: Json, owner: Json) -> str:
    if owner["kind"] in {"DaemonSet", "Job"}:
        plural = f"{owner['kind'].lower()}s.{owner['apiVersion'].partition('/')[0]}"
        return f"{plural} does not implement the scale subresource"
    return f'found no controllers for pod "{name_of(pod)}"'
