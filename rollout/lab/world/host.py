"""What the world asks of a machine, what a kubelet registers, and how long things take in the cluster."""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec


class HostState(Protocol):
    """The state of one host as its kubelet reads it."""

    @property
    def name(self) -> str:
        """The Node's name."""

    @property
    def address(self) -> str:
        """The Node's InternalIP."""

    @property
    def running(self) -> bool:
        """Whether it is switched on and booted."""

    @property
    def boot_id(self) -> str:
        """A UUID, another one after each boot."""

    @property
    def machine_id(self) -> str:
        """32 hex digits."""

    @property
    def os_image(self) -> str:
        """PRETTY_NAME of the running system."""

    @property
    def os_version(self) -> str:
        """VERSION_ID of the running system."""

    @property
    def staged_version(self) -> str:
        """The version that its next boot is to bring; empty where none is staged."""


class NodeSetting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a kubelet registers its Node with, and how it misbehaves.

    `capacity` holds quantities by resource name; `flaps` lists (seconds after the kubelet became ready, Ready from then
    on), played after every boot but the first. `address` is what it reports as the host's InternalIP, which a kubelet
    may set to anything; empty: the true one. `agent`: FLUO's agent runs on the node, and takes back the annotation
    that asks for a reboot once the node is ready again.
    """

    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    taints: tuple[Mapping[str, Any], ...] = ()
    unschedulable: bool = False
    capacity: Mapping[str, str] = msgspec.field(
        default_factory=lambda: {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    )
    flaps: tuple[tuple[float, bool], ...] = ()
    address: str = ""
    agent: bool = False


class Timings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long nodes and pods take to be ready, in simulated seconds; a scenario may say otherwise."""

    kubelet_ready: float = 5
    startup_min: float = 2
    startup_max: float = 4
