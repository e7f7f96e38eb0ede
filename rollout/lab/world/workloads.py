from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import chain
from typing import ClassVar

import msgspec
from typing_extensions import override

from rollout.lab.api.lifecycle import admit
from rollout.lab.api.resources import (
    CLUSTERS,
    DAEMONSETS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICASETS,
    STATEFULSETS,
    STORED,
    Resource,
)
from rollout.lab.api.store import Change, Json
from rollout.lab.objects import (
    condition,
    controller_of,
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
    uid,
)
from rollout.lab.world.cluster import SimulatedCluster
from rollout.lab.world.placement import (
    NOT_READY,
    UNREACHABLE,
    UNSCHEDULABLE,
    node_affinity_holds,
    pinned_node,
    untolerated_taints,
)

# In a StatefulSet's template, this stands for a pod's ordinal.
ORDINAL = "$(ordinal)"


class WorkloadController(ABC):
    resource: ClassVar[Resource]

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._store = cluster.store

    def reconcile(self, namespace: str, name: str) -> None:
        obj = self._store.get(self.resource, name, namespace)
        if obj is None or is_deleting(obj):
            return
        self._act(obj)
        current = self._cluster.current(self.resource, obj)
        if current is not None:
            status = self._status(current)
            status["observedGeneration"] = current["metadata"].get("generation", 1)
            self._store.put(self.resource, {**current, "status": status})

    @abstractmethod
    def _act(self, obj: Json) -> None:
        """Create missing objects and delete those that are too many."""

    def _status(self, obj: Json) -> Json:
        active = self._active(obj)
        return {"replicas": len(active), "readyReplicas": sum(map(is_ready, active))}

    def _active(self, obj: Json) -> list[Json]:
        return [pod for pod in self._cluster.pods_owned_by(uid(obj)) if is_active(pod)]

    def _create_pod(
        self, obj: Json, name: str = "", *, labels: Mapping[str, str] | None = None, spec: Json
    ) -> None:
        where = namespace_of(obj)
        namespace = self._store.get(NAMESPACES, where)
        if namespace is not None and is_deleting(namespace):
            return
        template: Json = spec_of(obj)["template"].get("metadata") or {}
        metadata: Json = {
            "namespace": where,
            "labels": {**(template.get("labels") or {}), **(labels or {})},
            "ownerReferences": [owner_reference(obj, self.resource)],
            "generation": 1,
            "annotations": template.get("annotations") or {},
        }
        if name:
            metadata["name"] = name
        else:
            prefix = f"{name_of(obj)}-"
            metadata["generateName"] = prefix
            metadata["name"] = self._store.free_name(PODS, prefix, where, self._cluster.rng)
        # The spec shares its parts with the template, to save memory.
        pod = {"metadata": metadata, "spec": admit(spec), "status": {"phase": "Pending"}}
        self._store.create(PODS, pod)


