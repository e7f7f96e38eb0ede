"""The API's JSON, as far as it is used.

Fields that are not named here are skipped by the decoder without becoming objects, which is what
keeps a read of 30,000 pods small. Every field may be absent: old servers and hand-made objects
leave out more than the published schema allows. A field that is null counts as absent, as it does
for Go: what no Go type has written may have any, and costs a second reading.

Each decoder is made by one thread alone. What msgspec needs to know of a struct it finds out when
it first meets it, and keeps with the struct, half-finished until it is done: another thread that
decodes the same struct meanwhile crashes the whole process. Several lists are read side by side as
the first thing a command does.
"""

import threading
from collections.abc import Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Generic, TypeVar

import msgspec

from rollout.model.cluster import NodeAddress
from rollout.model.placement import Taint
from rollout.model.selectors import Requirement
from rollout.model.timestamps import parse_timestamp

Labels = dict[str, str]
Quantity = str | int | float
T = TypeVar("T")

_ABSENT = msgspec.Raw()
_TURN = threading.Lock()
_NULL = "got `null`"


@dataclass(frozen=True, slots=True)
class Decoder(Generic[T]):
    """The library's, to which a field that is null is absent."""

    strict: msgspec.json.Decoder[T]

    def decode(self, body: bytes | str) -> T:
        """`NOT_READ` of `json_text` where it is none, or of another shape."""
        try:
            return self.strict.decode(body)
        except msgspec.ValidationError as error:
            if _NULL in str(error):
                with suppress(RecursionError):
                    return self.strict.decode(
                        msgspec.json.encode(_without_nulls(msgspec.json.decode(body)))
                    )
            raise


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(part) for name, part in value.items() if part is not None}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value


def decoder_of(shape: type[T]) -> Decoder[T]:
    """Return the decoder of a shape; safe to use from many threads at once."""
    with _TURN:
        decoder: Decoder[T] = _made(shape)  # type: ignore[arg-type]
    return decoder


@cache
def _made(shape: Hashable) -> Any:
    return Decoder(msgspec.json.Decoder(shape))


class Wire(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """A part of an object, with the API's names; few cost the garbage collector anything."""


class ListMeta(Wire, frozen=True):
    """A list's metadata; `continue_token` is empty on the last page."""

    resource_version: str = ""
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


class Object(Wire, frozen=True):
    """Whatever has a name."""

    metadata: Meta


class Write(Wire, frozen=True):
    """When a writer last wrote which fields of an object, by the API server's clock."""

    time: str | None = None
    fields: msgspec.Raw = msgspec.field(default=_ABSENT, name="fieldsV1")


def written_at(writes: Iterable[Write], field: str) -> datetime | None:
    """When any of them last wrote this field; None where none has."""
    times = (
        parse_timestamp(write.time or "")
        for write in writes
        if f'"f:{field}"'.encode() in bytes(write.fields)
    )
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
    """A container's, or a whole pod's, resources."""

    requests: dict[str, Quantity] = {}


class Port(Wire, frozen=True):
    """A container's port; with the host's network each is a port of the host, and the API server says so."""

    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(Wire, frozen=True):
    """A container; with `restart_policy` Always an init container is a sidecar. Few `ports` are of interest."""

    resources: Requirements = Requirements()
    restart_policy: str = ""
    ports: msgspec.Raw = _ABSENT


class ClaimSource(Wire, frozen=True):
    claim_name: str = ""


class Present(Wire, frozen=True):
    """Something of which only the presence counts."""


class Volume(Wire, frozen=True):
    empty_dir: Present | None = None
    persistent_volume_claim: ClaimSource = ClaimSource()


class PodSpec(Wire, frozen=True):
    """A pod's spec. What constrains its placement stays raw: thousands of pods say the same, which is read once."""

    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: Requirements = Requirements()
    overhead: dict[str, Quantity] = {}
    volumes: tuple[Volume, ...] = ()
    node_selector: Labels = {}
    termination_grace_period_seconds: int = 30
    priority_class_name: str = ""
    affinity: msgspec.Raw = _ABSENT
    tolerations: msgspec.Raw = _ABSENT
    topology_spread_constraints: msgspec.Raw = _ABSENT


class PodStatus(Wire, frozen=True):
    phase: str = ""
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


class Page(Wire, Generic[T], frozen=True):
    metadata: ListMeta
    items: tuple[T, ...] | None = None
