"""Controllers that keep pods running: they differ in naming, in order, and in when they replace a pod.

A Deployment keeps the ReplicaSet of its first template: nothing here rolls a new one out. And the
garbage collector.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar
from zlib import crc32

import msgspec
from typing_extensions import override

from rollout.lab.api.lifecycle import admit
from rollout.lab.api.resources import (
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
    controller_of,
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
    with_spec,
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

# Stands in a StatefulSet's template for a pod's number: each pod has claims of its own.
ORDINAL = "$(ordinal)"


class WorkloadController(ABC):
    """Reconciles one kind of object: the world asks it to, whenever the object or its pods changed."""

    resource: ClassVar[Resource]

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._store = cluster.store

    def reconcile(self, namespace: str, name: str) -> None:
        """Bring the pods, then the status, of one object to what its spec asks for."""
        obj = self._store.get(self.resource, name, namespace)
        if obj is None or is_deleting(obj):
            return
        self._act(obj)
        current = self._cluster.current(self.resource, obj)
        if current is not None:
            seen = {"observedGeneration": current["metadata"].get("generation", 1)}
            self._store.put(self.resource, {**current, "status": {**self._status(current), **seen}})

    @abstractmethod
    def _act(self, obj: Json) -> None:
        """Create and delete what is missing and too much."""

    def _status(self, obj: Json) -> Json:
        """Return the counts that follow from the pods."""
        active = self._active(obj)
        return {"replicas": len(active), "readyReplicas": sum(map(is_ready, active))}

    def _active(self, obj: Json) -> list[Json]:
        return [pod for pod in self._cluster.owned_by(uid(obj)) if is_active(pod)]

    def _create(
        self, obj: Json, name: str = "", *, labels: Mapping[str, str] | None = None, spec: Json
    ) -> None:
        """Store a new pod by its owner's template with that spec, unless its namespace is going away."""
        where = namespace_of(obj)
        prefix = f"{obj['metadata']['name']}-"
        namespace = self._store.get(NAMESPACES, where)
        if namespace is not None and is_deleting(namespace):
            return
        template: Json = spec_of(obj)["template"].get("metadata") or {}
        known = {
            "name": name or self._store.free_name(PODS, prefix, where, self._cluster.rng),
            "namespace": where,
            "labels": {**(template.get("labels") or {}), **(labels or {})},
            "ownerReferences": [owner_reference(obj, self.resource)],
            "generation": 1,
            **({} if name else {"generateName": prefix}),
            "annotations": template.get("annotations") or {},
        }
        # Its parts are shared with the template, so that many pods take little memory.
        self._store.create(
            PODS, {"metadata": known, "spec": admit(spec), "status": {"phase": "Pending"}}
        )


def owner_reference(owner: Json, resource: Resource) -> Json:
    """Return the reference that makes an object the managing owner of another."""
    named = {"name": name_of(owner), "uid": uid(owner)}
    kind = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**kind, **named, "controller": True, "blockOwnerDeletion": True}


def template_spec(obj: Json) -> Json:
    """Return the pod spec of a workload's template."""
    return spec_of(spec_of(obj)["template"])


def _replicas(obj: Json) -> int:
    return int(spec_of(obj).get("replicas", 1))


class Deployments(WorkloadController):
    """Keeps each Deployment's ReplicaSet."""

    resource = DEPLOYMENTS

    @override
    def _act(self, obj: Json) -> None:
        owned = self._owned_replica_set(obj)
        if owned is None:
            self._store.create(REPLICASETS, _replica_set(obj))
        elif _replicas(owned) != _replicas(obj):
            self._store.put(REPLICASETS, with_spec(owned, replicas=_replicas(obj)))

    @override
    def _status(self, obj: Json) -> Json:
        below = status_of(self._owned_replica_set(obj) or {})
        return {name: below.get(name, 0) for name in ("replicas", "readyReplicas")}

    def _owned_replica_set(self, obj: Json) -> Json | None:
        return self._store.get(REPLICASETS, _set_name(obj), namespace_of(obj))


