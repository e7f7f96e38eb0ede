"""Deployments: one ReplicaSet per template, the pods moving from the old ones to the newest."""

from typing_extensions import override

from rollout.lab.api.resources import DEPLOYMENTS, REPLICASETS
from rollout.lab.api.store import Change, ChangeType, Json
from rollout.lab.world.cluster import Cluster
from rollout.lab.world.objects import (
    Key,
    controller_of,
    key,
    spec_of,
    status_of,
    with_condition,
    with_spec,
)
from rollout.lab.world.workloads.controller import WorkloadController, kept_conditions, without_zeros
from rollout.lab.world.workloads.pod_template import owner_reference, template_hash

_HASH_LABEL = "pod-template-hash"
_REVISION = "deployment.kubernetes.io/revision"


class Deployments(WorkloadController):
    """Keeps each Deployment's ReplicaSets."""

    resource = DEPLOYMENTS

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._sets: dict[str, dict[Key, None]] = {}

    def replica_set_changed(self, change: Change) -> None:
        """File a ReplicaSet under the Deployment that owns it."""
        owner = controller_of(change.obj)
        if owner is None:
            return
        filed = self._sets.setdefault(owner["uid"], {})
        if change.type is ChangeType.DELETED:
            filed.pop(key(change.obj), None)
        else:
            filed[key(change.obj)] = None

    @override
    def _act(self, obj: Json) -> None:
        newest, wanted = self._newest(obj), _replicas(obj)
        self._scale(newest, wanted)
        left = max(0, wanted - int(status_of(newest).get("availableReplicas", 0)))
        for replica_set in self._owned(obj):
            if key(replica_set) != key(newest):
                self._scale(replica_set, min(left, _replicas(replica_set)))

    @override
    def _status(self, obj: Json) -> Json:
        owned, wanted = self._owned(obj), _replicas(obj)
        available = _total(owned, "availableReplicas")
        counts = {
            "replicas": _total(owned, "replicas"),
            "updatedReplicas": int(status_of(self._newest(obj)).get("replicas", 0)),
            "readyReplicas": _total(owned, "readyReplicas"),
            "availableReplicas": available,
            "unavailableReplicas": max(0, wanted - available),
        }
        counted = {**obj, "status": {**without_zeros(counts), **kept_conditions(obj)}}
        return status_of(with_condition(counted, _availability(wanted, available), self._cluster.now()))

    def _owned(self, obj: Json) -> list[Json]:
        keys = self._sets.get(obj["metadata"]["uid"], {})
        replica_sets = [self._cluster.store.get(REPLICASETS, name, namespace) for namespace, name in keys]
        return [replica_set for replica_set in replica_sets if replica_set is not None]

    def _newest(self, obj: Json) -> Json:
        """The ReplicaSet of the present template; made where there is none."""
        digest = template_hash(spec_of(obj)["template"])
        name, namespace = f"{obj['metadata']['name']}-{digest}", obj["metadata"].get("namespace", "")
        standing = self._cluster.store.get(REPLICASETS, name, namespace)
        if standing is not None:
            return standing
        replica_set = _replica_set(obj, name, digest, revision=len(self._owned(obj)) + 1)
        return self._cluster.store.create(REPLICASETS, replica_set)

    def _scale(self, replica_set: Json, replicas: int) -> None:
        if _replicas(replica_set) != replicas:
            self._cluster.store.put(REPLICASETS, with_spec(replica_set, replicas=replicas))


def _replica_set(obj: Json, name: str, digest: str, *, revision: int) -> Json:
    spec, template = spec_of(obj), spec_of(obj)["template"]
    labels = {**((template.get("metadata") or {}).get("labels") or {}), _HASH_LABEL: digest}
    selector = spec.get("selector") or {}
    chosen = {**(selector.get("matchLabels") or {}), _HASH_LABEL: digest}
    return {
        "metadata": {
            "name": name,
            "namespace": obj["metadata"].get("namespace", ""),
            "labels": labels,
            "annotations": {_REVISION: str(revision)},
            "ownerReferences": [owner_reference(obj, DEPLOYMENTS)],
            "generation": 1,
        },
        "spec": {
            "replicas": _replicas(obj),
            "selector": {**selector, "matchLabels": chosen},
            "template": {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}},
        },
        "status": {"replicas": 0},
    }


def _replicas(obj: Json) -> int:
    return int(spec_of(obj).get("replicas", 1))


def _total(replica_sets: list[Json], count: str) -> int:
    return sum(int(status_of(replica_set).get(count, 0)) for replica_set in replica_sets)


def _availability(wanted: int, available: int) -> Json:
    # A quarter may be missing: the default of a Deployment's rolling update.
    enough = available >= wanted - wanted // 4
    return {
        "type": "Available",
        "status": "True" if enough else "False",
        "reason": "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
        "message": "Deployment has minimum availability."
        if enough
        else "Deployment does not have minimum availability.",
    }
