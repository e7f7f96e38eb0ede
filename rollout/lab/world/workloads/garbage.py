"""The garbage collector: what a deleted object owned goes too, and namespaces empty themselves.

Only owners that were seen to go count: a pod whose owner never existed is left alone, because clients of
the lab make such pods to try things.
"""

from rollout.lab.api.deletion import begin_deletion, settle
from rollout.lab.api.resources import (
    CONFIGMAPS,
    DAEMONSETS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    PODS,
    REPLICASETS,
    STATEFULSETS,
    STORED,
    Resource,
)
from rollout.lab.api.store import Change, ChangeType, Json
from rollout.lab.world.cluster import Cluster
from rollout.lab.world.objects import is_deleting, spec_of, uid

OWNERS = (DEPLOYMENTS, REPLICASETS, STATEFULSETS, DAEMONSETS, JOBS)
_DEPENDENTS = (REPLICASETS, CONFIGMAPS)
_ORPHAN, _FOREGROUND = "orphan", "foregroundDeletion"


class GarbageCollector:
    """Follows deletions of owners and namespaces."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def owner_changed(self, change: Change) -> None:
        """An owner changed: act where it is going or gone."""
        if change.type is ChangeType.DELETED:
            self._cluster.agenda.soon(self._collect, uid(change.obj))
        elif is_deleting(change.obj):
            self._cluster.agenda.soon(self._finalize, change.resource, *_place(change.obj))

    def namespace_changed(self, change: Change) -> None:
        """A namespace changed: empty it where it is being deleted."""
        if change.type is not ChangeType.DELETED and is_deleting(change.obj):
            self._cluster.agenda.soon(self._empty, change.obj["metadata"]["name"])

    def content_removed(self, change: Change) -> None:
        """Something in a namespace is gone: the last one lets a deleted namespace go."""
        namespace = change.obj["metadata"].get("namespace", "")
        standing = self._cluster.store.get(NAMESPACES, namespace) if namespace else None
        if standing is not None and is_deleting(standing):
            self._cluster.agenda.soon(self._empty, namespace)

    def _collect(self, owner_uid: str) -> None:
        for pod in self._cluster.pods.owned_by(owner_uid):
            if not is_deleting(pod):
                self._cluster.delete_pod(pod)
        for resource, obj in self._dependents(owner_uid):
            begin_deletion(self._cluster.store, resource, obj)

    def _finalize(self, resource: Resource, namespace: str, name: str) -> None:
        """Do what a deletion with a propagation policy of its own asked for, then let the owner go."""
        obj = self._cluster.store.get(resource, name, namespace)
        finalizers = obj["metadata"].get("finalizers") or [] if obj is not None else []
        if obj is None or not {_ORPHAN, _FOREGROUND} & set(finalizers):
            return
        if _ORPHAN in finalizers:
            self._orphan(uid(obj))
        else:
            self._collect(uid(obj))
        left = [finalizer for finalizer in finalizers if finalizer not in (_ORPHAN, _FOREGROUND)]
        settle(self._cluster.store, resource, {**obj, "metadata": {**obj["metadata"], "finalizers": left}})

    def _orphan(self, owner_uid: str) -> None:
        owned = [(PODS, pod) for pod in self._cluster.pods.owned_by(owner_uid)]
        for resource, obj in [*owned, *self._dependents(owner_uid)]:
            references = [
                reference for reference in obj["metadata"]["ownerReferences"] if reference["uid"] != owner_uid
            ]
            orphaned = {**obj, "metadata": {**obj["metadata"], "ownerReferences": references}}
            self._cluster.store.put(resource, orphaned)

    def _dependents(self, owner_uid: str) -> list[tuple[Resource, Json]]:
        return [
            (resource, obj)
            for resource in _DEPENDENTS
            for obj in self._cluster.store.items(resource)
            if any(reference["uid"] == owner_uid for reference in obj["metadata"].get("ownerReferences") or ())
        ]

    def _empty(self, namespace: str) -> None:
        standing = self._cluster.store.get(NAMESPACES, namespace)
        if standing is None or not is_deleting(standing):
            return
        content = self._content(namespace)
        for resource, obj in content:
            self._remove(resource, obj)
        if not self._content(namespace):
            finalizers = [
                finalizer for finalizer in spec_of(standing).get("finalizers") or () if finalizer != "kubernetes"
            ]
            spec = {**spec_of(standing), "finalizers": finalizers}
            settle(self._cluster.store, NAMESPACES, {**standing, "spec": spec})

    def _remove(self, resource: Resource, obj: Json) -> None:
        if is_deleting(obj):
            return
        if resource is PODS:
            self._cluster.delete_pod(obj)
        elif self._cluster.current(resource, obj) is not None:
            begin_deletion(self._cluster.store, resource, obj)

    def _content(self, namespace: str) -> list[tuple[Resource, Json]]:
        return [
            (resource, obj)
            for resource in STORED
            if resource.namespaced
            for obj in self._cluster.store.items(resource, namespace)
        ]


def _place(obj: Json) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
