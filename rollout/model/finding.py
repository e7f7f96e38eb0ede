"""Typed reasons, whose sentences are in `rollout.wording`."""

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, NamedTuple

from msgspec import Struct

from rollout.model.detection import Source
from rollout.model.memory import NodeFailures, Pause
from rollout.model.node_lifecycle import Lifecycle
from rollout.model.plan import ExclusionReason
from rollout.model.quantity import Duration
from rollout.model.rivals import Rival, SelfReboot


class Finding(Struct, frozen=True):
    """A reason, with its sentence's values."""

    kind: ClassVar[StrEnum]
    # A later run may start the node.
    is_for_later: ClassVar[bool] = False


class NodeFinding(Finding, frozen=True):
    """Why a node is not planned, or may not reboot."""

    kind: ClassVar[ExclusionReason]


class ExcludedByFlag(NodeFinding, frozen=True):
    """The operator excluded the node."""

    kind = ExclusionReason.EXCLUDED
    flag: str


class VirtualNode(NodeFinding, frozen=True):
    """The Node has no host."""

    kind = ExclusionReason.UNSUPPORTED


class OtherSystem(NodeFinding, frozen=True):
    """rollout does not reboot this system."""

    kind = ExclusionReason.UNSUPPORTED
    system: str


class NodeDeleting(NodeFinding, frozen=True):
    """The Node is being deleted."""

    kind = ExclusionReason.DELETING


class NodeLeaving(NodeFinding, frozen=True):
    """The machine is about to be removed."""

    kind = ExclusionReason.DELETING
    remover: str
    taint: str


class NodeNotReady(NodeFinding, frozen=True):
    """The Node is not Ready."""

    kind = ExclusionReason.NOT_READY
    is_silent: bool
    message: str


class LeftCordoned(NodeFinding, frozen=True):
    """An unfinished rollout cordoned the node."""

    kind = ExclusionReason.LEFT_CORDONED
    run_id: str
    phase: str


class RivalMark(NodeFinding, frozen=True):
    """Another coordinator marked the node."""

    kind = ExclusionReason.RIVAL
    rival: Rival
    marks: tuple[str, ...]
    value: str
    commands: tuple[str, ...]


class RivalPod(NodeFinding, frozen=True):
    """The system-upgrade-controller works on the node."""

    kind = ExclusionReason.RIVAL
    rival: Rival
    pod: str


class RivalOnHost(NodeFinding, frozen=True):
    """A service on the host reboots it."""

    kind = ExclusionReason.RIVAL
    rival: Rival | SelfReboot
    strategy: str = ""


class CordonedByOther(NodeFinding, frozen=True):
    """Someone else cordoned the node, perhaps `mark`'s coordinator."""

    kind = ExclusionReason.CORDONED
    mark: RivalMark | None


class MaintainedByOther(NodeFinding, frozen=True):
    """Someone else drains or maintains the node."""

    kind = ExclusionReason.CORDONED
    condition: Lifecycle


class UnknownMark(NodeFinding, frozen=True):
    """This version does not know the annotation."""

    kind = ExclusionReason.UNKNOWN_MARKS
    annotation: str


class MissingMark(NodeFinding, frozen=True):
    """A begun node lacks the annotation."""

    kind = ExclusionReason.UNKNOWN_MARKS
    annotation: str


class InvalidMark(NodeFinding, frozen=True):
    """The annotation's value is invalid."""

    kind = ExclusionReason.UNKNOWN_MARKS
    annotation: str
    value: str


class NodePaused(NodeFinding, frozen=True):
    """`rollout pause` paused the node."""

    kind = ExclusionReason.PAUSED
    pause: Pause


class PausedByAnnotation(NodeFinding, frozen=True):
    """An annotation pauses the node."""

    kind = ExclusionReason.PAUSED
    annotation: str


class AllNodesPaused(NodeFinding, frozen=True):
    """`rollout pause --all` paused every node."""

    kind = ExclusionReason.PAUSED
    is_for_later = True
    pause: Pause


class NoHost(NodeFinding, frozen=True):
    """The inventory lacks the host."""

    kind = ExclusionReason.UNREACHABLE


class ProbeFailed(NodeFinding, frozen=True):
    """The host could not be read."""

    message: str
    hint: str
    brief: str


class HostUnreachable(ProbeFailed, frozen=True):
    """SSH failed."""

    kind = ExclusionReason.UNREACHABLE


class HostMismatch(ProbeFailed, frozen=True):
    """Another host answered."""

    kind = ExclusionReason.WRONG_HOST


class StatusUnreported(ProbeFailed, frozen=True):
    """The host reported no status."""

    kind = ExclusionReason.UNKNOWN_STATUS


class RebootNotNeeded(NodeFinding, frozen=True):
    """No source asks for a reboot."""

    kind = ExclusionReason.NO_UPDATE
    answers: tuple[str, ...]
    # The flag for sources that report one, or empty.
    detect_flag: str = ""
    may_reboot_idle: bool = False


