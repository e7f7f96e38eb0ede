"""The operator of a database, like CloudNativePG's.

One pod is the primary, whose budget allows no eviction. After its node is cordoned, the operator
makes another the primary, in the seconds of the annotation `switchover-seconds` (or `never`).

In the copy of a real cluster, `instanceNames` are the pods of an owner, and `role` is the label by
which budgets tell the primary. Without one, the operator replaces the pods of closed budgets on
cordoned nodes. `podSelector` selects pods that it does not own.
"""

from collections.abc import Callable, Mapping

from typing_extensions import override

from rollout.lab.api.lifecycle import with_defaults
from rollout.lab.api.resources import BUDGETS, CLUSTERS, NODES, PODS
from rollout.lab.api.selectors import matches
from rollout.lab.api.store import Change, Json
from rollout.lab.objects import (
    LAB_PREFIX,
    field_of,
    is_active,
    is_deleting,
    is_finished,
    is_ready,
    key,
    labels_of,
    name_of,
    namespace_of,
    node_name,
    spec_of,
    status_of,
    uid,
)
from rollout.lab.world.workloads import WorkloadController, owner_reference, spec_with_ordinal

SWITCHOVER = f"{LAB_PREFIX}switchover-seconds"
_CLUSTER = "cnpg.io/cluster"
_ROLE: Mapping[str, str] = {
    "label": "cnpg.io/instanceRole",
    "primary": "primary",
    "replica": "replica",
}
_SWITCHOVER_SECONDS = "5"
_NEVER = "never"
# With fewer instances, only the primary has a budget.
_FEWEST_GUARDED = 3


class Databases(WorkloadController):
    resource = CLUSTERS

    def node_changed(self, change: Change) -> None:
        if change.differs(spec_of):
            for obj in self._store.items(CLUSTERS):
                self._cluster.agenda.soon(self.reconcile, *key(obj))

    def pod_changed(self, change: Change) -> None:
        for obj in self._store.items(CLUSTERS, namespace_of(change.obj)):
            if matches(spec_of(obj).get("podSelector"), labels_of(change.obj)):
                self._cluster.agenda.soon(self.reconcile, *key(obj))

    @override
    def _act(self, obj: Json) -> None:
        if "instanceNames" not in spec_of(obj):
            self._create_budgets(obj)
        self._create_instances(obj)
        primaries = self._primaries(obj)
        if not _role_of(obj):
            self._move_later(obj, self._active(obj), self._replace_guarded)
        elif primaries:
            self._move_later(obj, primaries, self._switch_over)
        else:
            self._promote_standby(obj)

    def _move_later(self, obj: Json, pods: list[Json], move: Callable[[str, str], None]) -> None:
        if not any(map(self._is_cordoned, pods)):
            return
        annotations = field_of(obj, "spec.template.metadata.annotations") or {}
        seconds = annotations.get(SWITCHOVER, _SWITCHOVER_SECONDS)
        if seconds != _NEVER:
            self._cluster.agenda.later(float(seconds), move, *key(obj))

    def _create_budgets(self, obj: Json) -> None:
        name = name_of(obj)
        self._create_budget(obj, f"{name}-primary", _ROLE["primary"], min_available=1)
        instances = len(_instance_names(obj))
        if instances >= _FEWEST_GUARDED:
            self._create_budget(obj, name, _ROLE["replica"], min_available=instances - 2)

    def _create_budget(self, obj: Json, name: str, role: str, *, min_available: int) -> None:
        namespace = namespace_of(obj)
        if self._store.get(BUDGETS, name, namespace) is not None:
            return
        selector = {"matchLabels": {_CLUSTER: name_of(obj), _ROLE["label"]: role}}
        metadata = {
            "name": name,
            "namespace": namespace,
            "ownerReferences": [owner_reference(obj, CLUSTERS)],
        }
        spec = {"minAvailable": min_available, "selector": selector}
        budget = with_defaults(BUDGETS, {"metadata": metadata, "spec": spec})
        self._store.create(BUDGETS, budget)

    def _create_instances(self, obj: Json) -> None:
        pods = {name_of(pod): pod for pod in self._pods(obj)}
        role = _role_of(obj)
        labels = {_CLUSTER: name_of(obj)}
        if role:
            labels[role["label"]] = role["replica"]
        for name in _instance_names(obj):
            pod = pods.get(name)
            if pod is None:
                spec = spec_with_ordinal(obj, name.rpartition("-")[2])
                self._create_pod(obj, name, labels=labels, spec=spec)
            elif is_finished(pod):
                self._cluster.delete(PODS, pod)

    def _switch_over(self, namespace: str, name: str) -> None:
        obj = self._store.get(CLUSTERS, name, namespace)
        if obj is not None and any(self._is_cordoned(pod) for pod in self._primaries(obj)):
            self._promote_standby(obj)

    def _promote_standby(self, obj: Json) -> None:
        role = _role_of(obj)
        primaries = self._primaries(obj)
        replicas = [pod for pod in self._active(obj) if pod not in primaries and is_ready(pod)]
        standbys = [pod for pod in replicas if not self._is_cordoned(pod)]
        if not standbys:
            return
        # In this order, there is always a primary.
        self._give_role(min(standbys, key=name_of), role["label"], role["primary"])
        for pod in self._pods(obj):
            if pod in primaries or is_deleting(pod):
                self._give_role(pod, role["label"], role["replica"])

    def _replace_guarded(self, namespace: str, name: str) -> None:
        obj = self._store.get(CLUSTERS, name, namespace)
        for pod in self._active(obj) if obj is not None else ():
            budgets = self._cluster.budgets_selecting(namespace, labels_of(pod))
            is_guarded = any(not status_of(budget)["disruptionsAllowed"] for budget in budgets)
            if is_guarded and self._is_cordoned(pod):
                self._cluster.delete(PODS, pod)

    def _give_role(self, pod: Json, label: str, role: str) -> None:
        labels = {**labels_of(pod), label: role}
        self._store.put(PODS, {**pod, "metadata": {**pod["metadata"], "labels": labels}})

    def _primaries(self, obj: Json) -> list[Json]:
        role = _role_of(obj)
        return [
            pod
            for pod in self._active(obj)
            if role and labels_of(pod).get(role["label"]) == role["primary"]
        ]

    @override
    def _active(self, obj: Json) -> list[Json]:
        return list(filter(is_active, self._pods(obj)))

    def _pods(self, obj: Json) -> list[Json]:
        selector = spec_of(obj).get("podSelector")
        if selector is not None:
            return self._cluster.pods_matching(namespace_of(obj), selector)
        return self._cluster.pods_owned_by(uid(obj))

    def _is_cordoned(self, pod: Json) -> bool:
        node = self._store.get(NODES, node_name(pod))
        return node is not None and bool(spec_of(node).get("unschedulable"))


def _role_of(obj: Json) -> Mapping[str, str]:
    role: Mapping[str, str] = spec_of(obj).get("role", _ROLE)
    return role


def _instance_names(obj: Json) -> list[str]:
    spec = spec_of(obj)
    numbers = range(1, int(spec.get("instances", 1)) + 1)
    numbered = [f"{name_of(obj)}-{number}" for number in numbers]
    names: list[str] = spec.get("instanceNames", numbered)
    return names
