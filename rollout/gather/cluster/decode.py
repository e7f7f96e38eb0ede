import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from fractions import Fraction
from functools import cache
from sys import intern
from typing import TypeVar

from rollout.errors import ApiUnavailableError
from rollout.gather.cluster import wire
from rollout.gather.cluster.demands import (
    demand_key,
    label_selector,
    node_terms,
    parse_resources,
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
from rollout.model.json_text import DECODE_ERRORS
from rollout.model.node_lifecycle import Lifecycle, LifecycleCondition
from rollout.model.timestamps import parse_timestamp

_OK = 200

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
_NODE_CRITICAL = "system-node-critical"

_NO_CONDITION = wire.Condition()
_CONDITION_STATUSES = frozenset(ConditionStatus)
_PHASES = frozenset(PodPhase)
_LIFECYCLE_TYPES = frozenset(Lifecycle)
_SHARED_MODES = frozenset({"ReadWriteMany", "ReadOnlyMany"})
RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"

T = TypeVar("T")
W = TypeVar("W")


class SharedValues:
    """Keeps equal values once, for thousands of pods."""

    def __init__(self) -> None:
        self._labels_of = cache(_interned)
        self._placement_of = cache(read_placement)
        self._owner_of = cache(_owner_ref)
        self._requests_of_demand: dict[Hashable, Resources] = {}

    def labels(self, labels: wire.Labels) -> Mapping[str, str]:
        return self._labels_of(tuple(labels.items()))

    def placement(self, spec: wire.PodSpec) -> Placement:
        return self._placement_of(
            bytes(spec.affinity), bytes(spec.tolerations), bytes(spec.topology_spread_constraints)
        )

    def owner(self, references: Iterable[wire.OwnerReference]) -> OwnerRef | None:
        controller = _find_controller(references)
        return None if controller is None else self._owner_of(controller)

    def requests(self, spec: wire.PodSpec) -> Resources:
        key = demand_key(spec)
        requests = self._requests_of_demand.get(key)
        if requests is None:
            requests = pod_requests(spec)
            self._requests_of_demand[key] = requests
        return requests


def _interned(labels: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    return {intern(name): intern(value) for name, value in labels}


def decode(body: bytes, shape: type[T], origin: str) -> T:
    """Raise `ApiUnavailableError` with the request's path as `origin`."""
    try:
        return decoder_of(shape).decode(body)
    except DECODE_ERRORS as error:
        raise invalid_answer(origin, error) from error


def invalid_answer(origin: str, why: object) -> ApiUnavailableError:
    """The error is retried: a proxy may answer for a while."""
    return ApiUnavailableError(
        f"the response to {origin} is not from a Kubernetes API server: {why}",
        status=_OK,
        hint="Check whether a proxy or a login page answers instead of the API server.",
    )


def decode_object(body: bytes, shape: type[W], project: Callable[[W], T], origin: str) -> T:
    wire_object = decode(body, shape, origin)
    try:
        return project(wire_object)
    except ValueError as error:
        raise invalid_answer(origin, error) from error


def node(wire_node: wire.WireNode) -> Node:
    meta = wire_node.metadata
    info = wire_node.status.node_info
    ready = _by_type(wire_node.status.conditions).get("Ready", _NO_CONDITION)
    return Node(
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        labels=meta.labels,
        annotations=meta.annotations,
        unschedulable=wire_node.spec.unschedulable,
        ready=ConditionStatus(ready.status)
        if ready.status in _CONDITION_STATUSES
        else ConditionStatus.UNKNOWN,
        ready_message=ready.message,
        taints=wire_node.spec.taints,
        addresses=wire_node.status.addresses,
        boot_id=info.boot_id.lower(),
        machine_id=info.machine_id.replace("-", "").lower(),
        os_image=info.os_image,
        kubelet_version=info.kubelet_version,
        allocatable=parse_resources(wire_node.status.allocatable),
        deleting=bool(meta.deletion_timestamp),
        operating_system=info.operating_system,
        lifecycle=_lifecycle_conditions(wire_node.status.conditions),
    )


def _lifecycle_conditions(
    conditions: Iterable[wire.Condition],
) -> tuple[LifecycleCondition, ...]:
    return tuple(
        LifecycleCondition(
            type=Lifecycle(condition.type),
            is_true=condition.status == ConditionStatus.TRUE,
            reason=condition.reason,
            since=condition.last_transition_time or "",
        )
        for condition in conditions
        if condition.type in _LIFECYCLE_TYPES
    )


def _by_type(conditions: Iterable[wire.Condition]) -> Mapping[str, wire.Condition]:
    return {condition.type: condition for condition in conditions}


def pod(wire_pod: wire.WirePod, shared: SharedValues, *, with_start: bool = True) -> Pod:
    """`with_start`: `started_at` is only for waiting for Jobs' pods."""
    meta = wire_pod.metadata
    spec = wire_pod.spec
    conditions = _by_type(wire_pod.status.conditions)
    scheduled = conditions.get("PodScheduled", _NO_CONDITION)
    readiness = conditions.get("Ready", _NO_CONDITION)
    ready = readiness.status == ConditionStatus.TRUE
    since = readiness.last_transition_time or scheduled.last_transition_time or ""
    owner = shared.owner(meta.owner_references)
    mirror = MIRROR_ANNOTATION in meta.annotations
    # Their affinity names their own node.
    is_bound = mirror or (owner is not None and owner.kind == "DaemonSet")
    claims = (volume.persistent_volume_claim.claim_name for volume in spec.volumes)
    return Pod(
        namespace=intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        node=intern(spec.node_name),
        phase=PodPhase(wire_pod.status.phase)
        if wire_pod.status.phase in _PHASES
        else PodPhase.UNKNOWN,
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
        # Ephemeral volumes have no claim name.
        claims=tuple(filter(None, claims)),
        placement=ANYWHERE if is_bound else shared.placement(spec),
        unready_since="" if ready else since,
        start_seconds=_start_seconds(scheduled, readiness) if ready else None,
        ready_since=since if ready and is_bound else "",
        node_critical=spec.priority_class_name == _NODE_CRITICAL,
        started_at=wire_pod.status.start_time if with_start else "",
        active_deadline_seconds=spec.active_deadline_seconds,
    )


def _start_seconds(scheduled: wire.Condition, ready: wire.Condition) -> int | None:
    began = parse_timestamp(scheduled.last_transition_time or "")
    ended = parse_timestamp(ready.last_transition_time or "")
    if began is None or ended is None or ended < began:
        return None
    return round((ended - began).total_seconds())


def controller_of(references: Iterable[wire.OwnerReference]) -> OwnerRef | None:
    controller = _find_controller(references)
    return None if controller is None else _owner_ref(controller)


def _find_controller(
    references: Iterable[wire.OwnerReference],
) -> wire.OwnerReference | None:
    for reference in references:
        if reference.controller:
            return reference
    return None


def _owner_ref(reference: wire.OwnerReference) -> OwnerRef:
    return OwnerRef(reference.api_version, reference.kind, reference.name, reference.uid)


def budget(wire_budget: wire.WireBudget) -> Budget:
    """As in policy/v1, an empty selector covers all pods, none no pod."""
    spec = wire_budget.spec
    status = wire_budget.status
    condition = _by_type(status.conditions).get("DisruptionAllowed", _NO_CONDITION)
    has_sync_error = condition.reason == "SyncFailed"
    why_not_synced = condition.message or "its controller could not count its pods"
    return Budget(
        namespace=wire_budget.metadata.namespace,
        name=wire_budget.metadata.name,
        selector=label_selector(spec.selector) if spec.selector is not None else None,
        min_available=str(spec.min_available),
        max_unavailable=str(spec.max_unavailable),
        disruptions_allowed=status.disruptions_allowed,
        current_healthy=status.current_healthy,
        desired_healthy=status.desired_healthy,
        expected_pods=status.expected_pods,
        always_allow_unhealthy=spec.unhealthy_pod_eviction_policy == "AlwaysAllow",
        sync_error=why_not_synced if has_sync_error else "",
        owner=controller_of(wire_budget.metadata.owner_references),
        uid=wire_budget.metadata.uid or "",
        resource_version=wire_budget.metadata.resource_version or "",
    )


def namespace(wire_namespace: wire.Object) -> tuple[str, Mapping[str, str]]:
    return wire_namespace.metadata.name, wire_namespace.metadata.labels


def daemon_set(wire_daemon_set: wire.WireDaemonSet) -> DaemonSet:
    meta = wire_daemon_set.metadata
    spec = wire_daemon_set.spec.template.spec
    return DaemonSet(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        node_selector=spec.node_selector,
        placement=SharedValues().placement(spec),
    )


def attachment(wire_attachment: wire.WireAttachment) -> VolumeAttachment:
    spec = wire_attachment.spec
    return VolumeAttachment(
        name=wire_attachment.metadata.name,
        node=spec.node_name,
        volume=spec.source.persistent_volume_name,
    )


def volume(wire_volume: wire.WireVolume) -> PersistentVolume | None:
    """Return None unless it is claimed, and has a rule about nodes."""
    claim = wire_volume.spec.claim_ref
    terms = node_terms(wire_volume.spec.node_affinity.required)
    is_shared = not _SHARED_MODES.isdisjoint(wire_volume.spec.access_modes)
    has_rule = terms is not None or is_shared
    if claim is None or not has_rule:
        return None
    return PersistentVolume(
        name=wire_volume.metadata.name,
        claim=f"{claim.namespace}/{claim.name}",
        node_terms=terms or (),
        is_shared=is_shared,
    )


def deployment(wire_deployment: wire.WireDeployment) -> Deployment:
    """The controller rounds a percentage of surge up, of unavailable down."""
    meta = wire_deployment.metadata
    spec = wire_deployment.spec
    status = wire_deployment.status
    strategy = spec.strategy
    # Assume that the old pods are available, so that no new one counts too early.
    old_pods = status.replicas - status.updated_replicas
    progressing = _by_type(status.conditions).get("Progressing", _NO_CONDITION)
    return Deployment(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        is_rolling=strategy.type == "RollingUpdate",
        is_paused=spec.paused,
        surge=math.ceil(_number_of_pods(strategy.rolling_update.max_surge, spec.replicas)),
        unavailable=math.floor(
            _number_of_pods(strategy.rolling_update.max_unavailable, spec.replicas)
        ),
        resource_version=meta.resource_version,
        restarted_at=spec.template.metadata.annotations.get(RESTARTED_AT, ""),
        progress=DeploymentProgress(
            desired=spec.replicas,
            updated=status.updated_replicas,
            available=max(0, status.available_replicas - old_pods),
            is_observed=status.observed_generation >= meta.generation,
            is_late=progressing.reason == "ProgressDeadlineExceeded",
        ),
    )


def _number_of_pods(amount: int | str, replicas: int) -> Fraction:
    if isinstance(amount, int):
        return Fraction(amount)
    return Fraction(int(amount.removesuffix("%")) * replicas, 100)
