"""Only a restart makes a new template here.

A rollout never exceeds its progress deadline. In a copy of a real cluster, the annotation
`template-hash` names the first ReplicaSet.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from zlib import crc32

from typing_extensions import override

from rollout.gather.cluster.decode import RESTARTED_AT
from rollout.lab.api.resources import DEPLOYMENTS, REPLICASETS
from rollout.lab.api.store import Json
from rollout.lab.objects import (
    LAB_PREFIX,
    annotations_of,
    field_of,
    name_of,
    namespace_of,
    spec_of,
    status_of,
    uid,
    with_spec,
)
from rollout.lab.world.cluster import SimulatedCluster
from rollout.lab.world.workloads import WorkloadController, owner_reference, replicas_of

TEMPLATE_HASH = "pod-template-hash"
COPIED_HASH = f"{LAB_PREFIX}template-hash"
_DEFAULT_SHARE = "25%"
# A real controller's hash has the alphabet of generated names.
_DIGITS = str.maketrans("0123456789", "456789bcdf")


class Deployments(WorkloadController):
    resource = DEPLOYMENTS

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__(cluster)
        # By the Deployment's UID, in order of creation.
        self._names: defaultdict[str, list[str]] = defaultdict(list)

    @override
    def _act(self, obj: Json) -> None:
        current_name = _set_name(obj)
        names = self._names[uid(obj)]
        if current_name not in names:
            names.append(current_name)
        sets = {name_of(item): item for item in self._sets(obj)}
        current = sets.pop(current_name, None)
        old = [item for item in sets.values() if replicas_of(item)]
        if current is None:
            replicas = 0 if old else replicas_of(obj)
            current = self._store.create(REPLICASETS, replica_set_of(obj, replicas))
        if spec_of(obj).get("paused"):
            return
        strategy = spec_of(obj).get("strategy") or {}
        if not old:
            self._scale(current, replicas_of(obj))
        elif strategy.get("type") == "Recreate":
            for item in old:
                self._scale(item, 0)
        else:
            self._roll(obj, current, old)

    def _roll(self, obj: Json, current: Json, old: list[Json]) -> None:
        desired = replicas_of(obj)
        rolling = field_of(obj, "spec.strategy.rollingUpdate") or {}
        surge = math.ceil(_share(rolling.get("maxSurge", _DEFAULT_SHARE), desired))
        unavailable = math.floor(_share(rolling.get("maxUnavailable", _DEFAULT_SHARE), desired))
        total_old = sum(map(replicas_of, old))
        room = desired + surge - total_old - replicas_of(current)
        new = min(desired, replicas_of(current) + max(0, room))
        self._scale(current, new)
        unready = new - _ready_replicas(current)
        spare = max(0, total_old + new - unready - (desired - unavailable))
        unhealthy = {name_of(item): replicas_of(item) - _ready_replicas(item) for item in old}
        # As in Kubernetes, unready pods end first, then the oldest set's.
        spare_ready = max(0, spare - sum(unhealthy.values()))
        for item in old:
            ended = min(spare, unhealthy[name_of(item)])
            spare -= ended
            ended_ready = min(spare_ready, replicas_of(item) - ended)
            spare_ready -= ended_ready
            self._scale(item, replicas_of(item) - ended - ended_ready)

    def _scale(self, replica_set: Json, replicas: int) -> None:
        if replicas_of(replica_set) != replicas:
            self._store.put(REPLICASETS, with_spec(replica_set, replicas=replicas))

    @override
    def _status(self, obj: Json) -> Json:
        sets = {name_of(item): status_of(item) for item in self._sets(obj)}
        ready = sum(status.get("readyReplicas", 0) for status in sets.values())
        return {
            "replicas": sum(status.get("replicas", 0) for status in sets.values()),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "updatedReplicas": sets.get(_set_name(obj), {}).get("replicas", 0),
        }

    def _sets(self, obj: Json) -> Iterable[Json]:
        for name in self._names[uid(obj)]:
            replica_set = self._store.get(REPLICASETS, name, namespace_of(obj))
            if replica_set is not None:
                yield replica_set


def _ready_replicas(replica_set: Json) -> int:
    ready: int = status_of(replica_set).get("readyReplicas", 0)
    return min(ready, replicas_of(replica_set))


def _share(amount: str | int, total: int) -> float:
    text = str(amount)
    return int(text[:-1]) * total / 100 if text.endswith("%") else int(text)


def _template_hash(obj: Json) -> str:
    annotations = field_of(obj, "spec.template.metadata.annotations") or {}
    restarted_at = annotations.get(RESTARTED_AT, "")
    copied = "" if restarted_at else annotations_of(obj).get(COPIED_HASH)
    return copied or str(crc32((name_of(obj) + restarted_at).encode())).translate(_DIGITS)


def _set_name(obj: Json) -> str:
    return f"{name_of(obj)}-{_template_hash(obj)}"


def replica_set_of(obj: Json, replicas: int) -> Json:
    spec = spec_of(obj)
    added = {TEMPLATE_HASH: _template_hash(obj)}
    template = spec["template"]
    template_metadata = template.get("metadata") or {}
    labels = {**(template_metadata.get("labels") or {}), **added}
    selector = spec.get("selector") or {}
    metadata = {
        "name": _set_name(obj),
        "namespace": namespace_of(obj),
        "labels": labels,
        "ownerReferences": [owner_reference(obj, DEPLOYMENTS)],
        "generation": 1,
    }
    set_spec = {
        "replicas": replicas,
        "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), **added}},
        "template": {**template, "metadata": {**template_metadata, "labels": labels}},
    }
    return {"metadata": metadata, "spec": set_spec, "status": {"replicas": 0}}
