"""From the API's JSON to the values of the model: pure, one function a kind.

Thousands of pods repeat the same labels, owners, names and requests: `Shared` keeps one of each for
a read, so that a snapshot's size goes by what differs.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from sys import intern
from typing import Any, TypeVar

from rollout.errors import ApiUnavailableError
from rollout.gather.cluster import wire
from rollout.gather.cluster.demands import (
    amounts,
    label_selector,
    node_terms,
    pod_requests,
    read_placement,
)
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
    VolumeAttachment,
)
from rollout.model.json_text import NOT_READ
from rollout.model.timestamps import parse_timestamp

_OK = 200

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
_NODE_CRITICAL = "system-node-critical"

_UNTOLD = wire.Condition()
_STATES = frozenset(ReadyState)
_PHASES = frozenset(PodPhase)

T = TypeVar("T")
W = TypeVar("W")
H = TypeVar("H", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Shared:
    """Equal values of one read, kept once."""

    values: dict[Hashable, Any] = field(default_factory=dict)

    def one(self, value: H) -> H:
        """Return the first value met that equals this one."""
        return self._once((type(value), value), lambda: value)

    def labels(self, labels: wire.Labels) -> Mapping[str, str]:
        """Return the first map met that equals this one."""
        key = tuple(labels.items())
        return self._once(key, lambda: {intern(name): intern(value) for name, value in key})

    def placement(self, spec: wire.PodSpec) -> Placement:
        """Return what this spec demands of its place, read once for all pods that say the same."""
        key = bytes(spec.affinity), bytes(spec.tolerations), bytes(spec.topology_spread_constraints)
        return self._once(key, lambda: read_placement(*key))

    def _once(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self.values:
            self.values[key] = make()
        made: T = self.values[key]
        return made


def decode(body: bytes, shape: type[T], origin: str) -> T:
    """Read a body as one of the shapes of `wire`; `ApiUnavailableError` names where it came from."""
    try:
        return decoder_of(shape).decode(body)
    except NOT_READ as error:
        raise invalid_answer(origin, error) from error


def invalid_answer(origin: str, why: object) -> ApiUnavailableError:
    """Return what is raised for an answer with a good status that is not what the API documents.

    It passes like an answer 502: whoever answers in the server's place does so for a while.
    """
    return ApiUnavailableError(
        f"the answer to {origin} is not what an API server gives: {why}",
        status=_OK,
        hint=(
            "Something between here and the API server may answer in its place: a proxy, a login"
            " page."
        ),
    )


def one(body: bytes, shape: type[W], project: Callable[[W], T], origin: str) -> T:
    """Read a single object and turn it into a value."""
    read = decode(body, shape, origin)
    try:
        return project(read)
    except ValueError as error:
        raise invalid_answer(origin, error) from error


def node(read: wire.WireNode) -> Node:
    """Return a Node."""
    meta = read.metadata
    info = read.status.node_info
    ready = _by_type(read.status.conditions).get("Ready", _UNTOLD)
    return Node(
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        labels=meta.labels,
        annotations=meta.annotations,
        unschedulable=read.spec.unschedulable,
        ready=ReadyState(ready.status) if ready.status in _STATES else ReadyState.UNKNOWN,
        ready_message=ready.message,
        taints=read.spec.taints,
        addresses=read.status.addresses,
        boot_id=info.boot_id.lower(),
        machine_id=info.machine_id.replace("-", "").lower(),
        os_image=info.os_image,
        kubelet_version=info.kubelet_version,
        allocatable=amounts(read.status.allocatable),
        deleting=bool(meta.deletion_timestamp),
        operating_system=info.operating_system,
    )


def _by_type(conditions: Iterable[wire.Condition]) -> Mapping[str, wire.Condition]:
    return {condition.type: condition for condition in conditions}


def pod(read: wire.WirePod, shared: Shared) -> Pod:
    """Return a pod."""
    meta = read.metadata
    spec = read.spec
    conditions = _by_type(read.status.conditions)
    placed = conditions.get("PodScheduled", _UNTOLD)
    began = conditions.get("Ready", _UNTOLD)
    ready = began.status == ReadyState.TRUE
    since = began.last_transition_time or placed.last_transition_time or ""
    owner = _owner(meta.owner_references, shared)
    mirror = MIRROR_ANNOTATION in meta.annotations
    # it belongs to its node: it is never placed anew, and what it demands names the node
    stays = mirror or (owner is not None and owner.kind == "DaemonSet")
    return Pod(
        namespace=intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        node=intern(spec.node_name),
        phase=PodPhase(read.status.phase) if read.status.phase in _PHASES else PodPhase.UNKNOWN,
        ready=ready,
        labels=shared.labels(meta.labels),
        owner=owner,
        mirror=mirror,
        has_empty_dir=any(volume.empty_dir is not None for volume in spec.volumes),
        requests=shared.one(pod_requests(spec)),
        deleted_at=meta.deletion_timestamp,
        grace_period=spec.termination_grace_period_seconds,
        deletion_grace=meta.deletion_grace_period_seconds,
        finalizers=meta.finalizers,
        node_selector=shared.labels(spec.node_selector),
        # those that outlive the pod: an ephemeral volume goes with it, and a new pod has a new one
        claims=tuple(
            filter(None, (volume.persistent_volume_claim.claim_name for volume in spec.volumes))
        ),
        placement=ANYWHERE if stays else shared.placement(spec),
        unready_since="" if ready else since,
        start_seconds=_start_seconds(placed, began) if ready else None,
        ready_since=since if ready and stays else "",
        node_critical=spec.priority_class_name == _NODE_CRITICAL,
    )


def _start_seconds(placed: wire.Condition, ready: wire.Condition) -> int | None:
    """From the moment at which a ready pod had its node until it was ready, for the last time; None: not known."""
    began = parse_timestamp(placed.last_transition_time or "")
    ended = parse_timestamp(ready.last_transition_time or "")
    return round((ended - began).total_seconds()) if began and ended and ended >= began else None


def _owner(references: Iterable[wire.OwnerReference], shared: Shared) -> OwnerRef | None:
    controller = next((reference for reference in references if reference.controller), None)
    if controller is None:
        return None
    return shared.one(
        OwnerRef(controller.api_version, controller.kind, controller.name, controller.uid)
    )


def budget(read: wire.WireBudget) -> Budget:
    """Return a budget as policy/v1 means it: an empty selector covers every pod of the namespace."""
    spec = read.spec
    status = read.status
    verdict = _by_type(status.conditions).get("DisruptionAllowed", _UNTOLD)
    why = verdict.message or "its controller could not count its pods"
    return Budget(
        namespace=read.metadata.namespace,
        name=read.metadata.name,
        selector=label_selector(spec.selector) if spec.selector is not None else None,
        min_available=str(spec.min_available),
        max_unavailable=str(spec.max_unavailable),
        disruptions_allowed=status.disruptions_allowed,
        current_healthy=status.current_healthy,
        desired_healthy=status.desired_healthy,
        expected_pods=status.expected_pods,
        always_allow_unhealthy=spec.unhealthy_pod_eviction_policy == "AlwaysAllow",
        sync_error=why if verdict.reason == "SyncFailed" else "",
        uid=read.metadata.uid or "",
        version=read.metadata.resource_version or "",
    )


def namespace(read: wire.Object) -> tuple[str, Mapping[str, str]]:
    """Return a namespace's name and labels."""
    return read.metadata.name, read.metadata.labels


def daemon_set(read: wire.WireDaemonSet) -> DaemonSet:
    """Return a DaemonSet."""
    meta = read.metadata
    spec = read.spec.template.spec
    return DaemonSet(
        meta.namespace, meta.name, meta.uid, spec.node_selector, Shared().placement(spec)
    )


def attachment(read: wire.WireAttachment) -> VolumeAttachment:
    """Return a VolumeAttachment."""
    return VolumeAttachment(
        read.metadata.name, read.spec.node_name, read.spec.source.persistent_volume_name
    )


def volume(read: wire.WireVolume) -> PersistentVolume | None:
    """Return a PersistentVolume, if it is bound and attaches to certain nodes only."""
    claim = read.spec.claim_ref
    terms = node_terms(read.spec.node_affinity.required)
    if claim is None or terms is None:
        return None
    return PersistentVolume(read.metadata.name, f"{claim.namespace}/{claim.name}", terms)