def owner_reference(owner: Json, resource: Resource) -> Json:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": name_of(owner),
        "uid": uid(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def template_spec(obj: Json) -> Json:
    return spec_of(spec_of(obj)["template"])


def spec_with_ordinal(obj: Json, ordinal: str) -> Json:
    template = template_spec(obj)
    volumes = msgspec.json.encode(template.get("volumes") or [])
    volumes = volumes.replace(ORDINAL.encode(), ordinal.encode())
    return {**template, "volumes": msgspec.json.decode(volumes)}


def replicas_of(obj: Json) -> int:
    return int(spec_of(obj).get("replicas", 1))


class ReplicaSets(WorkloadController):
    """Terminating and failed pods are replaced at once."""

    resource = REPLICASETS

    @override
    def _act(self, obj: Json) -> None:
        active = self._active(obj)
        missing = replicas_of(obj) - len(active)
        for _ in range(missing):
            self._create_pod(obj, spec=template_spec(obj))
        if missing < 0:
            for pod in self._in_order_of_deletion(obj, active)[:-missing]:
                self._cluster.delete(PODS, pod)

    def _in_order_of_deletion(self, obj: Json, pods: Iterable[Json]) -> list[Json]:
        """Return first what to delete first.

        Pods without a node go first, then pods that are not ready, then those on nodes with many
        pods of the same Deployment, then those that became ready last, on a logarithmic scale.
        Source: ActivePodsWithRanks of Kubernetes.
        """
        active_on_node = Counter(map(node_name, self._active_relatives(obj)))

        def rank(pod: Json) -> tuple[bool, bool, int, int, str]:
            # Kubernetes compares random UIDs last; names are equal in the next run.
            return (
                bool(node_name(pod)),
                is_ready(pod),
                -active_on_node[node_name(pod)],
                self._age_rank(pod),
                name_of(pod),
            )

        return sorted(pods, key=rank)

    def _active_relatives(self, obj: Json) -> Iterable[Json]:
        deployment = controller_of(obj)
        if deployment is None:
            return self._active(obj)
        sets = self._store.items(REPLICASETS, namespace_of(obj))
        return chain.from_iterable(
            self._active(item) for item in sets if controller_of(item) == deployment
        )

    def _age_rank(self, pod: Json) -> int:
        """Return the binary logarithm of the nanoseconds since the pod became ready."""
        since = (condition(pod, "Ready") or {}).get("lastTransitionTime")
        if since is None:
            return 0
        age = self._cluster.clock.age(datetime.fromisoformat(since))
        return max(0, round(age * 1e9)).bit_length()


class StatefulSets(WorkloadController):
    """A pod is replaced once the old one is gone."""

    resource = STATEFULSETS

    @override
    def _act(self, obj: Json) -> None:
        owned = self._cluster.pods_owned_by(uid(obj))
        pods_by_ordinal = {_ordinal_of(pod): pod for pod in owned}
        for ordinal in range(replicas_of(obj)):
            pod = pods_by_ordinal.get(ordinal)
            if pod is None:
                self._create_ordinal(obj, ordinal)
                return
            if is_finished(pod):
                self._cluster.delete(PODS, pod)
                return
            if not is_ready(pod) or not is_active(pod):
                return
        # One pod per call, the highest ordinal first.
        last = max(pods_by_ordinal, default=-1)
        if last >= replicas_of(obj):
            self._cluster.delete(PODS, pods_by_ordinal[last])

    def _create_ordinal(self, obj: Json, ordinal: int) -> None:
        name = f"{name_of(obj)}-{ordinal}"
        labels = {
            "statefulset.kubernetes.io/pod-name": name,
            "apps.kubernetes.io/pod-index": str(ordinal),
        }
        spec = {**spec_with_ordinal(obj, str(ordinal)), "hostname": name}
        self._create_pod(obj, name, labels=labels, spec=spec)


def _ordinal_of(pod: Json) -> int:
    return int(name_of(pod).rpartition("-")[2])


# A real controller also tolerates pressures, which the lab does not simulate.
_TOLERATED = ((NOT_READY, "NoExecute"), (UNREACHABLE, "NoExecute"), (UNSCHEDULABLE, "NoSchedule"))


class DaemonSets(WorkloadController):
    resource = DAEMONSETS

    def node_changed(self, change: Change) -> None:
        if change.differs(spec_of, labels_of):
            for obj in self._store.items(DAEMONSETS):
                self._cluster.agenda.soon(self.reconcile, *key(obj))

    @override
    def _act(self, obj: Json) -> None:
        pods_by_node = self._by_node(obj)
        spec = _daemon_spec(obj)
        for node in self._store.items(NODES):
            name = name_of(node)
            pods = pods_by_node.pop(name, [])
            if not pods and _fits(spec, node):
                self._create_pod(obj, spec={**spec, "affinity": _pin_to_node(spec, name)})
            elif pods and not _fits(spec, node, ("NoExecute",)):
                self._delete(pods)
            else:
                self._delete(filter(is_finished, pods))
        for pods in pods_by_node.values():
            self._delete(pods)

    @override
    def _status(self, obj: Json) -> Json:
        spec = _daemon_spec(obj)
        pods_by_node = self._by_node(obj)
        desired = 0
        current = 0
        ready = 0
        for node in self._store.items(NODES):
            if _fits(spec, node):
                desired += 1
                active = [pod for pod in pods_by_node.get(name_of(node), ()) if is_active(pod)]
                current += bool(active)
                ready += any(map(is_ready, active))
        return {
            "desiredNumberScheduled": desired,
            "currentNumberScheduled": current,
            "updatedNumberScheduled": current,
            "numberReady": ready,
            "numberAvailable": ready,
        }

    def _by_node(self, obj: Json) -> dict[str, list[Json]]:
        pods: dict[str, list[Json]] = {}
        for pod in self._cluster.pods_owned_by(uid(obj)):
            pods.setdefault(node_name(pod) or pinned_node(pod) or "", []).append(pod)
        return pods

    def _delete(self, pods: Iterable[Json]) -> None:
        for pod in pods:
            self._cluster.delete(PODS, pod)


def _daemon_spec(obj: Json) -> Json:
    spec = template_spec(obj)
    added = [{"key": taint, "operator": "Exists", "effect": effect} for taint, effect in _TOLERATED]
    return {**spec, "tolerations": [*(spec.get("tolerations") or ()), *added]}


def _pin_to_node(spec: Json, node: str) -> Json:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {**(spec.get("affinity") or {}), "nodeAffinity": required}


def _fits(spec: Json, node: Json, effects: tuple[str, ...] = ("NoSchedule", "NoExecute")) -> bool:
    if not node_affinity_holds(spec, name_of(node), labels_of(node)):
        return False
    return not untolerated_taints(spec, spec_of(node).get("taints") or (), effects)


OWNERS = (DEPLOYMENTS, REPLICASETS, STATEFULSETS, DAEMONSETS, CLUSTERS)


class GarbageCollector:
    """Pods whose owner never existed stay: clients create such pods to try things."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._store = cluster.store

    def changed(self, change: Change) -> None:
        if change.gone and change.resource in OWNERS:
            self._cluster.agenda.soon(self._collect, uid(change.obj))
        is_namespace = change.resource is NAMESPACES
        name = name_of(change.obj) if is_namespace else namespace_of(change.obj)
        namespace = self._store.get(NAMESPACES, name)
        if namespace is not None and is_deleting(namespace):
            self._cluster.agenda.soon(self._empty, name)

    def _collect(self, owner_uid: str) -> None:
        for replica_set in self._store.items(REPLICASETS):
            owner = controller_of(replica_set)
            if owner is not None and owner.get("uid") == owner_uid:
                self._cluster.delete(REPLICASETS, replica_set)
        for pod in self._cluster.pods_owned_by(owner_uid):
            self._cluster.delete(PODS, pod)

    def _empty(self, name: str) -> None:
        namespace = self._store.get(NAMESPACES, name)
        if namespace is None or not is_deleting(namespace):
            return
        is_empty = True
        for resource in STORED:
            for obj in self._store.items(resource, name) if resource.namespaced else ():
                is_empty = False
                self._cluster.delete(resource, obj)
        if is_empty and not namespace["metadata"].get("finalizers"):
            self._store.remove(NAMESPACES, name)
