"""Reading what other reboot coordinators have left: Nodes with the writers of their cordons, workloads, Leases."""

import msgspec

from rollout.errors import ApiError, ApiNotFoundError
from rollout.gather.cluster import decode, wire
from rollout.gather.cluster.listing import read_list
from rollout.gather.cluster.rivals import read_workloads
from rollout.gather.cluster.snapshot import NODES, node_path
from rollout.model import marks
from rollout.model.leftovers import HeldLease, Standing, WrittenNode
from rollout.ports import ClusterApi

LEASES = "/apis/coordination.k8s.io/v1/leases"
# Every node has a Lease of its own there.
_WITHOUT_NODES = {"fieldSelector": "metadata.namespace!=kube-node-lease"}
_FORBIDDEN = 403


class _Node(wire.WireNode, frozen=True, gc=False):
    metadata: wire.ManagedMeta


class _LeaseSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None


class _Lease(msgspec.Struct, frozen=True, gc=False):
    metadata: wire.Meta
    spec: _LeaseSpec | None = None


def read_standing(api: ClusterApi) -> Standing:
    """All of it; what this user may not read is said. `ApiError` for any other failure."""
    nodes = read_list(api, NODES, _Node, _written).items
    workloads, unseen = read_workloads(api)
    try:
        leases = tuple(lease for lease in read_list(api, LEASES, _Lease, _held, _WITHOUT_NODES).items if lease)
    except ApiNotFoundError:
        leases = ()
    except ApiError as error:
        if error.status != _FORBIDDEN:
            raise
        leases, unseen = (), (*unseen, f"Leases of a FleetLock server cannot be looked for: {error.message}")
    return Standing(nodes, workloads, leases, unseen)


def read_written_node(api: ClusterApi, name: str) -> WrittenNode:
    """One Node; `ApiNotFoundError` where there is none."""
    path = node_path(name)
    return decode.one(api.get(path), _Node, _written, path)


def _written(read: _Node) -> WrittenNode:
    meta = read.metadata
    managers = {entry.manager for entry in meta.managed_fields or () if "f:unschedulable" in entry.fields.spec}
    return WrittenNode(decode.node(read), managers.pop() if len(managers) == 1 else "", meta.written_by)


def _held(read: _Lease) -> HeldLease | None:
    """A Lease as poseidon's FleetLock server makes them: by their name, without any time, and none of ours."""
    meta, spec = read.metadata, read.spec or _LeaseSpec()
    timed = spec.renew_time is not None or spec.lease_duration_seconds is not None
    ours = any(name.startswith(marks.PREFIX) for name in (*(meta.annotations or {}), *(meta.labels or {})))
    if timed or ours or not meta.name.startswith(marks.FLEETLOCK_LEASE_PREFIX):
        return None
    return HeldLease(
        meta.namespace or "",
        meta.name,
        meta.uid or "",
        meta.resource_version or "",
        spec.holder_identity or "",
    )