class SourcesSilent(NodeFinding, frozen=True):
    """The sources do not know."""

    kind = ExclusionReason.UNKNOWN_STATUS
    answers: tuple[str, ...]
    unasked_sources: tuple[Source, ...] = ()
    detect_flag: str = ""
    lacks_engine: bool = False


class OtherVersionRuns(NodeFinding, frozen=True):
    """The rollback's version does not run."""

    kind = ExclusionReason.NO_UPDATE
    running: str
    version: str


class NoPreviousVersion(NodeFinding, frozen=True):
    """The host has no earlier version."""

    kind = ExclusionReason.NO_PREVIOUS_VERSION
    answer: str


class PreviousVersionUnknown(NodeFinding, frozen=True):
    """The host's earlier version is unknown."""

    kind = ExclusionReason.UNKNOWN_STATUS
    answer: str
    user: str


class PreviousVersionChanged(NodeFinding, frozen=True):
    """The earlier version is not as planned."""

    kind = ExclusionReason.NO_PREVIOUS_VERSION
    planned: str
    version: str


class HeldVersion(NodeFinding, frozen=True):
    """The version is held."""

    kind = ExclusionReason.VERSION_HELD
    version: str
    # Empty if all failed nodes succeeded later.
    nodes: tuple[str, ...]
    # When it last failed, or was held by someone.
    at: str
    # Empty if failures hold it.
    by: str = ""


class UncountedVersion(NodeFinding, frozen=True):
    """The memory has no room for the version."""

    kind = ExclusionReason.VERSION_HELD
    version: str
    others: int


class MaybeHeldVersion(NodeFinding, frozen=True):
    """The unknown staged version may be held."""

    kind = ExclusionReason.VERSION_HELD
    held: HeldVersion | UncountedVersion

    @property
    def version(self) -> str:
        """Return the held version."""
        return self.held.version


def held_version(finding: Finding | None) -> str:
    """Return the finding's held version, or empty."""
    if isinstance(finding, HeldVersion | UncountedVersion | MaybeHeldVersion):
        return finding.version
    return ""


class NoEvidence(NodeFinding, frozen=True):
    """`cluster` lacks proof of the version."""

    kind = ExclusionReason.UNPROVEN
    # Empty if unknown.
    version: str
    cluster: str
    versions_with_evidence: tuple[str, ...]
    why_others_rejected: tuple[str, ...]


class Shortfall(NamedTuple):
    """A count, and how many are needed."""

    reached: int
    needed: int


class EvidenceShort(NodeFinding, frozen=True):
    """`cluster` has too little proof, or failures."""

    kind = ExclusionReason.UNPROVEN
    version: str
    cluster: str
    failed: Mapping[str, str]
    # None if enough.
    nodes: Shortfall | None
    hours: Shortfall | None


class NodeBackingOff(NodeFinding, frozen=True):
    """The node is not retried before `until`."""

    kind = ExclusionReason.FAILED_RECENTLY
    node: str
    failures: NodeFailures
    until: str


class NoSudo(NodeFinding, frozen=True):
    """The SSH user may not reboot."""

    kind = ExclusionReason.NO_SUDO
    user: str
    refusal: str


class ShutdownInhibited(NodeFinding, frozen=True):
    """`holder` blocks the shutdown through systemd-inhibit."""

    kind = ExclusionReason.INHIBITED
    holder: str


class RebootBlocked(NodeFinding, frozen=True):
    """A source forbids the reboot."""

    kind = ExclusionReason.INHIBITED
    answer: str


class ShutdownScheduled(NodeFinding, frozen=True):
    """A shutdown is scheduled."""

    kind = ExclusionReason.SHUTDOWN_PENDING
    schedule: str


class OwnNodeOnly(NodeFinding, frozen=True):
    """rollout's own pod fits nowhere else."""

    kind = ExclusionReason.OWN_NODE
    pod: str


class OwnNodeDeferred(NodeFinding, frozen=True):
    """The next run takes rollout's own node."""

    kind = ExclusionReason.DEFERRED
    pod: str


class DrainBlocked(NodeFinding, frozen=True):
    """`--skip blocked` left the node out."""

    kind = ExclusionReason.BLOCKED
    object: str
    message: str


class StillRunning(NodeFinding, frozen=True):
    """Pods have not completed within `timeout`."""

    kind = ExclusionReason.STILL_RUNNING
    is_for_later = True
    # By Job or pod, in whole minutes; None in the first.
    ran: Mapping[str, Duration | None]
    timeout: Duration


class StartKind(StrEnum):
    """Why nodes were not started; enumerated values."""

    WINDOW = "window"
    DEADLINE = "deadline"
    MEMORY = "memory"
    BLOCKING_POD = "blocking-pod"
    BLOCKED = "blocked"
    ALERT = "alert"
    HEALTH = "health"
    COMMAND = "command"
    NOT_CONFIRMED = "not-confirmed"
    STOPPED = "stopped"
    LOCK_LOST = "lease-lost"
    MAX_FAILURES = "max-failures"
    MAX_UNAVAILABLE = "max-unavailable"
    UNSETTLED = "unsettled"
    API_UNAVAILABLE = "api-unavailable"


