"""Reading what other reboot coordinators have left: Nodes with the writers of their cordons, workloads, Leases."""

from collections.abc import Iterator

import msgspec

from rollout.errors import ApiError, ApiNotFoundError
from rollout.gather.cluster import decode, wire
from rollout.gather.cluster.listing import read_list
from rollout.gather.cluster.rivals import read_workloads
from rollout.gather.cluster.snapshot import NODES, node_path
from rollout.model import marks
from rollout.model.leftovers import CordonWriter, HeldLease, Standing, WrittenNode
from rollout.ports import ClusterApi

LEASES = "/apis/coordination.k8s.io/v1/leases"
# Every node has a Lease of its own there.
_WITHOUT_NODES = {"fieldSelector": "metadata.namespace!=kube-node-lease"}
_FORBIDDEN = 403

_Names = dict[str, msgspec.Raw]


class _MetaFields(msgspec.Struct, frozen=True, gc=False):
    annotations: _Names = msgspec.field(name="f:annotations", default_factory=dict)
    labels: _Names = msgspec.field(name="f:labels", default_factory=dict)


class _Fields(msgspec.Struct, frozen=True, gc=False):
    metadata: _MetaFields = msgspec.field(name="f:metadata", default=_MetaFields())
    spec: _Names = msgspec.field(name="f:spec", default_factory=dict)


class _Managed(msgspec.Struct, frozen=True, gc=False):
    manager: str = ""
    fields: _Fields = msgspec.field(name="fieldsV1", default=_Fields())


class _Meta(wire.Meta, frozen=True, gc=False, rename="camel"):
    managed_fields: tuple[_Managed, ...] | None = None


class _Node(wire.WireNode, frozen=True, gc=False):
    metadata: _Meta


class _LeaseSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None


class _Manager(msgspec.Struct, frozen=True, gc=False):
    manager: str = ""


class _LeaseMeta(wire.Meta, frozen=True, gc=False, rename="camel"):
    managed_fields: tuple[_Manager, ...] | None = None


class _Lease(msgspec.Struct, frozen=True, gc=False):
    metadata: _LeaseMeta
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
    return WrittenNode(decode.node(read), _cordon_writer(read.metadata.managed_fields or ()))


def _cordon_writer(entries: tuple[_Managed, ...]) -> CordonWriter | None:
    managers = {entry.manager for entry in entries if "f:unschedulable" in entry.fields.spec}
    if len(managers) != 1:
        return None
    (manager,) = managers
    return CordonWriter(manager, frozenset(_names(entry for entry in entries if entry.manager == manager)))


def _names(entries: Iterator[_Managed]) -> Iterator[str]:
    for entry in entries:
        for names in (entry.fields.metadata.annotations, entry.fields.metadata.labels):
            yield from (name.removeprefix("f:") for name in names if name.startswith("f:"))


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
        frozenset(entry.manager for entry in meta.managed_fields or ()),
    )
