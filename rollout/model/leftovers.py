"""What reboot coordinators, this one included, have left on Nodes and beside them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rollout.model.cluster import Node
from rollout.model.rivals import Workload


class System(StrEnum):
    """Whose it is; of a rival its name for flags."""

    FLUO = "fluo"
    CLUO = "cluo"
    KURED = "kured"
    KRM = "krm"
    CRO = "cro"
    FLEETLOCK = "fleetlock"
    ROLLOUT = "rollout"


class Cordon(StrEnum):
    """What becomes of a node's cordon: there is none, it was made by the system, or nothing proves that."""

    NONE = "none"
    THEIRS = "theirs"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class WrittenNode:
    """A Node, and the field managers that wrote it, as the API server has noted them.

    `cordoned_by` is empty where that is not known, or there is no cordon; `written_by` is by annotation and label.
    """

    node: Node
    cordoned_by: str = ""
    written_by: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A Lease of a FleetLock server; `holder` is Zincati's id of a host, empty where it is free."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    holder: str


@dataclass(frozen=True, slots=True)
class Standing:
    """All that leftovers are seen in; `unseen` says what this user may not read."""

    nodes: tuple[WrittenNode, ...]
    workloads: tuple[Workload, ...] = ()
    leases: tuple[HeldLease, ...] = ()
    unseen: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeLeftover:
    """What one system has left on a node.

    `because` says what proves the cordon to be theirs, or why it stays. `obstacle` is why nothing of it is touched.
    `taint` is our own soft taint.
    """

    node: str
    system: System
    annotations: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    cordon: Cordon = Cordon.NONE
    because: str = ""
    taint: bool = False
    obstacle: str = ""


@dataclass(frozen=True, slots=True)
class LeftLock:
    """A lock that a system has left: kured's annotation of a DaemonSet, or a FleetLock server's Lease.

    `nodes` are those it is held for, as far as they are known; `holder` is what stands in it.
    """

    system: System
    kind: str
    namespace: str
    name: str
    annotation: str
    holder: str
    nodes: tuple[str, ...]
    resource_version: str
    uid: str = ""
    obstacle: str = ""

    @property
    def place(self) -> str:
        """`lease/default/fleetlock-workers`."""
        return f"{self.kind}/{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Adoption:
    """What is to be cleaned up, in the order of the nodes; `running` are workloads of systems that have left it.

    `machines` are the selected nodes' machine ids, by which locks in etcd name them.
    """

    leftovers: tuple[NodeLeftover, ...] = ()
    locks: tuple[LeftLock, ...] = ()
    running: tuple[Workload, ...] = ()
    unseen: tuple[str, ...] = ()
    machines: Mapping[str, str] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes on which something may be cleaned, each once."""
        return tuple(dict.fromkeys(leftover.node for leftover in self.leftovers if not leftover.obstacle))

    @property
    def has_work(self) -> bool:
        """Whether anything may be cleaned."""
        return bool(self.nodes) or any(not lock.obstacle for lock in self.locks)