def _set_name(obj: Json) -> str:
    name = name_of(obj)
    return f"{name}-{crc32(name.encode()):08x}"


def _replica_set(obj: Json) -> Json:
    spec = spec_of(obj)
    metadata = {
        "name": _set_name(obj),
        "namespace": namespace_of(obj),
        "labels": field_of(spec, "template.metadata.labels") or {},
        "ownerReferences": [owner_reference(obj, DEPLOYMENTS)],
        "generation": 1,
    }
    kept = {
        "replicas": _replicas(obj),
        "selector": spec.get("selector") or {},
        "template": spec["template"],
    }
    return {"metadata": metadata, "spec": kept, "status": {"replicas": 0}}


class ReplicaSets(WorkloadController):
    """Keeps each ReplicaSet's number of pods: one that is leaving or has failed is replaced at once."""

    resource = REPLICASETS

    @override
    def _act(self, obj: Json) -> None:
        active = self._active(obj)
        missing = _replicas(obj) - len(active)
        for _ in range(missing):
            self._create(obj, spec=template_spec(obj))
        if missing < 0:
            # pods without a node go first, then unready ones
            for pod in sorted(active, key=lambda pod: (bool(node_name(pod)), is_ready(pod)))[
                :-missing
            ]:
                self._cluster.delete(PODS, pod)


class StatefulSets(WorkloadController):
    """Keeps each StatefulSet's ordinals, in order; one is replaced when the old pod is gone."""

    resource = STATEFULSETS

    @override
    def _act(self, obj: Json) -> None:
        pods = {
            int(name_of(pod).rpartition("-")[2]): pod for pod in self._cluster.owned_by(uid(obj))
        }
        if all(self._fill(obj, ordinal, pods.get(ordinal)) for ordinal in range(_replicas(obj))):
            last = max(pods, default=-1)
            if last >= _replicas(obj):
                self._cluster.delete(PODS, pods[last])

    def _fill(self, obj: Json, ordinal: int, pod: Json | None) -> bool:
        """See to one ordinal; whether its pod is Ready, so that the next one may follow."""
        if pod is None:
            name = f"{obj['metadata']['name']}-{ordinal}"
            labels = {
                "statefulset.kubernetes.io/pod-name": name,
                "apps.kubernetes.io/pod-index": str(ordinal),
            }
            self._create(
                obj,
                name,
                labels=labels,
                spec={**_spec_with_number(template_spec(obj), ordinal), "hostname": name},
            )
            return False
        if is_finished(pod):
            self._cluster.delete(PODS, pod)
        return is_ready(pod) and is_active(pod)


def _spec_with_number(spec: Json, ordinal: int) -> Json:
    """Return the spec of the pod with this number."""
    volumes = msgspec.json.encode(spec.get("volumes") or [])
    return {
        **spec,
        "volumes": msgspec.json.decode(volumes.replace(ORDINAL.encode(), b"%d" % ordinal)),
    }


# Nothing plays the pressures that the real controller has them tolerate as well.
_TOLERATED = ((NOT_READY, "NoExecute"), (UNREACHABLE, "NoExecute"), (UNSCHEDULABLE, "NoSchedule"))


