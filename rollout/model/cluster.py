"""The cluster as one consistent-enough picture: what planning and draining need, and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from rollout.model.memory import NO_MEMORY, Memory
from rollout.model.placement import ANYWHERE, KEEPING_AWAY, PersistentVolume, Placement, Taint
from rollout.model.rivals import Coordinator
from rollout.model.selectors import LabelSelector

# What kubeadm, k3s and RKE2 set; then kubeadm before 1.20, RKE, Typhoon, and members of etcd that
# are alone.
CONTROL_PLANE_LABELS = (
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
    "node-role.kubernetes.io/controlplane",
    "node-role.kubernetes.io/controller",
    "node-role.kubernetes.io/etcd",
)
ZONE_LABEL = "topology.kubernetes.io/zone"
HOST_PORT = "host port "
CRITICAL = "critical/"
OSD_APP = "rook-ceph-osd"
# Taints that Kubernetes sets by itself.
SELF_SET = "node.kubernetes.io/"


class ReadyState(StrEnum):
    """Status of a Node's Ready condition; a missing condition counts as unknown."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """One of a Node's addresses; `type` is InternalIP, ExternalIP, Hostname or a DNS name."""

    type: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True)
class Resources:
    """An amount of CPU (thousandths of a core), memory (bytes) and pods.

    `others` are whatever else is counted, by name and sorted: devices, huge pages, local storage;
    and ports of the host (`HOST_PORT` and 80/TCP), of which every node has one each without saying
    so.
    """

    cpu_milli: int = 0
    memory: int = 0
    pods: int = 0
    others: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """A Kubernetes Node, reduced."""

    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    unschedulable: bool
    ready: ReadyState
    ready_message: str
    taints: tuple[Taint, ...]
    addresses: tuple[NodeAddress, ...]
    boot_id: str
    machine_id: str
    os_image: str
    kubelet_version: str
    allocatable: Resources
    deleting: bool = False
    operating_system: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether its kubelet reports Ready."""
        return self.ready is ReadyState.TRUE

    @property
    def is_control_plane(self) -> bool:
        """Whether one of the control-plane roles stands on it: as a label, or as a taint that keeps pods away."""
        roles = {
            taint.key for taint in self.taints if taint.effect in KEEPING_AWAY
        } | self.labels.keys()
        return not roles.isdisjoint(CONTROL_PLANE_LABELS)

    @property
    def zone(self) -> str:
        """Its topology zone, empty where it has none."""
        return self.labels.get(ZONE_LABEL, "")


@dataclass(frozen=True, slots=True)
class OwnerRef:
    """The controller of an object."""

    api_version: str
    kind: str
    name: str
    uid: str


