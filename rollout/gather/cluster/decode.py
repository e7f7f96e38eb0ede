import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from sys import intern
from typing import Any, TypeVar

from rollout.errors import ApiUnavailableError
from rollout.gather.cluster import wire
from rollout.gather.cluster.demands import (
    amounts,
    demand_key,
    label_selector,
    node_terms,
    pod_requests,
    read_placement,
)
from rollout.gather.cluster.wire import decoder_of
from rollout.model.cluster import (
    ANYWHERE,
    Budget,
    ConditionStatus,
    DaemonSet,
    Node,
    OwnerRef,
    PersistentVolume,
    Placement,
    Pod,
    PodPhase,
    Resources,
    VolumeAttachment,
)
from rollout.model.deployment import Deployment, DeploymentProgress
from rollout.model.json_text import NOT_READ
from rollout.model.node_lifecycle import Lifecycle, LifecycleCondition
from rollout.model.timestamps import parse_timestamp

_OK = 200

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
_NODE_CRITICAL = "system-node-critical"

_NO_CONDITION = wire.Condition()
_CONDITION_STATUSES = frozenset(ConditionStatus)
_PHASES = frozenset(PodPhase)
_LIFECYCLE = frozenset(Lifecycle)
_SHARED_MODES = frozenset({"ReadWriteMany", "ReadOnlyMany"})
RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"

T = TypeVar("T")
W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class Shared:
    """Keeps one of equal values, because thousands of pods share them."""

    values: dict[Hashable, Any] = field(default_factory=dict)

    def labels(self, labels: wire.Labels) -> Mapping[str, str]:
        key = tuple(labels.items())
        return self._once(key, lambda: {intern(name): intern(value) for name, value in key})

    def placement(self, spec: wire.PodSpec) -> Placement:
        key = bytes(spec.affinity), bytes(spec.tolerations), bytes(spec.topology_spread_constraints)
        return self._once(key, lambda: read_placement(*key))

    def owner(self, references: Iterable[wire.OwnerReference]) -> OwnerRef | None:
        controller = _controller_among(references)
        return None if controller is None else self._once(controller, lambda: _owner(controller))

    def requests(self, spec: wire.PodSpec) -> Resources:
        return self._once(demand_key(spec), lambda: pod_requests(spec))

    def _once(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self.values:
            self.values[key] = make()
        made: T = self.values[key]
        return made


def decode(body: bytes, shape: type[T], origin: str) -> T:
    """`ApiUnavailableError` names the `origin`."""
    try:
        return decoder_of(shape).decode(body)
    except NOT_READ as error:
        raise invalid_answer(origin, error) from error


def invalid_answer(origin: str, why: object) -> ApiUnavailableError:
    """Return an error to retry after: a proxy may answer for a while."""
    return ApiUnavailableError(
        f"the answer to {origin} is not what an API server gives: {why}",
        status=_OK,
        hint="Check whether a proxy or a login page answers instead of the API server.",
    )


def one(body: bytes, shape: type[W], project: Callable[[W], T], origin: str) -> T:
    read = decode(body, shape, origin)
    try:
        return project(read)
    except ValueError as error:
        raise invalid_answer(origin, error) from error


def node(read: wire.WireNode) -> Node:
    meta = read.metadata
    info = read.status.node_info
    ready = _by_type(read.status.conditions).get("Ready", _NO_CONDITION)
    return Node(
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        labels=meta.labels,
        annotations=meta.annotations,
        unschedulable=read.spec.unschedulable,
        ready=ConditionStatus(ready.status)
        if ready.status in _CONDITION_STATUSES
        else ConditionStatus.UNKNOWN,
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
        lifecycle=_lifecycle(read.status.conditions),
    )


def _lifecycle(conditions: Iterable[wire.Condition]) -> tuple[LifecycleCondition, ...]:
    return tuple(
        LifecycleCondition(
            type=Lifecycle(condition.type),
            is_true=condition.status == ConditionStatus.TRUE,
            reason=condition.reason,
            since=condition.last_transition_time or "",
        )
        for condition in conditions
        if condition.type in _LIFECYCLE
    )


def _by_type(conditions: Iterable[wire.Condition]) -> Mapping[str, wire.Condition]:
    return {condition.type: condition for condition in conditions}


def pod(read: wire.WirePod, shared: Shared) -> Pod:
    meta = read.metadata
    spec = read.spec
    conditions = _by_type(read.status.conditions)
    scheduled = conditions.get("PodScheduled", _NO_CONDITION)
    readiness = conditions.get("Ready", _NO_CONDITION)
    ready = readiness.status == ConditionStatus.TRUE
    since = readiness.last_transition_time or scheduled.last_transition_time or ""
    owner = shared.owner(meta.owner_references)
    mirror = MIRROR_ANNOTATION in meta.annotations
    # These pods are bound to their node, and their affinity names it.
    stays = mirror or (owner is not None and owner.kind == "DaemonSet")
    claims = (volume.persistent_volume_claim.claim_name for volume in spec.volumes)
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
        requests=shared.requests(spec),
        deleted_at=meta.deletion_timestamp,
        grace_period=spec.termination_grace_period_seconds,
        deletion_grace=meta.deletion_grace_period_seconds,
        finalizers=meta.finalizers,
        node_selector=shared.labels(spec.node_selector),
        # Ephemeral volumes have no claim name, because each pod has a new one.
        claims=tuple(filter(None, claims)),
        placement=ANYWHERE if stays else shared.placement(spec),
        unready_since="" if ready else since,
        start_seconds=_start_seconds(scheduled, readiness) if ready else None,
        ready_since=since if ready and stays else "",
        node_critical=spec.priority_class_name == _NODE_CRITICAL,
        started_at=read.status.start_time,
        active_deadline=spec.active_deadline_seconds,
    )


