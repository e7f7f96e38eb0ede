"""The controllers of pods, with how many of their pods are ready: what settling after a wave is measured by."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from rollout.errors import ApiNotFoundError
from rollout.gather.cluster import decode, wire
from rollout.gather.cluster.listing import read_list
from rollout.model.text import is_object_name
from rollout.ports import ClusterApi

_PLURALS = {"ReplicaSet": "replicasets", "StatefulSet": "statefulsets"}


@dataclass(frozen=True, slots=True)
class Workload:
    """A controller: `desired` pods, of which `ready` are ready."""

    kind: str
    namespace: str
    name: str
    uid: str
    desired: int
    ready: int

    @property
    def key(self) -> str:
        """kind/namespace/name."""
        return f"{self.kind.lower()}/{self.namespace}/{self.name}"

    @property
    def is_named(self) -> bool:
        """Whether it can be asked for by its name: one that was written down may have been written by others."""
        return (
            self.kind in _PLURALS and is_object_name(self.namespace) and is_object_name(self.name)
        )


class _WorkloadSpec(wire.Wire, frozen=True):
    replicas: int = 1


class _WorkloadStatus(wire.Wire, frozen=True):
    ready_replicas: int = 0


class _WireWorkload(wire.Object, frozen=True):
    spec: _WorkloadSpec = _WorkloadSpec()
    status: _WorkloadStatus = _WorkloadStatus()


def read_workloads(api: ClusterApi) -> Mapping[str, Workload]:
    """All ReplicaSets and StatefulSets, by UID."""
    return {
        workload.uid: workload
        for kind, plural in _PLURALS.items()
        for workload in read_list(
            api, f"/apis/apps/v1/{plural}", _WireWorkload, partial(_workload, kind)
        ).items
    }


def read_workload(api: ClusterApi, workload: Workload) -> Workload | None:
    """One of them as it is now; None where it is gone, or was made anew."""
    path = (
        f"/apis/apps/v1/namespaces/{workload.namespace}/{_PLURALS[workload.kind]}/{workload.name}"
    )
    try:
        body = api.get(path)
    except ApiNotFoundError:
        return None
    current = decode.one(body, _WireWorkload, partial(_workload, workload.kind), path)
    return current if current.uid == workload.uid else None


def _workload(kind: str, item: _WireWorkload) -> Workload:
    meta = item.metadata
    return Workload(
        kind, meta.namespace, meta.name, meta.uid, item.spec.replicas, item.status.ready_replicas
    )
