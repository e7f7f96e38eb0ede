"""The cluster, reduced to what planning and draining need."""

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
# API groups of Kubernetes besides those below k8s.io.
_KUBERNETES_GROUPS = frozenset({"", "apps", "autoscaling", "batch", "extensions", "policy"})
_KUBERNETES_DOMAIN = ".k8s.io"
# Prefix of the taints that Kubernetes sets itself.
SELF_SET = "node.kubernetes.io/"


class ConditionStatus(StrEnum):
    """The status of a condition of a Node or pod."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class NodeAddress(Struct, frozen=True):
    """An address of a Node."""

    type: str = ""
    address: str = ""


class Resources(Struct, frozen=True):
    """What a pod requests, or what a node offers."""

    cpu_milli: int = 0
    # In bytes.
    memory: int = 0
    pods: int = 0
    # Amounts by name, sorted. A host port, `HOST_PORT` + `80/TCP`, is a resource; each node has
    # one.
    others: tuple[tuple[str, int], ...] = ()


class Node(Struct, frozen=True):
    """A Kubernetes Node, reduced."""

    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    unschedulable: bool
    # Unknown as well if there is no Ready condition.
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
        """Return when the cluster saw the cordon (RFC 3339); empty if the node joined with it."""
        cordon = (taint for taint in self.taints if taint.key == CORDON.key)
        return next((taint.time_added for taint in cordon), "")

    @property
    def maintenance_by_others(self) -> LifecycleCondition | None:
        """Return the condition by which someone else drains or maintains the node."""
        for condition in self.lifecycle:
            if condition.is_true and condition.type in AT_WORK and not condition.is_ours:
                return condition
        return None

    @property
    def has_own_conditions(self) -> bool:
        """Whether rollout has set a lifecycle condition."""
        return any(condition.is_ours for condition in self.lifecycle)

    @property
    def is_ready(self) -> bool:
        """Whether the kubelet reports Ready."""
        return self.ready is ConditionStatus.TRUE

    @property
    def is_control_plane(self) -> bool:
        """Whether the role is a label, or the key of a taint that keeps pods away."""
        taints = {taint.key for taint in self.taints if taint.effect in KEEPING_AWAY}
        return any(role in self.labels or role in taints for role in CONTROL_PLANE_LABELS)

    @property
    def zone(self) -> str:
        """Return the topology zone, or empty."""
        return self.labels.get(ZONE_LABEL, "")


class OwnerRef(Struct, frozen=True):
    """The controller of an object."""

    api_version: str
    kind: str
    name: str
    uid: str

    @property
    def group(self) -> str:
        """Return the API group; the core group is empty."""
        return self.api_version.rpartition("/")[0]

    @property
    def is_of_kubernetes(self) -> bool:
        """Whether the kind is Kubernetes' own, such as Deployment."""
        return self.group in _KUBERNETES_GROUPS or self.group.endswith(_KUBERNETES_DOMAIN)

    def named_in(self, namespace: str) -> str:
        """Return a name such as `Cluster db/shop`."""
        return f"{self.kind} {namespace}/{self.name}"


