from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from functools import cached_property

from msgspec import Struct

from rollout.model.deployment import Deployment
from rollout.model.memory import NO_MEMORY, Memory
from rollout.model.node_lifecycle import AT_WORK, LifecycleCondition
from rollout.model.placement import (
    ANYWHERE,
    CORDON,
    KEEPING_AWAY,
    PersistentVolume,
    Placement,
    Taint,
)
from rollout.model.rivals import Coordinator
from rollout.model.selectors import LabelSelector

# kubeadm, k3s and RKE2; kubeadm before 1.20; RKE; Typhoon; etcd-only nodes.
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
_KUBERNETES_GROUPS = frozenset({"", "apps", "autoscaling", "batch", "extensions", "policy"})
_KUBERNETES_DOMAIN = ".k8s.io"
# Kubernetes' own taints.
SELF_SET = "node.kubernetes.io/"


class ConditionStatus(StrEnum):
    """A condition's status."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class NodeAddress(Struct, frozen=True):
    """An address of a Node."""

    type: str = ""
    address: str = ""


class Resources(Struct, frozen=True):
    """What a pod requests or a node offers."""

    cpu_milli: int = 0
    # In bytes.
    memory: int = 0
    pods: int = 0
    # By name, sorted. A host port, `HOST_PORT` + `80/TCP`, is one per node.
    others: tuple[tuple[str, int], ...] = ()


class Node(Struct, frozen=True):
    """A Kubernetes Node."""

    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    unschedulable: bool
    # Unknown without a Ready condition.
    ready: ConditionStatus
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
    lifecycle: tuple[LifecycleCondition, ...] = ()

    @property
    def has_cordon_taint(self) -> bool:
        """Whether the cluster has seen the cordon."""
        return any(taint.key == CORDON.key for taint in self.taints)

    @property
    def cordoned_at(self) -> str:
        """Return RFC 3339; empty if the node joined cordoned."""
        cordon = (taint for taint in self.taints if taint.key == CORDON.key)
        return next((taint.time_added for taint in cordon), "")

    @property
    def maintenance_by_others(self) -> LifecycleCondition | None:
        """Return the condition that someone else set."""
        for condition in self.lifecycle:
            if condition.is_true and condition.type in AT_WORK and not condition.is_ours:
                return condition
        return None

    @property
    def has_own_conditions(self) -> bool:
        """Whether rollout set a condition."""
        return any(condition.is_ours for condition in self.lifecycle)

    @property
    def is_ready(self) -> bool:
        """Whether the node is Ready."""
        return self.ready is ConditionStatus.TRUE

    @property
    def is_control_plane(self) -> bool:
        """Whether the node has the role, by label or taint."""
        taints = {taint.key for taint in self.taints if taint.effect in KEEPING_AWAY}
        return any(role in self.labels or role in taints for role in CONTROL_PLANE_LABELS)

    @property
    def zone(self) -> str:
        """Return the zone, or empty."""
        return self.labels.get(ZONE_LABEL, "")


class OwnerRef(Struct, frozen=True):
    """An object's controller."""

    api_version: str
    kind: str
    name: str
    uid: str

    @property
    def group(self) -> str:
        """Return the API group; empty for core."""
        return self.api_version.rpartition("/")[0]

    @property
    def is_of_kubernetes(self) -> bool:
        """Whether Kubernetes defines the kind."""
        return self.group in _KUBERNETES_GROUPS or self.group.endswith(_KUBERNETES_DOMAIN)

    def named_in(self, namespace: str) -> str:
        """Return `Cluster db/shop`."""
        return f"{self.kind} {namespace}/{self.name}"