class DaemonSets(WorkloadController):
    """Keeps each DaemonSet's pods."""

    resource = DAEMONSETS

    def node_changed(self, change: Change) -> None:
        """Look at all DaemonSets again when a node came, went, or changed what decides about its pods."""
        if change.differs(spec_of, labels_of):
            for obj in self._store.items(DAEMONSETS):
                self._cluster.agenda.soon(self.reconcile, *key(obj))

    @override
    def _act(self, obj: Json) -> None:
        present = self._by_node(obj)
        spec = _daemon_spec(obj)
        for node in self._store.items(NODES):
            name = name_of(node)
            pods = present.pop(name, [])
            if not pods and _fits(spec, node):
                self._create(obj, spec={**spec, "affinity": _pin_to_node(spec, name)})
            elif pods and not _fits(spec, node, ("NoExecute",)):
                self._delete(pods)
            else:
                self._delete(filter(is_finished, pods))
        for pods in present.values():
            self._delete(pods)

    @override
    def _status(self, obj: Json) -> Json:
        spec = _daemon_spec(obj)
        present = self._by_node(obj)
        wanted = {name_of(node) for node in self._store.items(NODES) if _fits(spec, node)}
        ready = [
            name
            for name in wanted
            if any(is_active(pod) and is_ready(pod) for pod in present.get(name, ()))
        ]
        return {"desiredNumberScheduled": len(wanted), "numberReady": len(ready)}

    def _by_node(self, obj: Json) -> dict[str, list[Json]]:
        """Return the DaemonSet's pods by the node they run on or are meant for."""
        pods: dict[str, list[Json]] = {}
        for pod in self._cluster.owned_by(uid(obj)):
            pods.setdefault(node_name(pod) or pinned_node(pod) or "", []).append(pod)
        return pods

    def _delete(self, pods: Iterable[Json]) -> None:
        for pod in pods:
            self._cluster.delete(PODS, pod)


def _daemon_spec(obj: Json) -> Json:
    """Return the template's pod spec with the tolerations that the controller adds."""
    spec = template_spec(obj)
    added = [{"key": taint, "operator": "Exists", "effect": effect} for taint, effect in _TOLERATED]
    return {**spec, "tolerations": [*(spec.get("tolerations") or ()), *added]}


def _pin_to_node(spec: Json, node: str) -> Json:
    """Return the affinity that binds the pod to one node, as the real controller writes it."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {**(spec.get("affinity") or {}), "nodeAffinity": required}


def _fits(spec: Json, node: Json, effects: tuple[str, ...] = ("NoSchedule", "NoExecute")) -> bool:
    """Whether a pod may come to the node, or by `NoExecute` alone stay there."""
    held = node_affinity_holds(spec, name_of(node), labels_of(node))
    return held and not untolerated_taints(spec, spec_of(node).get("taints") or (), effects)


OWNERS = (DEPLOYMENTS, REPLICASETS, STATEFULSETS, DAEMONSETS)


class GarbageCollector:
    """Lets go what a deleted workload owned, and empties a deleted namespace.

    Only owners that were seen to go count: a pod whose owner never existed is left alone, because
    clients of the lab make such pods to try things.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._store = cluster.store

    def changed(self, change: Change) -> None:
        """Take in a namespace that changed, or something that is gone: an owner, or what lay in such a namespace."""
        if change.resource in OWNERS:
            self._cluster.agenda.soon(self._collect, uid(change.obj))
        namespace = (
            name_of(change.obj) if change.resource is NAMESPACES else namespace_of(change.obj)
        )
        standing = self._store.get(NAMESPACES, namespace)
        if standing is not None and is_deleting(standing):
            self._cluster.agenda.soon(self._empty, namespace)

    def _collect(self, owner_uid: str) -> None:
        sets = self._store.items(REPLICASETS)
        self._remove(
            (REPLICASETS, item)
            for item in sets
            if (controller_of(item) or {}).get("uid") == owner_uid
        )
        self._remove((PODS, pod) for pod in self._cluster.owned_by(owner_uid))

    def _empty(self, namespace: str) -> None:
        """Delete what lies in it; once the last of that is gone, the namespace goes."""
        standing = self._store.get(NAMESPACES, namespace)
        if standing is None or not is_deleting(standing):
            return
        kinds = (resource for resource in STORED if resource.namespaced)
        content = [
            (resource, obj) for resource in kinds for obj in self._store.items(resource, namespace)
        ]
        self._remove(content)
        if not content and not standing["metadata"].get("finalizers"):
            self._store.remove(NAMESPACES, namespace)

    def _remove(self, objects: Iterable[tuple[Resource, Json]]) -> None:
        for resource, obj in objects:
            self._cluster.delete(resource, obj)