class PodPhase(StrEnum):
    """The phase of a pod."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


_ENDED = (PodPhase.SUCCEEDED, PodPhase.FAILED)


class Pod(Struct, frozen=True, gc=False):
    """A pod, reduced. Times are RFC 3339, or empty."""

    namespace: str
    name: str
    uid: str
    node: str
    phase: PodPhase
    ready: bool
    labels: Mapping[str, str]
    owner: OwnerRef | None
    # The API's copy of a static pod.
    mirror: bool
    has_empty_dir: bool
    requests: Resources
    # When the grace period of the deletion ends.
    deleted_at: str = ""
    # In seconds: the pod's grace period, and the one with which it was deleted.
    grace_period: int = 30
    deletion_grace: int | None = None
    finalizers: tuple[str, ...] = ()
    node_selector: Mapping[str, str] = {}
    # The volume claims that a replacement also uses.
    claims: tuple[str, ...] = ()
    placement: Placement = ANYWHERE
    unready_since: str = ""
    # From scheduling to the last change to Ready, or None.
    start_seconds: int | None = None
    # Only of static and DaemonSet pods.
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
        """Whether the pod has ended for good."""
        return self.phase in _ENDED

    @property
    def is_of_longhorn(self) -> bool:
        """Whether the pod belongs to Longhorn."""
        return self.owner is not None and self.owner.api_version.startswith("longhorn.io/")

    @property
    def is_osd(self) -> bool:
        """Whether the pod is a Rook Ceph OSD."""
        return self.labels.get("app") == OSD_APP and not self.finished

    @property
    def terminating(self) -> bool:
        """Whether the pod is being deleted."""
        return bool(self.deleted_at)


class Budget(Struct, frozen=True, dict=True):
    """A PodDisruptionBudget with its status, or a rule of drain.critical."""

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
    # Its unhealthyPodEvictionPolicy.
    always_allow_unhealthy: bool
    # Why its controller cannot count the pods, or empty.
    sync_error: str = ""
    owner: OwnerRef | None = None
    critical: bool = False
    uid: str = ""
    resource_version: str = ""

    @cached_property
    def key(self) -> str:
        """Return `namespace/name`, or `critical/namespace/selector` for a rule."""
        prefix = CRITICAL if self.critical else ""
        return f"{prefix}{self.namespace}/{self.name}"

    @property
    def needs_every_pod(self) -> bool:
        """Whether the budget allows no eviction at its present size."""
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
    """A DaemonSet and where its pods may run."""

    namespace: str
    name: str
    uid: str
    node_selector: Mapping[str, str] = {}
    placement: Placement = ANYWHERE

    def wants(self, node: Node) -> bool:
        """Whether the node should have a pod of the DaemonSet."""
        if not self.node_selector.items() <= node.labels.items():
            return False
        if not self.placement.admits(node.name, node.labels):
            return False
        # DaemonSets' pods tolerate the taints that Kubernetes sets itself.
        taints = [taint for taint in node.taints if not taint.key.startswith(SELF_SET)]
        return self.placement.tolerates(taints)


class Job(Struct, frozen=True):
    """A Job, reduced."""

    uid: str
    # The UID of the CronJob that owns it, or empty.
    cron_job: str
    # RFC 3339, or empty.
    started_at: str
    # From the start.
    deadline_seconds: int | None
    # None until the Job succeeds.
    took_seconds: int | None


class VolumeAttachment(Struct, frozen=True):
    """A volume that is, or is being, attached to a node."""

    name: str
    node: str
    volume: str


class StoredData(Struct, frozen=True):
    """A Longhorn volume or a Ceph cluster, with copies on several nodes."""

    # type.group/namespace/name
    object: str
    # The nodes with a copy.
    nodes: frozenset[str]
    # The nodes whose copy is usable.
    healthy: frozenset[str]
    # How many usable copies must stay.
    needed: int
    # Why none may go, and what to do; both empty otherwise.
    problem: str
    fix: str

    @property
    def spare(self) -> int:
        """Return how many nodes may be away; below one if none may."""
        return len(self.healthy) - self.needed


class ClusterIdentity(Struct, frozen=True):
    """The identity of a cluster."""

    # The UID of the namespace kube-system.
    uid: str
    server: str
    version: str


class ClusterSnapshot(Struct, frozen=True):
    """The cluster, read once; lists that no rule needs are empty."""

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
    # The API server's time, or None.
    read_at: datetime | None = None
    memory: Memory = NO_MEMORY
    stored: tuple[StoredData, ...] = ()
    jobs: tuple[Job, ...] = ()
    deployments: tuple[Deployment, ...] = ()

    def node(self, name: str) -> Node | None:
        """Return the Node."""
        return next((node for node in self.nodes if node.name == name), None)
