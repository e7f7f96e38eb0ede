from enum import StrEnum
from typing import ClassVar

from rollout.model.cluster import Budget
from rollout.model.deployment import Deployment
from rollout.model.drain_finding import Nowhere, PodFinding, VerdictReason
from rollout.model.finding import Finding
from rollout.model.node_lifecycle import Lifecycle
from rollout.model.plan import BlockerKind
from rollout.model.quantity import Count, Duration
from rollout.model.rivals import Coordinator

_REFUSALS = {
    VerdictReason.UNMANAGED: BlockerKind.UNMANAGED_POD,
    VerdictReason.LOCAL_STORAGE: BlockerKind.LOCAL_STORAGE,
    VerdictReason.DAEMONSET_GONE: BlockerKind.DAEMONSET_GONE,
}


class BlockerFinding(Finding, frozen=True):
    """A blocker's reason."""

    kind: ClassVar[BlockerKind]


class NodeAway(BlockerFinding, frozen=True):
    """The node counts as unavailable."""

    kind = BlockerKind.NODES_UNAVAILABLE


class AwayNotReady(NodeAway, frozen=True):
    """The node is not Ready."""


class AwayFailed(NodeAway, frozen=True):
    """The node failed, and is still cordoned."""

    # Empty if unknown.
    run_id: str


class AwayStarted(NodeAway, frozen=True):
    """A rollout has not returned the node."""

    run_id: str


class AwayByOthers(NodeAway, frozen=True):
    """Someone else is emptying the node."""

    # RFC 3339, or empty.
    since: str


class AwayCordoned(AwayByOthers, frozen=True):
    """Someone else cordoned the node recently."""


class AwayMaintained(AwayByOthers, frozen=True):
    """Someone else drains or maintains the node."""

    condition: Lifecycle


class LimitUsedUp(BlockerFinding, frozen=True):
    """The node uses up max-unavailable."""

    kind = BlockerKind.NODES_UNAVAILABLE
    away: NodeAway
    limit: Count
    # Empty for the rollout's limit.
    pool: str = ""


class ControlPlaneAway(BlockerFinding, frozen=True):
    """Another control-plane node is away."""

    kind = BlockerKind.CONTROL_PLANE_UNHEALTHY
    away: NodeAway


class StaticPodUnready(BlockerFinding, frozen=True):
    """A static control-plane pod is unready."""

    kind = BlockerKind.CONTROL_PLANE_UNHEALTHY
    node: str
    since: str


class EtcdMajorityLost(BlockerFinding, frozen=True):
    """etcd would lose its majority."""

    kind = BlockerKind.CONTROL_PLANE_UNHEALTHY
    node: str
    members: int
    needed: int
    left: int
    # Nodes with unhealthy members.
    lacking: tuple[str, ...]
    is_too_small: bool


class LastApiServer(BlockerFinding, frozen=True):
    """No other API server is Ready."""

    kind = BlockerKind.CONTROL_PLANE_UNHEALTHY


class CopiesLacking(BlockerFinding, frozen=True):
    """Stored data would have too few copies."""

    kind = BlockerKind.STORAGE_UNHEALTHY
    away: tuple[str, ...]
    problem: str
    fix: str


class CoordinatorActive(BlockerFinding, frozen=True):
    """Another reboot coordinator may act."""

    kind = BlockerKind.RIVAL
    coordinator: Coordinator


class PodRefused(BlockerFinding, frozen=True):
    """The drain refuses the pod."""

    reasons: tuple[PodFinding, ...]

    @property
    def kind(self) -> BlockerKind:  # type: ignore[override]
        """Return the first reason's kind."""
        return _REFUSALS[self.reasons[0].kind]


class StuckTerminating(BlockerFinding, frozen=True):
    """The pod is overdue for longer than `timeout`."""

    kind = BlockerKind.STUCK_TERMINATING
    overdue: Duration
    finalizers: tuple[str, ...]
    timeout: Duration


class SeveralBudgets(BlockerFinding, frozen=True):
    """The API server evicts no pod that several budgets cover."""

    kind = BlockerKind.TWO_BUDGETS
    budgets: tuple[str, ...]


class BudgetUncounted(BlockerFinding, frozen=True):
    """The budget's controller cannot count its pods."""

    kind = BlockerKind.BUDGET_NEVER
    error: str


class BudgetUnscaled(BlockerFinding, frozen=True):
    """The budget needs a scale, which its pods lack."""

    kind = BlockerKind.BUDGET_NEVER
    budget: Budget
    # The minAvailable that would let one pod go.
    min_available: int


class SurgeObstacle(StrEnum):
    """Why no replacement starts first."""

    STATEFUL_SET = "stateful-set"
    PAUSED = "paused"
    RECREATE = "recreate"
    NO_SURGE = "no-surge"
    UNAVAILABLE = "unavailable"
    VOLUME = "volume"


class NoSurge(Finding, frozen=True):
    """drain.restart does not help this owner."""

    owner: str
    obstacle: SurgeObstacle


class BudgetNever(BlockerFinding, frozen=True):
    """The budget never allows an eviction."""

    kind = BlockerKind.BUDGET_NEVER
    budget: Budget
    ended: int
    # Replicas to add; 0 if none would help.
    replicas: int
    healthy: int
    # None for owners that drain.restart ignores.
    restart: Deployment | NoSurge | None


class BudgetUnhealthy(BlockerFinding, frozen=True):
    """The pods have long been unready."""

    kind = BlockerKind.BUDGET_UNHEALTHY
    budget: Budget
    unready: tuple[str, ...]
    # When the first became unready.
    since: str
    # unhealthyPodEvictionPolicy would let the node's pods go.
    is_policy_enough: bool


class FitsNowhere(BlockerFinding, frozen=True):
    """More pods fit nowhere else than may be away."""

    kind = BlockerKind.FITS_NOWHERE
    budget: Budget
    lost: tuple[str, ...]
    obstacle: Nowhere
    # Pods that may be away, and that can be healthy.
    away: int
    healthy: int
