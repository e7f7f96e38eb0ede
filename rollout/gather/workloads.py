"""The controllers of pods, with how many of their pods are ready: what settling after a wave is measured by."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from rollout.errors import ApiNotFoundError
from rollout.ports import ClusterApi

_PATHS = {
    "ReplicaSet": ("apps/v1", "replicasets"),
    "StatefulSet": ("apps/v1", "statefulsets"),
}


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


class _Meta(msgspec.Struct, gc=False):
    namespace: str
    name: str
    uid: str


class _Spec(msgspec.Struct, gc=False):
    replicas: int | None = None


class _Status(msgspec.Struct, gc=False, rename="camel"):
    ready_replicas: int | None = None


class _Item(msgspec.Struct, gc=False):
    metadata: _Meta
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


class _List(msgspec.Struct, gc=False):
    items: list[_Item] | None = None


def read_workloads(api: ClusterApi) -> Mapping[str, Workload]:
    """All ReplicaSets and StatefulSets, by UID."""
    return {workload.uid: workload for kind in _PATHS for workload in _listed(api, kind)}


def read_workload(api: ClusterApi, known: Workload) -> Workload | None:
    """One of them as it is now; None where it is gone, or was made anew."""
    group, plural = _PATHS[known.kind]
    try:
        body = api.get(f"/apis/{group}/namespaces/{known.namespace}/{plural}/{known.name}")
    except ApiNotFoundError:
        return None
    current = _workload(known.kind, msgspec.json.decode(body, type=_Item))
    return current if current.uid == known.uid else None


def _listed(api: ClusterApi, kind: str) -> Iterator[Workload]:
    group, plural = _PATHS[kind]
    for page in api.pages(f"/apis/{group}/{plural}"):
        for item in msgspec.json.decode(page, type=_List).items or ():
            yield _workload(kind, item)


def _workload(kind: str, item: _Item) -> Workload:
    desired = 1 if item.spec.replicas is None else item.spec.replicas
    meta = item.metadata
    return Workload(kind, meta.namespace, meta.name, meta.uid, desired, item.status.ready_replicas or 0)
