"""From the API's JSON to the values of the model: pure, one function a kind.

Thousands of pods repeat the same labels, owners, names and requests: `Shared` keeps one of each for a read, so
that a snapshot's size goes by what differs.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from sys import intern
from typing import TypeVar

import msgspec

from rollout.errors import ApiUnavailableError
from rollout.gather.cluster import wire
from rollout.gather.cluster.demands import amounts, label_selector, node_terms, pod_requests, read_placement
from rollout.gather.cluster.wire import decoder_of
from rollout.model.cluster import (
    ANYWHERE,
    Budget,
    DaemonSet,
    Node,
    OwnerRef,
    PersistentVolume,
    Placement,
    Pod,
    PodPhase,
    ReadyState,
    Taint,
    VolumeAttachment,
)

# What decoding raises where a text is no JSON, or not of the wanted shape; too deeply nested is no JSON either.
NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_OK = 200

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
_NODE_CRITICAL = "system-node-critical"
_DEFAULT_GRACE = 30

T = TypeVar("T")
W = TypeVar("W")
H = TypeVar("H", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Shared:
    """Equal values of one read, kept once."""

    values: dict[Hashable, Hashable] = field(default_factory=dict)
    maps: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = field(default_factory=dict)
    placements: dict[tuple[bytes, ...], Placement] = field(default_factory=dict)

    def one(self, value: H) -> H:
        """Return the first value met that equals this one."""
        return self.values.setdefault((type(value), value), value)  # type: ignore[return-value]  # same type by key

    def labels(self, labels: wire.Labels | None) -> Mapping[str, str]:
        """Return the first map met that equals this one."""
        if not labels:
            return self.maps.setdefault((), {})
        key = tuple(labels.items())
        shared = self.maps.get(key)
        if shared is None:
            shared = self.maps[key] = {intern(name): intern(value) for name, value in key}
        return shared

    def placement(self, spec: wire.PodSpec) -> Placement:
        """Return what this spec demands of its place, read once for all pods that say the same."""
        key = bytes(spec.affinity), bytes(spec.tolerations), bytes(spec.topology_spread_constraints)
        shared = self.placements.get(key)
        if shared is None:
            shared = self.placements[key] = read_placement(*key)
        return shared


def decode(body: bytes, shape: type[T], origin: str) -> T:
    """Read a body as one of the shapes of `wire`; `ApiUnavailableError` names where it came from."""
    try:
        return decoder_of(shape).decode(body)
    except NO_JSON as error:
        raise garbled(origin, error) from error


def garbled(origin: str, why: object) -> ApiUnavailableError:
    """Return what is raised for an answer with a good status that is not what the API documents.

    It passes like an answer 502: whoever answers in the server's place does so for a while.
    """
    return ApiUnavailableError(
        f"the answer to {origin} is not what an API server gives: {why}",
        status=_OK,
        hint="Something between here and the API server may answer in its place: a proxy, a login page.",
    )


def one(body: bytes, shape: type[W], project: Callable[[W], T], origin: str) -> T:
    """Read a single object and turn it into a value."""
    read = decode(body, shape, origin)
    try:
        return project(read)
    except ValueError as error:
        raise garbled(origin, error) from error


def node(read: wire.WireNode) -> Node:
    """Return a Node."""
    meta = read.metadata
    spec, status = read.spec or wire.NodeSpec(), read.status or wire.NodeStatus()
    info = status.node_info or wire.NodeInfo()
    ready = _condition(status.conditions, "Ready")
    return Node(
        name=meta.name,
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        labels=meta.labels or {},
        annotations=meta.annotations or {},
        unschedulable=bool(spec.unschedulable),
        ready=_ready_state(ready),
        ready_message=(ready.message or "") if ready else "",
        taints=tuple(
            Taint(taint.key, taint.value or "", taint.effect or "", taint.time_added or "")
            for taint in spec.taints or ()
        ),
        addresses=status.addresses or (),
        boot_id=(info.boot_id or "").lower(),
        machine_id=(info.machine_id or "").replace("-", "").lower(),
        os_image=info.os_image or "",
        kubelet_version=info.kubelet_version or "",
        allocatable=amounts(status.allocatable or {}),
        deleting=meta.deletion_timestamp is not None,
    )


def _condition(conditions: Iterable[wire.Condition] | None, kind: str) -> wire.Condition | None:
    return next((condition for condition in conditions or () if condition.type == kind), None)


def _ready_state(condition: wire.Condition | None) -> ReadyState:
    if condition is None or condition.status not in (ReadyState.TRUE, ReadyState.FALSE):
        return ReadyState.UNKNOWN
    return ReadyState(condition.status)


def pod(read: wire.WirePod, shared: Shared) -> Pod:
    """Return a pod."""
    meta = read.metadata
    spec, status = read.spec or wire.PodSpec(), read.status or wire.PodStatus()
    ready = _ready_state(_condition(status.conditions, "Ready")) is ReadyState.TRUE
    owner = _owner(meta.owner_references, shared)
    mirror = MIRROR_ANNOTATION in (meta.annotations or {})
    # it belongs to its node: it is never placed anew, and what it demands names the node
    stays = mirror or (owner is not None and owner.kind == "DaemonSet")
    grace = spec.termination_grace_period_seconds
    return Pod(
        namespace=intern(meta.namespace or ""),
        name=meta.name,
        uid=meta.uid or "",
        node=intern(spec.node_name or ""),
        phase=_phase(status.phase),
        ready=ready,
        labels=shared.labels(meta.labels),
        owner=owner,
        mirror=mirror,
        has_empty_dir=any(volume.empty_dir is not None for volume in spec.volumes or ()),
        requests=shared.one(pod_requests(spec)),
        deleted_at=meta.deletion_timestamp or "",
        grace_period=_DEFAULT_GRACE if grace is None else grace,
        finalizers=meta.finalizers or (),
        node_selector=shared.labels(spec.node_selector),
        claims=_claims(spec.volumes or ()),
        placement=ANYWHERE if stays else shared.placement(spec),
        unready_since="" if ready else _since(status.conditions),
        start_seconds=_start_seconds(status.conditions) if ready else None,
        ready_since=_since(status.conditions) if ready and stays else "",
        node_critical=spec.priority_class_name == _NODE_CRITICAL,
    )


def _since(conditions: Iterable[wire.Condition] | None) -> str:
    condition = _condition(conditions, "Ready") or _condition(conditions, "PodScheduled")
    return (condition.last_transition_time or "") if condition else ""


def _start_seconds(conditions: Iterable[wire.Condition] | None) -> int | None:
    """From the moment at which a ready pod had its node until it was ready, for the last time; None: not known."""
    scheduled, ready = (_condition(conditions, kind) for kind in ("PodScheduled", "Ready"))
    if scheduled is None or ready is None:
        return None
    try:
        began, ended = (datetime.fromisoformat(one.last_transition_time or "") for one in (scheduled, ready))
        seconds = round((ended - began).total_seconds())
    except (TypeError, ValueError):
        return None
    return seconds if seconds >= 0 else None


def _phase(word: str | None) -> PodPhase:
    try:
        return PodPhase(word or PodPhase.UNKNOWN)
    except ValueError:
        return PodPhase.UNKNOWN


def _owner(references: Iterable[wire.OwnerReference] | None, shared: Shared) -> OwnerRef | None:
    controller = next((reference for reference in references or () if reference.controller), None)
    if controller is None:
        return None
    return shared.one(
        OwnerRef(controller.api_version, controller.kind, controller.name, controller.uid),
    )


def _claims(volumes: Iterable[wire.Volume]) -> tuple[str, ...]:
    """List the claims that outlive the pod; an ephemeral volume goes with it, and a new pod has a new one."""
    sources = (volume.persistent_volume_claim for volume in volumes)
    return tuple(claim.claim_name for claim in sources if claim is not None and claim.claim_name)


def budget(read: wire.WireBudget) -> Budget:
    """Return a budget as policy/v1 means it: an empty selector covers every pod of the namespace."""
    spec, status = read.spec or wire.BudgetSpec(), read.status or wire.BudgetStatus()
    return Budget(
        namespace=read.metadata.namespace or "",
        name=read.metadata.name,
        selector=label_selector(spec.selector) if spec.selector is not None else None,
        min_available=_written(spec.min_available),
        max_unavailable=_written(spec.max_unavailable),
        disruptions_allowed=status.disruptions_allowed or 0,
        current_healthy=status.current_healthy or 0,
        desired_healthy=status.desired_healthy or 0,
        expected_pods=status.expected_pods or 0,
        always_allow_unhealthy=spec.unhealthy_pod_eviction_policy == "AlwaysAllow",
        sync_error=_sync_error(_condition(status.conditions, "DisruptionAllowed")),
        uid=read.metadata.uid or "",
        version=read.metadata.resource_version or "",
    )


def _sync_error(verdict: wire.Condition | None) -> str:
    if verdict is None or verdict.reason != "SyncFailed":
        return ""
    return verdict.message or "its controller could not count its pods"


def _written(number: int | str | None) -> str:
    return "" if number is None else str(number)


def namespace(read: wire.Named) -> tuple[str, Mapping[str, str]]:
    """Return a namespace's name and labels."""
    return read.metadata.name, read.metadata.labels or {}


def daemon_set(read: wire.WireDaemonSet) -> DaemonSet:
    """Return a DaemonSet."""
    meta, template = read.metadata, (read.spec or wire.DaemonSetSpec()).template
    spec = (template or wire.PodTemplate()).spec or wire.PodSpec()
    placement = Shared().placement(spec)
    return DaemonSet(meta.namespace or "", meta.name, meta.uid or "", spec.node_selector or {}, placement)


def attachment(read: wire.WireAttachment) -> VolumeAttachment:
    """Return a VolumeAttachment."""
    spec = read.spec or wire.AttachmentSpec()
    source = spec.source or wire.AttachmentSource()
    return VolumeAttachment(read.metadata.name, spec.node_name, source.persistent_volume_name or "")


def volume(read: wire.WireVolume) -> PersistentVolume | None:
    """Return a PersistentVolume, if it is bound and attaches to certain nodes only."""
    spec = read.spec or wire.VolumeSpec()
    terms = node_terms(bytes(spec.node_affinity.required)) if spec.node_affinity else None
    if spec.claim_ref is None or terms is None:
        return None
    return PersistentVolume(read.metadata.name, f"{spec.claim_ref.namespace}/{spec.claim_ref.name}", terms)
