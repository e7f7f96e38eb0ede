"""Reading what other reboot coordinators have left: Nodes with the writers of their cordons, workloads, Leases."""

import msgspec

from rollout.errors import ApiError, ApiNotFoundError
from rollout.gather.cluster import wire
from rollout.gather.cluster.listing import read_list
from rollout.gather.cluster.rivals import read_workloads
from rollout.gather.cluster.snapshot import read_node, read_nodes
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.leftovers import HeldLease, Standing, WrittenNode
from rollout.ports import ClusterApi

LEASES = "/apis/coordination.k8s.io/v1/leases"
# Every node has a Lease of its own there.
_WITHOUT_NODES = {"fieldSelector": "metadata.namespace!=kube-node-lease"}
_FORBIDDEN = 403


class _LeaseSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None


class _Lease(msgspec.Struct, frozen=True, gc=False):
    metadata: wire.Meta
    spec: _LeaseSpec | None = None


def read_standing(api: ClusterApi) -> Standing:
    """All of it; what this user may not read is said. `ApiError` for any other failure."""
    nodes = tuple(_written(node) for node in read_nodes(api))
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
    return _written(read_node(api, name))


def _written(node: Node) -> WrittenNode:
    return WrittenNode(node, node.cordoned_by, node.written_by)


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
