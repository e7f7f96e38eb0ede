"""The plan; docs/json.md explains its fields."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct, field

from rollout.model.cluster import ClusterIdentity
from rollout.model.detection import Source
from rollout.model.host import UpdateStanding
from rollout.model.policy import Policy, Selection
from rollout.model.quantity import Number

FORMAT_VERSION = "1.0"


class ExclusionReason(StrEnum):
    """Why a node is not part of the plan; enumerated values."""

    NOT_READY = "not-ready"
    DELETING = "deleting"
    UNSUPPORTED = "unsupported"
    CORDONED = "cordoned"
    LEFT_CORDONED = "left-cordoned"
    PAUSED = "paused"
    NO_UPDATE = "no-update"
    UNREACHABLE = "unreachable"
    WRONG_HOST = "wrong-host"
    UNKNOWN_STATUS = "unknown-status"
    NO_SUDO = "no-sudo"
    INHIBITED = "inhibited"
    SHUTDOWN_PENDING = "shutdown-pending"
    EXCLUDED = "excluded"
    RIVAL = "rival"
    UNKNOWN_MARKS = "unknown-marks"
    BLOCKED = "blocked"
    DEFERRED = "deferred"
    OWN_NODE = "own-node"
    VERSION_HELD = "version-held"
    FAILED_RECENTLY = "failed-recently"
    UNPROVEN = "unproven"
    STILL_RUNNING = "still-running"
    NO_PREVIOUS_VERSION = "no-previous-version"

    @property
    def is_trouble(self) -> bool:
        """Whether the reason means exit code 4."""
        return self not in _NO_TROUBLE


# Nothing to do, left out on request (BLOCKED: --skip blocked), failed recently, or unproven.
_NO_TROUBLE = frozenset(
    {
        ExclusionReason.DELETING,
        ExclusionReason.UNSUPPORTED,
        ExclusionReason.CORDONED,
        ExclusionReason.PAUSED,
        ExclusionReason.NO_UPDATE,
        ExclusionReason.EXCLUDED,
        ExclusionReason.BLOCKED,
        ExclusionReason.FAILED_RECENTLY,
        ExclusionReason.UNPROVEN,
    }
)


class BlockerKind(StrEnum):
    """What makes a drain fail or prevents the start; enumerated values."""

    BUDGET_NEVER = "budget-never"
    TWO_BUDGETS = "two-budgets"
    UNMANAGED_POD = "unmanaged-pod"
    LOCAL_STORAGE = "local-storage"
    DAEMONSET_GONE = "daemonset-gone"
    BUDGET_UNHEALTHY = "budget-unhealthy"
    STUCK_TERMINATING = "stuck-terminating"
    FITS_NOWHERE = "fits-nowhere"
    CONTROL_PLANE_UNHEALTHY = "control-plane-unhealthy"
    STORAGE_UNHEALTHY = "storage-unhealthy"
    NODES_UNAVAILABLE = "nodes-unavailable"
    RIVAL = "rival"


class WarningKind(StrEnum):
    """What a warning is about; enumerated values."""

    POD = "pod"
    BUDGET_WAITING = "budget-waiting"
    BUDGET_MANAGED = "budget-managed"
    BUDGET_RESTART = "budget-restart"
    TERMINATING = "terminating"
    LONG_GRACE = "long-grace"
    LONG_COMPLETION = "long-completion"
    FITS_NOWHERE = "fits-nowhere"
    ALL_REPLICAS = "all-replicas"
    FAILED_RECENTLY = "failed-recently"
    VERSION_HELD = "version-held"
    LOGGED_IN = "logged-in"
    OTHERS_AT_WORK = "others-at-work"
    NOTHING_CRITICAL = "nothing-critical"
    MORE_UPDATES = "more-updates"


class PlannedNode(Struct, frozen=True, rename={"was_cordoned": "cordoned"}):
    """A node to reboot, as planned; unknown values are empty.

    In a rollback, `staged_version` is the version to go back to.
    """

    name: str
    boot_id: str
    node_uid: str
    running_version: str
    staged_version: str
    # Pods on it now. Drains leave DaemonSet pods.
    evict: int
    leave: int
    # Before rollout started, so it stays cordoned.
    was_cordoned: bool = False
    staged: bool = True
    # From earlier drains; its drain evicts them again.
    arrivals: int = 0
    machine_id: str = ""
    pool: str = ""
    detected_by: tuple[Source, ...] = ()
    detail: str = ""
    # For pods that complete.
    wait: int = 0
    wait_seconds: int = 0
    # This version needs another reboot.
    next_version: str = ""


class Estimate(Struct, frozen=True):
    """How long a wave is likely to take, in whole seconds: in total, and by phase."""

    seconds: int = 0
    drain: int = 0
    reboot: int = 0
    settle: int = 0
    soak: int = 0


class Rolling(Struct, frozen=True):
    """How many nodes of a wave can be in flight, and when each of them starts.

    The keys of `capacity` and `holds` name the limits that the nodes share: the limits of waves
    (`Load`), or `place:` for nodes that the same pods are limited to.
    """

    in_flight: Annotated[int, Meta(ge=1)]
    begins: Mapping[str, int] = field(default_factory=dict)
    capacity: Mapping[str, Number] = field(default_factory=dict)
    holds: Mapping[str, Mapping[str, Number]] = field(default_factory=dict)


class Wave(Struct, frozen=True):
    """Nodes that are rebooted together, or one after another if `rolling` is set."""

    index: int
    nodes: tuple[PlannedNode, ...]
    because: str
    # `because` for a table, then without the delay. Either may be empty.
    note: str = ""
    estimate: Estimate = Estimate()
    rolling: Rolling | None = None
    limit: str = ""


class TimeEstimate(Struct, frozen=True):
    """How long the rollout is likely to take, in seconds."""

    seconds: int = 0
    basis: tuple[str, ...] = ()
    usual_reboot: int = 0
    assumed_reboot: int = 0


class Exclusion(Struct, frozen=True):
    """A selected node that is not part of the plan."""

    node: str
    reason: ExclusionReason
    # Ends with the fix in parentheses.
    message: str
    pool: str = ""
    update: UpdateStanding | None = None
    fix: str = ""
    # Without fix and details.
    brief: str = ""
    version: str = ""


class Blocker(Struct, frozen=True):
    """A problem that would make a drain fail, or that prevents the rollout from starting."""

    node: str
    kind: BlockerKind
    object: str
    # Cause and fix, which are empty in older plans.
    message: str
    cause: str = ""
    fix: str = ""


class PlanWarning(Struct, frozen=True):
    """Something that the operator should know, but that does not prevent the rollout."""

    node: str
    object: str
    message: str
    kind: WarningKind = WarningKind.POD


class PlanSummary(Struct, frozen=True):
    """Totals of the plan."""

    nodes: int
    waves: int
    # No layout has fewer.
    waves_lower_bound: int
    pods_to_move: int = 0
    expected_evictions: int = 0


class RolloutPlan(Struct, frozen=True):
    """The plan. `created_at` is RFC 3339 in UTC."""

    format_version: str
    # A digest, or the run ID of a resumed rollout or FleetLock slot; see `marks.RUN`.
    plan_id: str
    created_at: str
    cluster: ClusterIdentity
    selection: Selection
    policy: Policy
    waves: tuple[Wave, ...]
    excluded: tuple[Exclusion, ...]
    blockers: tuple[Blocker, ...]
    warnings: tuple[PlanWarning, ...]
    summary: PlanSummary
    estimate: TimeEstimate = TimeEstimate()

    @property
    def nodes(self) -> tuple[PlannedNode, ...]:
        """Return all nodes, in order."""
        return tuple(node for wave in self.waves for node in wave.nodes)

    @property
    def last_wave(self) -> int:
        """Return the last number, or 0. A resumed rollout may start above 1."""
        return self.waves[-1].index if self.waves else 0
