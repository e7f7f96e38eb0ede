from enum import Enum, StrEnum
from typing import ClassVar

from msgspec import Struct

from rollout.model.cluster import Resources
from rollout.model.deployment import DeploymentProgress
from rollout.model.finding import Finding


class VerdictReason(StrEnum):
    """Why a drain evicts, leaves or refuses a pod; enumerated values."""

    ORDINARY = "ordinary"
    FINISHED = "finished"
    TERMINATING = "terminating"
    NOT_SELECTED = "not-selected"
    OVERDUE = "overdue"
    DAEMONSET = "daemonset"
    MIRROR = "mirror"
    DAEMONSET_GONE = "daemonset-gone"
    COMPLETING = "completing"
    LOCAL_STORAGE = "local-storage"
    UNMANAGED = "unmanaged"


class PodFinding(Finding, frozen=True):
    """Why a pod is left or refused."""

    kind: ClassVar[VerdictReason]


class NotSelected(PodFinding, frozen=True):
    """--pod-selector does not select the pod."""

    kind = VerdictReason.NOT_SELECTED


class OverduePod(PodFinding, frozen=True):
    """The drain waits only `patience` seconds after the grace period."""

    kind = VerdictReason.OVERDUE
    overdue: int
    patience: int


class OfDaemonSet(PodFinding, frozen=True):
    """The DaemonSet would replace the pod."""

    kind = VerdictReason.DAEMONSET
    daemon_set: str


class StaticPod(PodFinding, frozen=True):
    """The kubelet runs the pod from a file."""

    kind = VerdictReason.MIRROR


class DaemonSetGone(PodFinding, frozen=True):
    """The pod's DaemonSet no longer exists."""

    kind = VerdictReason.DAEMONSET_GONE
    daemon_set: str


class CompletingPod(PodFinding, frozen=True):
    """drain.wait-for-completion selects the pod."""

    kind = VerdictReason.COMPLETING


class LocalStorage(PodFinding, frozen=True):
    """The pod has emptyDir data."""

    kind = VerdictReason.LOCAL_STORAGE


class UnmanagedPod(PodFinding, frozen=True):
    """The pod has no controller."""

    kind = VerdictReason.UNMANAGED


class Restarting(Finding, frozen=True):
    """A Deployment is replacing its pods."""

    deployment: str
    progress: DeploymentProgress
    # Someone has restored the earlier template.
    is_reverted: bool

    @property
    def has_failed(self) -> bool:
        """Whether the old pods will stay."""
        # An unobserved change has the earlier one's progress.
        return self.is_reverted or (self.progress.is_observed and self.progress.is_late)


class PlacementRule(Enum):
    """A rule about other pods."""

    OWN_ANTI_AFFINITY = "own-anti-affinity"
    OTHERS_ANTI_AFFINITY = "others-anti-affinity"
    POD_AFFINITY = "pod-affinity"
    TOPOLOGY_SPREAD = "topology-spread"


class Shortage(Struct, frozen=True):
    """A resource that no node has enough of."""

    resource: str
    # Free on all nodes, and at most on one.
    total: int
    most: int
    is_enough_in_total: bool


class NoNodeMatches(Struct, frozen=True):
    """No other node fits the pod's labels and tolerations."""


class VolumeElsewhere(Struct, frozen=True):
    """The volume attaches to no other schedulable node."""

    volume: str


class NoRoom(Struct, frozen=True):
    """All matching nodes are too full."""

    requests: Resources
    # None if they lack different resources.
    shortage: Shortage | None


class RulesExclude(Struct, frozen=True):
    """The rules exclude every other node."""

    rules: tuple[PlacementRule, ...]


Nowhere = NoNodeMatches | VolumeElsewhere | NoRoom | RulesExclude
"""Why no other node takes a pod."""
