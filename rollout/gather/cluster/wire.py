"""The fields of the API's JSON that rollout uses; all may be absent.

Decoders are made one at a time: msgspec crashes if another thread uses a struct that it is
preparing.
"""

import threading
from collections.abc import Hashable, Iterable
from contextlib import suppress
from datetime import datetime
from functools import cache
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from rollout.model.cluster import NodeAddress
from rollout.model.placement import Taint
from rollout.model.selectors import Requirement
from rollout.model.timestamps import parse_timestamp

Labels = dict[str, str]
Quantity = str | int | float
T = TypeVar("T")

_ABSENT = msgspec.Raw()
_LOCK = threading.Lock()
_NULL = "got `null`"


class Decoder(Struct, Generic[T], frozen=True):
    """Removes a null, which is rare, and decodes again."""

    strict: msgspec.json.Decoder[T]

    def decode(self, body: bytes | str) -> T:
        try:
            return self.strict.decode(body)
        except msgspec.ValidationError as error:
            # Kubernetes treats a null like a missing field.
            if _NULL in str(error):
                with suppress(RecursionError):
                    document = _without_nulls(msgspec.json.decode(body))
                    return self.strict.decode(msgspec.json.encode(document))
            raise


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(part) for name, part in value.items() if part is not None}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value


def decoder_of(shape: type[T]) -> Decoder[T]:
    with _LOCK:
        decoder: Decoder[T] = _make_decoder(shape)  # type: ignore[arg-type]
    return decoder


@cache
def _make_decoder(shape: Hashable) -> Any:
    return Decoder(msgspec.json.Decoder(shape))


class Wire(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """A part of an object, which has no cycles for the garbage collector."""


class ListMeta(Wire, frozen=True):
    resource_version: str = ""
    # Empty on the last page.
    continue_token: str = msgspec.field(name="continue", default="")


class OwnerReference(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Meta(Wire, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: Labels = {}
    annotations: Labels = {}
    deletion_timestamp: str = ""
    deletion_grace_period_seconds: int | None = None
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()


class SpecifiedMeta(Meta, frozen=True):
    generation: int = 0


class Object(Wire, frozen=True):
    metadata: Meta


class Write(Wire, frozen=True):
    time: str | None = None
    fields: msgspec.Raw = msgspec.field(default=_ABSENT, name="fieldsV1")


def written_at(writes: Iterable[Write], field: str) -> datetime | None:
    key = f'"f:{field}"'.encode()
    times = (parse_timestamp(write.time or "") for write in writes if key in bytes(write.fields))
    return max((time for time in times if time is not None), default=None)


class Condition(Wire, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class NodeSpec(Wire, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = msgspec.field(name="providerID", default="")


class NodeInfo(Wire, frozen=True):
    boot_id: str = msgspec.field(name="bootID", default="")
    machine_id: str = msgspec.field(name="machineID", default="")
    os_image: str = ""
    kubelet_version: str = ""
    operating_system: str = ""


class WireNodeStatus(Wire, frozen=True):
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    allocatable: dict[str, Quantity] = {}
    node_info: NodeInfo = NodeInfo()


class WireNode(Object, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: WireNodeStatus = WireNodeStatus()


class Requirements(Wire, frozen=True):
    requests: dict[str, Quantity] = {}


class Port(Wire, frozen=True):
    # Always set with the host's network.
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(Wire, frozen=True):
    resources: Requirements = Requirements()
    # Always: an init container is a sidecar.
    restart_policy: str = ""
    ports: msgspec.Raw = _ABSENT


class ClaimSource(Wire, frozen=True):
    claim_name: str = ""


class Present(Wire, frozen=True):
    """Something that matters only by being there."""


class Volume(Wire, frozen=True):
    empty_dir: Present | None = None
    persistent_volume_claim: ClaimSource = ClaimSource()


class PodSpec(Wire, frozen=True):
    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: Requirements = Requirements()
    overhead: dict[str, Quantity] = {}
    volumes: tuple[Volume, ...] = ()
    node_selector: Labels = {}
    termination_grace_period_seconds: int = 30
    priority_class_name: str = ""
    active_deadline_seconds: int | None = None
    # Thousands of pods have equal constraints, so they stay raw.
    affinity: msgspec.Raw = _ABSENT
    tolerations: msgspec.Raw = _ABSENT
    topology_spread_constraints: msgspec.Raw = _ABSENT


class PodStatus(Wire, frozen=True):
    phase: str = ""
    start_time: str = ""
    conditions: tuple[Condition, ...] = ()


class WirePod(Object, frozen=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PodTemplate(Wire, frozen=True):
    spec: PodSpec = PodSpec()


class DaemonSetSpec(Wire, frozen=True):
    template: PodTemplate = PodTemplate()


class WireDaemonSet(Object, frozen=True):
    spec: DaemonSetSpec = DaemonSetSpec()


class Selector(Wire, frozen=True):
    match_labels: Labels = {}
    match_expressions: tuple[Requirement, ...] = ()


class BudgetSpec(Wire, frozen=True):
    selector: Selector | None = None
    min_available: int | str = ""
    max_unavailable: int | str = ""
    unhealthy_pod_eviction_policy: str = ""


class BudgetStatus(Wire, frozen=True):
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    conditions: tuple[Condition, ...] = ()


class WireBudget(Object, frozen=True):
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


class ClaimRef(Wire, frozen=True):
    namespace: str = ""
    name: str = ""


class Term(Wire, frozen=True):
    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(Wire, frozen=True):
    node_selector_terms: tuple[Term, ...] = ()


class VolumeAffinity(Wire, frozen=True):
    required: NodeSelector | None = None


class VolumeSpec(Wire, frozen=True):
    access_modes: tuple[str, ...] = ()
    claim_ref: ClaimRef | None = None
    node_affinity: VolumeAffinity = VolumeAffinity()


class WireVolume(Object, frozen=True):
    spec: VolumeSpec = VolumeSpec()


class AttachmentSource(Wire, frozen=True):
    persistent_volume_name: str = ""


class AttachmentSpec(Wire, frozen=True):
    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class WireAttachment(Object, frozen=True):
    spec: AttachmentSpec = AttachmentSpec()


class TemplateMeta(Wire, frozen=True):
    annotations: Labels = {}


class AnnotatedTemplate(Wire, frozen=True):
    metadata: TemplateMeta = TemplateMeta()


class RollingUpdate(Wire, frozen=True):
    max_surge: int | str = "25%"
    max_unavailable: int | str = "25%"


class DeploymentStrategy(Wire, frozen=True):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdate = RollingUpdate()


class DeploymentSpec(Wire, frozen=True):
    replicas: int = 1
    paused: bool = False
    strategy: DeploymentStrategy = DeploymentStrategy()
    template: AnnotatedTemplate = AnnotatedTemplate()


class DeploymentStatus(Wire, frozen=True):
    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0
    conditions: tuple[Condition, ...] = ()


class WireDeployment(Object, frozen=True):
    metadata: SpecifiedMeta
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class ReplicaSetSpec(Wire, frozen=True):
    template: AnnotatedTemplate = AnnotatedTemplate()


class WireReplicaSet(Object, frozen=True):
    spec: ReplicaSetSpec = ReplicaSetSpec()


class ListPage(Wire, Generic[T], frozen=True):
    metadata: ListMeta
    items: tuple[T, ...] | None = None
