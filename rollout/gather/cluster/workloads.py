from collections.abc import Mapping
from functools import partial

from msgspec import Struct

from rollout.errors import ApiNotFoundError
from rollout.gather.cluster import decode, wire
from rollout.gather.cluster.listing import read_list
from rollout.model.text import is_object_name
from rollout.ports import ClusterApi

_PLURALS = {"ReplicaSet": "replicasets", "StatefulSet": "statefulsets"}


class Workload(Struct, frozen=True):
    kind: str
    namespace: str
    name: str
    uid: str
    desired: int
    ready: int

    @property
    def key(self) -> str:
        return f"{self.kind.lower()}/{self.namespace}/{self.name}"

    @property
    def has_valid_names(self) -> bool:
        """Whether they may be in a path: others may have written the record."""
        has_names = is_object_name(self.namespace) and is_object_name(self.name)
        return self.kind in _PLURALS and has_names


class _WorkloadSpec(wire.Wire, frozen=True):
    replicas: int = 1


class _WorkloadStatus(wire.Wire, frozen=True):
    ready_replicas: int = 0


class _WireWorkload(wire.Object, frozen=True):
    spec: _WorkloadSpec = _WorkloadSpec()
    status: _WorkloadStatus = _WorkloadStatus()


def read_workloads(api: ClusterApi) -> Mapping[str, Workload]:
    """By UID."""
    workloads: dict[str, Workload] = {}
    for kind, plural in _PLURALS.items():
        path = f"/apis/apps/v1/{plural}"
        for workload in read_list(api, path, _WireWorkload, partial(_workload, kind)).items:
            workloads[workload.uid] = workload
    return workloads


def read_workload(api: ClusterApi, workload: Workload) -> Workload | None:
    """Return None if it is gone, or replaced under its name."""
    plural = _PLURALS[workload.kind]
    path = f"/apis/apps/v1/namespaces/{workload.namespace}/{plural}/{workload.name}"
    try:
        body = api.get(path)
    except ApiNotFoundError:
        return None
    current = decode.decode_object(body, _WireWorkload, partial(_workload, workload.kind), path)
    return current if current.uid == workload.uid else None


def _workload(kind: str, item: _WireWorkload) -> Workload:
    meta = item.metadata
    return Workload(
        kind=kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        desired=item.spec.replicas,
        ready=item.status.ready_replicas,
    )
