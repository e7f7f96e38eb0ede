"""The garbage collector: what a deleted workload owned goes too, and a deleted namespace empties itself.

Only owners that were seen to go count: a pod whose owner never existed is left alone, because clients of
the lab make such pods to try things.
"""

from rollout.lab.api.deletion import begin_deletion, settle
from rollout.lab.api.resources import (
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
from rollout.lab.world.objects import controller_of, is_deleting, spec_of, uid

OWNERS = (DEPLOYMENTS, REPLICASETS, STATEFULSETS, DAEMONSETS, JOBS)


class GarbageCollector:
    """Follows deletions of owners and namespaces."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def owner_changed(self, change: Change) -> None:
        """An owner changed: collect what it owned where it is gone."""
        if change.type is ChangeType.DELETED:
            self._cluster.agenda.soon(self._collect, uid(change.obj))

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
            self._remove(PODS, pod)
        for replica_set in list(self._cluster.store.items(REPLICASETS)):
            if (controller_of(replica_set) or {}).get("uid") == owner_uid:
                self._remove(REPLICASETS, replica_set)

    def _empty(self, namespace: str) -> None:
        standing = self._cluster.store.get(NAMESPACES, namespace)
        if standing is None or not is_deleting(standing):
            return
        for resource, obj in self._content(namespace):
            self._remove(resource, obj)
        if not self._content(namespace):
            settle(self._cluster.store, NAMESPACES, {**standing, "spec": {**spec_of(standing), "finalizers": []}})

    def _remove(self, resource: Resource, obj: Json) -> None:
        if is_deleting(obj) or self._cluster.current(resource, obj) is None:
            return
        if resource is PODS:
            self._cluster.delete_pod(obj)
        else:
            begin_deletion(self._cluster.store, resource, obj)

    def _content(self, namespace: str) -> list[tuple[Resource, Json]]:
        kinds = (resource for resource in STORED if resource.namespaced)
        return [(resource, obj) for resource in kinds for obj in self._cluster.store.items(resource, namespace)]