def _start_seconds(scheduled: wire.Condition, ready: wire.Condition) -> int | None:
    """Return the seconds from scheduling to readiness; None if unknown."""
    began = parse_timestamp(scheduled.last_transition_time or "")
    ended = parse_timestamp(ready.last_transition_time or "")
    if began is None or ended is None or ended < began:
        return None
    return round((ended - began).total_seconds())


def controller_of(references: Iterable[wire.OwnerReference]) -> OwnerRef | None:
    controller = _controller_among(references)
    return None if controller is None else _owner(controller)


def _controller_among(
    references: Iterable[wire.OwnerReference],
) -> wire.OwnerReference | None:
    return next((reference for reference in references if reference.controller), None)


def _owner(reference: wire.OwnerReference) -> OwnerRef:
    return OwnerRef(reference.api_version, reference.kind, reference.name, reference.uid)


def budget(read: wire.WireBudget) -> Budget:
    """As in policy/v1, an empty selector covers every pod of the namespace."""
    spec = read.spec
    status = read.status
    verdict = _by_type(status.conditions).get("DisruptionAllowed", _NO_CONDITION)
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
        owner=controller_of(read.metadata.owner_references),
        uid=read.metadata.uid or "",
        version=read.metadata.resource_version or "",
    )


def namespace(read: wire.Object) -> tuple[str, Mapping[str, str]]:
    return read.metadata.name, read.metadata.labels


def daemon_set(read: wire.WireDaemonSet) -> DaemonSet:
    meta = read.metadata
    spec = read.spec.template.spec
    return DaemonSet(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        node_selector=spec.node_selector,
        placement=Shared().placement(spec),
    )


def attachment(read: wire.WireAttachment) -> VolumeAttachment:
    return VolumeAttachment(
        read.metadata.name, read.spec.node_name, read.spec.source.persistent_volume_name
    )


def volume(read: wire.WireVolume) -> PersistentVolume | None:
    """Return a volume that attaches only to certain nodes, or to several; else None."""
    claim = read.spec.claim_ref
    terms = node_terms(read.spec.node_affinity.required)
    is_shared = not _SHARED_MODES.isdisjoint(read.spec.access_modes)
    if claim is None or (terms is None and not is_shared):
        return None
    return PersistentVolume(
        read.metadata.name, f"{claim.namespace}/{claim.name}", terms or (), is_shared=is_shared
    )


def deployment(read: wire.WireDeployment) -> Deployment:
    """Shares of the replicas are rounded as by its controller."""
    meta = read.metadata
    spec = read.spec
    status = read.status
    strategy = spec.strategy
    # Old pods still count as available, so that no new pod does too early.
    old = status.replicas - status.updated_replicas
    progressing = _by_type(status.conditions).get("Progressing", _NO_CONDITION)
    return Deployment(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        is_rolling=strategy.type == "RollingUpdate",
        is_paused=spec.paused,
        surge=math.ceil(_share(strategy.rolling_update.max_surge, spec.replicas)),
        unavailable=math.floor(_share(strategy.rolling_update.max_unavailable, spec.replicas)),
        version=meta.resource_version,
        restarted_at=spec.template.metadata.annotations.get(RESTARTED_AT, ""),
        progress=DeploymentProgress(
            desired=spec.replicas,
            updated=status.updated_replicas,
            available=max(0, status.available_replicas - old),
            is_observed=status.observed_generation >= meta.generation,
            is_late=progressing.reason == "ProgressDeadlineExceeded",
        ),
    )


def _share(amount: int | str, replicas: int) -> Fraction:
    """Return a number of pods, perhaps a fraction. Raises `ValueError`."""
    if isinstance(amount, int):
        return Fraction(amount)
    return Fraction(int(amount.removesuffix("%")) * replicas, 100)