class PodPhase(StrEnum):
    """A pod's phase."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


_ENDED = (PodPhase.SUCCEEDED, PodPhase.FAILED)


class Pod(Struct, frozen=True, gc=False):
    """A pod. Times are RFC 3339, or empty."""

    namespace: str
    name: str
    uid: str
    node: str
    phase: PodPhase
    ready: bool
    labels: Mapping[str, str]
    owner: OwnerRef | None
    # A static pod's copy in the API.
    mirror: bool
    has_empty_dir: bool
    requests: Resources
    # When the deletion's grace period ends.
    deleted_at: str = ""
    # In seconds; the second is the deletion's.
    grace_period: int = 30
    deletion_grace: int | None = None
    finalizers: tuple[str, ...] = ()
    node_selector: Mapping[str, str] = {}
    # Those that a replacement also uses.
    claims: tuple[str, ...] = ()
    placement: Placement = ANYWHERE
    unready_since: str = ""
    # From scheduling to Ready, or None.
    start_seconds: int | None = None
    # Only for static and DaemonSet pods.
    ready_since: str = ""
    # Priority class system-node-critical.
    node_critical: bool = False
    started_at: str = ""
    active_deadline_seconds: int | None = None

    @property
    def key(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def finished(self) -> bool:
        """Whether the pod has ended."""
        return self.phase in _ENDED

    @property
    def is_of_longhorn(self) -> bool:
        """Whether the pod belongs to Longhorn."""
        return self.owner is not None and self.owner.api_version.startswith("longhorn.io/")

    @property
    def is_osd(self) -> bool:
        """Whether it is a live Rook Ceph OSD."""
        return self.labels.get("app") == OSD_APP and not self.finished

    @property
    def terminating(self) -> bool:
        """Whether the pod is being deleted."""
        return bool(self.deleted_at)


class Budget(Struct, frozen=True, dict=True):
    """A PodDisruptionBudget, or a drain.critical rule."""

    namespace: str
    name: str
    # None matches nothing.
    selector: LabelSelector | None
    # As written (`2`, `50%`); empty if not set.
    min_available: str
    max_unavailable: str
    disruptions_allowed: int
    current_healthy: int
    desired_healthy: int
    expected_pods: int
    always_allow_unhealthy: bool
    # Why the pods cannot be counted, or empty.
    sync_error: str = ""
    owner: OwnerRef | None = None
    critical: bool = False
    uid: str = ""
    resource_version: str = ""

    @cached_property
    def key(self) -> str:
        """Return `namespace/name` or `critical/namespace/selector`."""
        prefix = CRITICAL if self.critical else ""
        return f"{prefix}{self.namespace}/{self.name}"

    @property
    def needs_every_pod(self) -> bool:
        """Whether the budget now allows no eviction."""
        return 0 < self.expected_pods <= self.desired_healthy

    def covers(self, pod: Pod) -> bool:
        """Whether the budget selects the pod."""
        if self.selector is None or pod.namespace != self.namespace:
            return False
        return self.selector.matches(pod.labels)


def budget_subject(key: str) -> str:
    """Return the budget's name in findings."""
    return key if key.startswith(CRITICAL) else f"pdb/{key}"


class DaemonSet(Struct, frozen=True):
    """A DaemonSet and its placement."""

    namespace: str
    name: str
    uid: str
    node_selector: Mapping[str, str] = {}
    placement: Placement = ANYWHERE

    def wants(self, node: Node) -> bool:
        """Whether the node should run a pod."""
        if not self.node_selector.items() <= node.labels.items():
            return False
        if not self.placement.admits(node.name, node.labels):
            return False
        # DaemonSets tolerate Kubernetes' own taints.
        taints = [taint for taint in node.taints if not taint.key.startswith(SELF_SET)]
        return self.placement.tolerates(taints)


class Job(Struct, frozen=True):
    """A Job."""

    uid: str
    # The CronJob's UID, or empty.
    cron_job: str
    # RFC 3339, or empty.
    started_at: str
    # From the start.
    deadline_seconds: int | None
    # None until the Job succeeds.
    took_seconds: int | None


class VolumeAttachment(Struct, frozen=True):
    """A volume that is, or is being, attached."""

    name: str
    node: str
    volume: str


class StoredData(Struct, frozen=True):
    """A Longhorn volume or a Ceph cluster."""

    # type.group/namespace/name
    object: str
    nodes: frozenset[str]
    # Nodes with a usable copy.
    healthy: frozenset[str]
    # Usable copies that must stay.
    needed: int
    # Empty if a copy may go.
    problem: str
    fix: str

    @property
    def spare(self) -> int:
        """Return how many nodes may be away; may be negative."""
        return len(self.healthy) - self.needed


class ClusterIdentity(Struct, frozen=True):
    """The identity of a cluster."""

    # Of the namespace kube-system.
    uid: str
    server: str
    version: str


class ClusterSnapshot(Struct, frozen=True):
    """A cluster; lists that no rule needs are empty."""

    identity: ClusterIdentity
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    budgets: tuple[Budget, ...]
    daemon_sets: tuple[DaemonSet, ...]
    attachments: tuple[VolumeAttachment, ...]
    warnings: tuple[str, ...] = ()
    volumes: tuple[PersistentVolume, ...] = ()
    coordinators: tuple[Coordinator, ...] = ()
    # Labels by namespace.
    namespaces: Mapping[str, Mapping[str, str]] = {}
    # By the API server's clock, or None.
    read_at: datetime | None = None
    memory: Memory = NO_MEMORY
    stored: tuple[StoredData, ...] = ()
    jobs: tuple[Job, ...] = ()
    deployments: tuple[Deployment, ...] = ()

    def node(self, name: str) -> Node | None:
        """Return the Node, or None."""
        return next((node for node in self.nodes if node.name == name), None)