class StartFinding(Finding, frozen=True):
    """Why a node, a wave or the rest waits."""

    kind: ClassVar[StartKind]


class WindowClosed(StartFinding, frozen=True):
    """No window is open, or a freeze applies."""

    kind = StartKind.WINDOW
    is_for_later = True
    freezes: tuple[str, ...]
    opens: str


class NoWindowAhead(StartFinding, frozen=True):
    """No window opens within two years."""

    kind = StartKind.WINDOW
    freezes: tuple[str, ...]


class WindowTooShort(StartFinding, frozen=True):
    """The window ends too soon."""

    kind = StartKind.WINDOW
    is_for_later = True
    left: Duration
    needed: Duration
    ends_in_freeze: bool
    # Empty if none opens within two years.
    opens: str


class NoWindowFits(StartFinding, frozen=True):
    """No window is long enough."""

    kind = StartKind.WINDOW
    needed: Duration


class DeadlineTooNear(StartFinding, frozen=True):
    """The node would end after --active-deadline."""

    kind = StartKind.DEADLINE
    is_for_later = True
    left: Duration
    needed: Duration


class MemoryUnreadable(StartFinding, frozen=True):
    """The memory cannot be read."""

    kind = StartKind.MEMORY
    problem: str


class MemoryUnwritable(StartFinding, frozen=True):
    """A failure could not be remembered."""

    kind = StartKind.MEMORY
    problem: str


class BlockingPods(StartFinding, frozen=True):
    """Pods match gates.blocking-pod-selector."""

    kind = StartKind.BLOCKING_POD
    pods: tuple[str, ...]
    selector: str


class BlockedNow(StartFinding, frozen=True):
    """The plan did not have this blocker."""

    kind = StartKind.BLOCKED
    object: str
    message: str


class ControllerMoving(StartFinding, frozen=True):
    """The controller must first leave `node`."""

    kind = StartKind.BLOCKED
    controller: str
    node: str


class AlertsFiring(StartFinding, frozen=True):
    """Prometheus has these alerts."""

    kind = StartKind.ALERT
    names: tuple[str, ...]


class AlertsUnreadable(StartFinding, frozen=True):
    """Prometheus could not be read."""

    kind = StartKind.ALERT
    problem: str


class AlertsNotAsked(StartFinding, frozen=True):
    """This process does not ask the rules' Prometheus."""

    kind = StartKind.ALERT
    is_for_later = True
    url: str


class ObjectUnhealthy(StartFinding, frozen=True):
    """A gates.healthy expression is false."""

    kind = StartKind.HEALTH
    resource: str
    expression: str


class ObjectHealthUnknown(StartFinding, frozen=True):
    """The object or its health cannot be read."""

    kind = StartKind.HEALTH
    resource: str
    problem: str


class GateTimeout(Finding, frozen=True):
    """A gate has held longer than gates.timeout."""

    is_for_later = True
    held: Finding
    timeout: Duration

    @property
    def kind(self) -> StrEnum:  # type: ignore[override]
        """Return the kind of `held`."""
        return self.held.kind


class WaveNotConfirmed(StartFinding, frozen=True):
    """The operator did not confirm."""

    kind = StartKind.NOT_CONFIRMED
    wave: int


class CommandRefused(StartFinding, frozen=True):
    """gates.command refused, with this answer."""

    kind = StartKind.COMMAND
    answer: str


class StopRequested(StartFinding, frozen=True):
    """Someone stopped the rollout."""

    kind = StartKind.STOPPED


class DeadlineReached(StartFinding, frozen=True):
    """--active-deadline is over."""

    kind = StartKind.STOPPED


class LockLost(StartFinding, frozen=True):
    """This process lost the lock."""

    kind = StartKind.LOCK_LOST


class NodeMarkedByOther(StartFinding, frozen=True):
    """Another rollout marked a node, despite our lock."""

    # The published word is older than this reason.
    kind = StartKind.LOCK_LOST
    node: str
    run_id: str


class FailureLimit(StartFinding, frozen=True):
    """--max-failures nodes have failed."""

    kind = StartKind.MAX_FAILURES
    failed: int
    limit: int


class UnavailableLimit(StartFinding, frozen=True):
    """These nodes use up --max-unavailable, or the limit of `pool`."""

    kind = StartKind.MAX_UNAVAILABLE
    limit: int
    nodes: tuple[str, ...]
    pool: str = ""


class Unsettled(StartFinding, frozen=True):
    """The cluster did not settle in time."""

    kind = StartKind.UNSETTLED
    timeout: Duration
    missing: str
    node: str = ""
    wave: int = 0


class ApiUnavailable(StartFinding, frozen=True):
    """The API server did not respond."""

    kind = StartKind.API_UNAVAILABLE
    message: str


class RestBlocked(StartFinding, frozen=True):
    """Only begun nodes were finished."""

    kind = StartKind.BLOCKED
    message: str
