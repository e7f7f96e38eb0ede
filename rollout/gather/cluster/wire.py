"""The API's JSON, as far as it is used.

Fields that are not named here are skipped by the decoder without becoming objects, which is what keeps a read of
30,000 pods small. Every field may be absent or null: old servers and hand-made objects leave out more than
the published schema allows.

Each decoder is made by one thread alone. What msgspec needs to know of a struct it finds out when it first meets it,
and keeps with the struct, half-finished until it is done: another thread that decodes the same struct meanwhile crashes
the whole process. Several lists are read side by side as the first thing a command does.
"""

import threading
from collections.abc import Hashable, Iterable
from datetime import datetime
from functools import cache
from typing import Any, Generic, TypeVar

import msgspec

from rollout.model.cluster import NodeAddress
from rollout.model.memory import moment

Labels = dict[str, str]
Quantity = str | int | float
T = TypeVar("T")

_ABSENT = msgspec.Raw()
_TURN = threading.Lock()


def decoder_of(shape: type[T]) -> msgspec.json.Decoder[T]:
    """Return the decoder of a shape; safe to use from many threads at once."""
    with _TURN:
        decoder: msgspec.json.Decoder[T] = _made(shape)  # type: ignore[arg-type]
    return decoder


@cache
def _made(shape: Hashable) -> Any:
    return msgspec.json.Decoder(shape)


class Wire(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """A part of an object, with the API's names; few cost the garbage collector anything."""


class ListMeta(Wire, frozen=True):
    """A list's metadata; `continue_token` is empty on the last page."""

    resource_version: str | None = None
    continue_token: str | None = msgspec.field(name="continue", default=None)


class OwnerReference(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Meta(Wire, frozen=True):
    name: str = ""
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    labels: Labels | None = None
    annotations: Labels | None = None
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None


class Object(Wire, frozen=True):
    """Whatever has a name."""

    metadata: Meta


class Write(Wire, frozen=True):
    """When a writer last wrote which fields of an object, by the API server's clock."""

    time: str | None = None
    fields: msgspec.Raw = msgspec.field(default=_ABSENT, name="fieldsV1")


def written_at(writes: Iterable[Write], field: str) -> datetime | None:
    """When any of them last wrote this field; None where none has."""
    times = (moment(write.time or "") for write in writes if f'"f:{field}"'.encode() in bytes(write.fields))
    return max((time for time in times if time is not None), default=None)


class Condition(Wire, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class WireTaint(Wire, frozen=True):
    key: str = ""
    value: str | None = None
    effect: str | None = None
    time_added: str | None = None


class NodeSpec(Wire, frozen=True):
    unschedulable: bool | None = None
    taints: tuple[WireTaint, ...] | None = None


class NodeInfo(Wire, frozen=True):
    boot_id: str | None = msgspec.field(name="bootID", default=None)
    machine_id: str | None = msgspec.field(name="machineID", default=None)
    os_image: str | None = None
    kubelet_version: str | None = None


class NodeStatus(Wire, frozen=True):
    conditions: tuple[Condition, ...] | None = None
    addresses: tuple[NodeAddress, ...] | None = None
    allocatable: dict[str, Quantity] | None = None
    node_info: NodeInfo | None = None


class WireNode(Object, frozen=True):
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class Requirements(Wire, frozen=True):
    """A container's, or a whole pod's, resources."""

    requests: dict[str, Quantity] | None = None


class Port(Wire, frozen=True):
    """A container's port; with the host's network each is a port of the host, and the API server says so."""

    host_port: int | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")
    protocol: str | None = None


class Container(Wire, frozen=True):
    """A container; with `restart_policy` Always an init container is a sidecar. Few `ports` are of interest."""

    resources: Requirements | None = None
    restart_policy: str | None = None
    ports: msgspec.Raw = _ABSENT


class ClaimSource(Wire, frozen=True):
    claim_name: str = ""


class Present(Wire, frozen=True):
    """Something of which only the presence counts."""


class Volume(Wire, frozen=True):
    empty_dir: Present | None = None
    persistent_volume_claim: ClaimSource | None = None


class PodSpec(Wire, frozen=True):
    """A pod's spec. What constrains its placement stays raw: thousands of pods say the same, which is read once."""

    node_name: str | None = None
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    resources: Requirements | None = None
    overhead: dict[str, Quantity] | None = None
    volumes: tuple[Volume, ...] | None = None
    node_selector: Labels | None = None
    termination_grace_period_seconds: int | None = None
    priority_class_name: str | None = None
    affinity: msgspec.Raw = _ABSENT
    tolerations: msgspec.Raw = _ABSENT
    topology_spread_constraints: msgspec.Raw = _ABSENT


class PodStatus(Wire, frozen=True):
    phase: str | None = None
    conditions: tuple[Condition, ...] | None = None


class WirePod(Object, frozen=True):
    spec: PodSpec | None = None
    status: PodStatus | None = None


class PodTemplate(Wire, frozen=True):
    spec: PodSpec | None = None


class DaemonSetSpec(Wire, frozen=True):
    template: PodTemplate | None = None


class WireDaemonSet(Object, frozen=True):
    spec: DaemonSetSpec | None = None


class Expression(Wire, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] | None = None


class Selector(Wire, frozen=True):
    match_labels: Labels | None = None
    match_expressions: tuple[Expression, ...] | None = None


class BudgetSpec(Wire, frozen=True):
    selector: Selector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    unhealthy_pod_eviction_policy: str | None = None


class BudgetStatus(Wire, frozen=True):
    disruptions_allowed: int | None = None
    current_healthy: int | None = None
    desired_healthy: int | None = None
    expected_pods: int | None = None
    conditions: tuple[Condition, ...] | None = None


class WireBudget(Object, frozen=True):
    spec: BudgetSpec | None = None
    status: BudgetStatus | None = None


class ClaimRef(Wire, frozen=True):
    namespace: str = ""
    name: str = ""


class VolumeAffinity(Wire, frozen=True):
    required: msgspec.Raw = _ABSENT


class VolumeSpec(Wire, frozen=True):
    claim_ref: ClaimRef | None = None
    node_affinity: VolumeAffinity | None = None


class WireVolume(Object, frozen=True):
    spec: VolumeSpec | None = None


class Named(Object, frozen=True):
    """An object of which only the name counts."""


class AttachmentSource(Wire, frozen=True):
    persistent_volume_name: str | None = None


class AttachmentSpec(Wire, frozen=True):
    node_name: str = ""
    source: AttachmentSource | None = None


class WireAttachment(Object, frozen=True):
    spec: AttachmentSpec | None = None


class Page(Wire, Generic[T], frozen=True):
    metadata: ListMeta
    items: tuple[T, ...] | None = None