class PodPhase(StrEnum):
    """A pod's phase."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


_ENDED = (PodPhase.SUCCEEDED, PodPhase.FAILED)


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, reduced.

    `deleted_at` is its deletionTimestamp (RFC 3339, as the API wrote it; empty: not deleted) and
    already includes the grace period, which then is `deletion_grace` seconds. `mirror` tells the
    API's copy of a static pod. `unready_since` is when it became unready, or could not be scheduled
    (RFC 3339; empty where it is ready, or the API does not say). `claims` are those that the pod
    that replaces it uses as well. `start_seconds` is how long it took from its node to being ready;
    None where it is not ready, or the API does not say. `ready_since` is when it became ready (RFC
    3339), read only of pods that belong to their node. One that is `node_critical` is what its node
    cannot do without, as Kubernetes has it.
    """

    namespace: str
    name: str
    uid: str
    node: str
    phase: PodPhase
    ready: bool
    labels: Mapping[str, str]
    owner: OwnerRef | None
    mirror: bool
    has_empty_dir: bool
    requests: Resources
    deleted_at: str = ""
    grace_period: int = 30
    deletion_grace: int | None = None
    finalizers: tuple[str, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    claims: tuple[str, ...] = ()
    placement: Placement = ANYWHERE
    unready_since: str = ""
    start_seconds: int | None = None
    ready_since: str = ""
    node_critical: bool = False

    @property
    def key(self) -> str:
        """Namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def finished(self) -> bool:
        """Whether all its containers have ended for good."""
        return self.phase in _ENDED

    @property
    def is_longhorns(self) -> bool:
        """Whether it is one of Longhorn's own on its node, as the managers of replicas are."""
        return self.owner is not None and self.owner.api_version.startswith("longhorn.io/")

    @property
    def is_osd(self) -> bool:
        """Whether it stores for Ceph, as Rook labels it."""
        return self.labels.get("app") == OSD_APP and not self.finished

    @property
    def terminating(self) -> bool:
        """Whether its deletion has begun."""
        return bool(self.deleted_at)


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget with its status. `selector` None (absent in the API) matches nothing.

    `min_available` and `max_unavailable` are as written (`2`, `50%`), empty where not set.
    `sync_error` is why its controller cannot count its pods, and therefore allows no eviction. One
    that is `critical` is an operator's rule, named by its selector, and known to rollout alone.
    """

    namespace: str
    name: str
    selector: LabelSelector | None
    min_available: str
    max_unavailable: str
    disruptions_allowed: int
    current_healthy: int
    desired_healthy: int
    expected_pods: int
    always_allow_unhealthy: bool
    sync_error: str = ""
    critical: bool = False
    uid: str = field(default="", compare=False)
    version: str = field(default="", compare=False)

    @property
    def key(self) -> str:
        """Namespace/name; of a rule critical/namespace/selector."""
        return f"{CRITICAL if self.critical else ''}{self.namespace}/{self.name}"

    def covers(self, pod: Pod) -> bool:
        """Whether the pod counts against this budget."""
        return (
            self.selector is not None
            and pod.namespace == self.namespace
            and self.selector.matches(pod.labels)
        )


def budget_subject(key: str) -> str:
    """Return what findings call the budget of this key."""
    return key if key.startswith(CRITICAL) else f"pdb/{key}"


@dataclass(frozen=True, slots=True)
class DaemonSet:
    """A DaemonSet that exists, with what its pods demand of a node."""

    namespace: str
    name: str
    uid: str
    node_selector: Mapping[str, str] = field(default_factory=dict)
    placement: Placement = ANYWHERE

    def wants(self, node: Node) -> bool:
        """Whether it is to have a pod on the node; taints that Kubernetes sets by itself are tolerated by its pods."""
        taints = (taint for taint in node.taints if not taint.key.startswith(SELF_SET))
        is_chosen = self.node_selector.items() <= node.labels.items()
        return (
            is_chosen
            and self.placement.admits(node.name, node.labels)
            and self.placement.tolerates(taints)
        )


@dataclass(frozen=True, slots=True)
class VolumeAttachment:
    """A volume attached, or being attached, to a node."""

    name: str
    node: str
    volume: str


@dataclass(frozen=True, slots=True)
class StoredData:
    """Data of which several nodes hold copies: volumes of Longhorn, or all that a Ceph cluster stores.

    `object` names it as `kubectl get` takes it: type.group/namespace/name. `well` are those of the
    `nodes` whose copy can be used now, and `needed` is how many of them have to stay. If none may
    go, `problem` says what is lacking, and `fix` what to do.
    """

    object: str
    nodes: frozenset[str]
    well: frozenset[str]
    needed: int
    problem: str
    fix: str

    @property
    def spare(self) -> int:
        """How many of the nodes may be away at a time; below one where none may."""
        return len(self.well) - self.needed


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """Which cluster this is: the UID of its kube-system namespace is what no two share."""

    uid: str
    server: str
    version: str


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Nodes, pods and what constrains them, read once; `warnings` are sentences about what could not be read.

    `volumes` are those that attach to certain nodes only; `namespaces` are labels by name, read
    where pods' affinities choose namespaces by them. `read_at` is when it was read by the API
    server's own clock, which has stamped what is in it; None where the server has not told its
    time. `memory` is what is remembered there of earlier rollouts.
    """

    identity: ClusterIdentity
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    budgets: tuple[Budget, ...]
    daemon_sets: tuple[DaemonSet, ...]
    attachments: tuple[VolumeAttachment, ...]
    warnings: tuple[str, ...] = ()
    volumes: tuple[PersistentVolume, ...] = ()
    coordinators: tuple[Coordinator, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    read_at: datetime | None = None
    memory: Memory = NO_MEMORY
    stored: tuple[StoredData, ...] = ()

    def node(self, name: str) -> Node | None:
        """Return the Node of that name."""
        return next((node for node in self.nodes if node.name == name), None)
