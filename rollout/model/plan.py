"""The plan: waves, what is left out and why, and what stands in the way. Its field names are the JSON's."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from rollout.model.cluster import ClusterIdentity
from rollout.model.detection import Source
from rollout.model.host import UpdateStanding
from rollout.model.policy import Policy, Selection
from rollout.model.quantity import Number

FORMAT_VERSION = "1.0"


class ExclusionReason(StrEnum):
    """Why a node is not part of the plan; fixed words."""

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

    @property
    def is_trouble(self) -> bool:
        """Whether a node that was asked for is not done for it, which endings name and answer with exit code 4.

        Else it is left out: a node with nothing to do, without a Linux host, or about to be
        removed, one that the cluster's operators hold back (by a flag, a cordon or a pause), one
        that failed, which was told then, and rests until a later pass, and one whose version
        another cluster is still to prove. Whatever else keeps a node from its update is trouble
        that nobody has decided on.
        """
        return self not in _LEFT_OUT


_LEFT_OUT = frozenset(
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
    """What will make a node's drain fail, or keep the rollout from starting; fixed words."""

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
    """What a warning is about; fixed words."""

    POD = "pod"
    BUDGET_WAITING = "budget-waiting"
    TERMINATING = "terminating"
    LONG_GRACE = "long-grace"
    FITS_NOWHERE = "fits-nowhere"
    ALL_REPLICAS = "all-replicas"
    FAILED_RECENTLY = "failed-recently"
    VERSION_HELD = "version-held"
    LOGGED_IN = "logged-in"
    NOTHING_CRITICAL = "nothing-critical"


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A node to reboot, with the identity it had when the plan was made.

    `evict` and `leave` count its pods. `cordoned` is whether it was unschedulable already, `staged`
    whether an update waits, or whatever else needs a reboot. `staged_version` is empty where that
    has no version, or none that is known. `arrivals` is how many more pods earlier waves will have
    moved here by its turn, as far as can be foreseen. `boot_id` and `machine_id` are what host and
    Node agreed on: they tell the machine that may be rebooted. `pool` is whose rules hold for it;
    empty where there are no pools. `detected_by` are the sources that say that it needs a reboot,
    none where it is rebooted all the same; `detail` is why, in their words.
    """

    name: str
    boot_id: str
    node_uid: str
    running_version: str
    staged_version: str
    evict: int
    leave: int
    cordoned: bool = False
    staged: bool = True
    arrivals: int = 0
    machine_id: str = ""
    pool: str = ""
    detected_by: tuple[Source, ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Estimate:
    """How long a wave is likely to take, in whole seconds: `seconds` in all, and what of it goes where."""

    seconds: int = 0
    drain: int = 0
    reboot: int = 0
    settle: int = 0
    soak: int = 0


@dataclass(frozen=True, slots=True)
class Rolling:
    """How the nodes of a wave follow one another, in the order in which the wave names them.

    At most `in_flight` are under way at once. `holds` says what each takes until it is back:
    budgets by namespace/name, owners by kind/namespace/name, `room:` of the cluster and `place:`
    beside others; a node that takes nothing is left out, as is what can never run short. `capacity`
    is how much of each there is. `begins` are the estimated seconds from the beginning of the
    rollout, by node.
    """

    in_flight: Annotated[int, Meta(ge=1)]
    begins: Mapping[str, int] = field(default_factory=dict)
    capacity: Mapping[str, Number] = field(default_factory=dict)
    holds: Mapping[str, Mapping[str, Number]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wave:
    """Nodes taken side by side, and why they are together and not with others; or one after another, as they come back.

    `note` is of `because` what nobody would expect, in a few words; empty where there is nothing of
    that. `limit` is the note without what its drains wait for. `rolling` is None where they are
    taken side by side.
    """

    index: int
    nodes: tuple[PlannedNode, ...]
    because: str
    note: str = ""
    estimate: Estimate = Estimate()
    rolling: Rolling | None = None
    limit: str = ""


@dataclass(frozen=True, slots=True)
class TimeEstimate:
    """How long the whole is likely to take, in seconds, and the sentences that say what this is reckoned from.

    `usual_reboot` is what a reboot took in past runs, `assumed_reboot` what it is assumed to take;
    in seconds, 0 if the estimate does not go by it.
    """

    seconds: int = 0
    basis: tuple[str, ...] = ()
    usual_reboot: int = 0
    assumed_reboot: int = 0


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A selected node that is not part of the plan.

    `pool` is the one it belongs to, empty if there are none. `update` is set for a node without a
    staged update. `message` ends with `fix` in parentheses; `brief` is the message without the fix
    and without particulars. `version` is the one that is held, empty for other reasons.
    """

    node: str
    reason: ExclusionReason
    message: str
    pool: str = ""
    update: UpdateStanding | None = None
    fix: str = ""
    brief: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Blocker:
    """Something that will stop a node's drain, or the start.

    `object` is what to look at: `pdb/namespace/name`, `pod/namespace/name`. `message` is `cause`,
    followed by `fix` after a colon; plans of earlier versions have only the message.
    """

    node: str
    kind: BlockerKind
    object: str
    message: str
    cause: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class PlanWarning:
    """Something the operator should know that stops nothing."""

    node: str
    object: str
    message: str
    kind: WarningKind = WarningKind.POD


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """Figures of the plan; no layout under the same rules has fewer than `waves_lower_bound` waves.

    `pods_to_move` are the pods that stand on the planned nodes and have to go; `expected_evictions`
    counts as well those that are likely to be evicted again, from another planned node that they
    had moved to.
    """

    nodes: int
    waves: int
    waves_lower_bound: int
    pods_to_move: int = 0
    expected_evictions: int = 0


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """A whole plan. `created_at` is RFC 3339 in UTC."""

    format_version: str
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
        """Every planned node, in order."""
        return tuple(node for wave in self.waves for node in wave.nodes)

    @property
    def last_wave(self) -> int:
        """The number of the last wave, 0 without waves; the first of a resumed rollout need not be 1."""
        return self.waves[-1].index if self.waves else 0
