"""Findings: typed reasons to leave out, block, warn, hold, refuse, skip or fail."""

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
    """A reason, with the values that its sentence needs."""

    # The word in JSON.
    kind: ClassVar[StrEnum]
    # A later run may start the node.
    is_for_later: ClassVar[bool] = False


class NodeFinding(Finding, frozen=True):
    """Why a node is not in a plan, or may not reboot now."""

    kind: ClassVar[ExclusionReason]


class ExcludedByFlag(NodeFinding, frozen=True):
    """The operator excluded the node."""

    kind = ExclusionReason.EXCLUDED
    flag: str


class VirtualNode(NodeFinding, frozen=True):
    """The Node has no host."""

    kind = ExclusionReason.UNSUPPORTED


class OtherSystem(NodeFinding, frozen=True):
    """rollout does not reboot this operating system."""

    kind = ExclusionReason.UNSUPPORTED
    system: str


class NodeDeleting(NodeFinding, frozen=True):
    """The Node is being deleted."""

    kind = ExclusionReason.DELETING


class NodeLeaving(NodeFinding, frozen=True):
    """`remover` is about to remove the machine, as its taint says."""

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
    """Annotations or labels show that another coordinator works on the node."""

    kind = ExclusionReason.RIVAL
    rival: Rival
    marks: tuple[str, ...]
    # The value of a single mark, if it matters.
    value: str
    commands: tuple[str, ...]


class RivalPod(NodeFinding, frozen=True):
    """A pod of the system-upgrade-controller works on the node."""

    kind = ExclusionReason.RIVAL
    rival: Rival
    pod: str


class RivalOnHost(NodeFinding, frozen=True):
    """A service on the host reboots it."""

    kind = ExclusionReason.RIVAL
    rival: Rival | SelfReboot
    strategy: str = ""


class CordonedByOther(NodeFinding, frozen=True):
    """Someone else cordoned the node, perhaps the coordinator of `mark`."""

    kind = ExclusionReason.CORDONED
    mark: RivalMark | None


class MaintainedByOther(NodeFinding, frozen=True):
    """Someone else drains or maintains the node."""

    kind = ExclusionReason.CORDONED
    condition: Lifecycle


class UnknownMark(NodeFinding, frozen=True):
    """This version does not know an annotation of rollout."""

    kind = ExclusionReason.UNKNOWN_MARKS
    annotation: str


class MissingMark(NodeFinding, frozen=True):
    """A begun node lacks an annotation that rollout always writes."""

    kind = ExclusionReason.UNKNOWN_MARKS
    annotation: str


class InvalidMark(NodeFinding, frozen=True):
    """An annotation of rollout has an invalid value."""

    kind = ExclusionReason.UNKNOWN_MARKS
    annotation: str
    value: str


class NodePaused(NodeFinding, frozen=True):
    """`rollout pause` paused the node."""

    kind = ExclusionReason.PAUSED
    pause: Pause


class PausedByAnnotation(NodeFinding, frozen=True):
    """An annotation pauses the node; who set it is unknown."""

    kind = ExclusionReason.PAUSED
    annotation: str


class AllNodesPaused(NodeFinding, frozen=True):
    """`rollout pause --all` paused every node."""

    kind = ExclusionReason.PAUSED
    is_for_later = True
    pause: Pause


class NoHost(NodeFinding, frozen=True):
    """The inventory has no host for the Node."""

    kind = ExclusionReason.UNREACHABLE


class ProbeFailed(NodeFinding, frozen=True):
    """The host could not be read."""

    message: str
    hint: str
    brief: str


class HostUnreachable(ProbeFailed, frozen=True):
    """SSH to the host failed."""

    kind = ExclusionReason.UNREACHABLE


class HostMismatch(ProbeFailed, frozen=True):
    """The host that answered is not the Node's."""

    kind = ExclusionReason.WRONG_HOST


class StatusUnreported(ProbeFailed, frozen=True):
    """The host did not say whether it needs a reboot."""

    kind = ExclusionReason.UNKNOWN_STATUS


class RebootNotNeeded(NodeFinding, frozen=True):
    """No source that was asked reports that a reboot is needed."""

    kind = ExclusionReason.NO_UPDATE
    answers: tuple[str, ...]
    # The flag that asks sources which report a reboot, or empty.
    detect_flag: str = ""
    # `--allow idle` would reboot the host.
    may_reboot_idle: bool = False


class SourcesSilent(NodeFinding, frozen=True):
    """The sources that were asked do not know whether a reboot is needed."""

    kind = ExclusionReason.UNKNOWN_STATUS
    answers: tuple[str, ...]
    unasked_sources: tuple[Source, ...] = ()
    # The flag that asks these sources, too.
    detect_flag: str = ""
    lacks_engine: bool = False


class OtherVersionRuns(NodeFinding, frozen=True):
    """The host does not run the version of the rollback."""

    kind = ExclusionReason.NO_UPDATE
    running: str
    version: str


class NoPreviousVersion(NodeFinding, frozen=True):
    """The host cannot boot an earlier version."""

    kind = ExclusionReason.NO_PREVIOUS_VERSION
    answer: str


class PreviousVersionUnknown(NodeFinding, frozen=True):
    """The host's earlier version is unknown."""

    kind = ExclusionReason.UNKNOWN_STATUS
    answer: str
    # The SSH user, who may lack the rights to find out.
    user: str


class PreviousVersionChanged(NodeFinding, frozen=True):
    """The host would return to another version than planned."""

    kind = ExclusionReason.NO_PREVIOUS_VERSION
    planned: str
    version: str


class HeldVersion(NodeFinding, frozen=True):
    """The version is held."""

    kind = ExclusionReason.VERSION_HELD
    version: str
    # The nodes on which it failed; none if all of them succeeded later.
    nodes: tuple[str, ...]
    # The last failure, or when someone's hold began.
    at: str
    # Who holds it; empty if its failures do.
    by: str = ""


class UncountedVersion(NodeFinding, frozen=True):
    """Failures of the version cannot be remembered, because too many others are held."""

    kind = ExclusionReason.VERSION_HELD
    version: str
    # How many other versions are held.
    others: int


class MaybeHeldVersion(NodeFinding, frozen=True):
    """The unknown staged version may be a held one."""

    kind = ExclusionReason.VERSION_HELD
    held: HeldVersion | UncountedVersion

    @property
    def version(self) -> str:
        """Return the held version."""
        return self.held.version


def held_version(finding: Finding | None) -> str:
    """Return the version that the finding holds, or empty."""
    if isinstance(finding, HeldVersion | UncountedVersion | MaybeHeldVersion):
        return finding.version
    return ""


class NoEvidence(NodeFinding, frozen=True):
    """`cluster` has not proved the version."""

    kind = ExclusionReason.UNPROVEN
    # Empty if unknown.
    version: str
    cluster: str
    versions_with_evidence: tuple[str, ...]
    # Why other evidence does not count.
    why_others_rejected: tuple[str, ...]


class Shortfall(NamedTuple):
    """How many there are, and have to be."""

    reached: int
    needed: int


class EvidenceShort(NodeFinding, frozen=True):
    """`cluster` proved the version on too few nodes, for too few hours, or with failures."""

    kind = ExclusionReason.UNPROVEN
    version: str
    cluster: str
    # Reasons by node.
    failed: Mapping[str, str]
    # Of nodes that have proved the version, and of hours since then; None if enough.
    nodes: Shortfall | None
    hours: Shortfall | None


class NodeBackingOff(NodeFinding, frozen=True):
    """The node failed, and is not tried again before `until`."""

    kind = ExclusionReason.FAILED_RECENTLY
    node: str
    failures: NodeFailures
    until: str


class NoSudo(NodeFinding, frozen=True):
    """The SSH user may not reboot the host."""

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
    """A shutdown is scheduled on the host."""

    kind = ExclusionReason.SHUTDOWN_PENDING
    schedule: str


class OwnNodeOnly(NodeFinding, frozen=True):
    """rollout runs on the node, in a pod that fits nowhere else."""

    kind = ExclusionReason.OWN_NODE
    pod: str


class OwnNodeDeferred(NodeFinding, frozen=True):
    """rollout runs on the node; the next run takes it, from elsewhere."""

    kind = ExclusionReason.DEFERRED
    pod: str


class DrainBlocked(NodeFinding, frozen=True):
    """`--skip blocked` left the node out."""

    kind = ExclusionReason.BLOCKED
    object: str
    message: str


class StillRunning(NodeFinding, frozen=True):
    """Pods of the node have not completed within `timeout`."""

    kind = ExclusionReason.STILL_RUNNING
    is_for_later = True
    # How long each Job or pod has run, in whole minutes; None in the first.
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
    """A reason not to start a node, a wave, or the rest."""

    kind: ClassVar[StartKind]


class WindowClosed(StartFinding, frozen=True):
    """No window is open, or it is the time of a freeze."""

    kind = StartKind.WINDOW
    is_for_later = True
    freezes: tuple[str, ...]
    opens: str


class NoWindowAhead(StartFinding, frozen=True):
    """No window is open or opens within two years."""

    kind = StartKind.WINDOW
    freezes: tuple[str, ...]


class WindowTooShort(StartFinding, frozen=True):
    """The node needs longer than the window has left."""

    kind = StartKind.WINDOW
    is_for_later = True
    left: Duration
    needed: Duration
    ends_in_freeze: bool
    # Empty if no window opens within two years.
    opens: str


class NoWindowFits(StartFinding, frozen=True):
    """The node needs longer than any window."""

    kind = StartKind.WINDOW
    needed: Duration


class DeadlineTooNear(StartFinding, frozen=True):
    """The node would end after --active-deadline."""

    kind = StartKind.DEADLINE
    is_for_later = True
    left: Duration
    needed: Duration


class MemoryUnreadable(StartFinding, frozen=True):
    """The failure memory cannot be read."""

    kind = StartKind.MEMORY
    problem: str


class MemoryUnwritable(StartFinding, frozen=True):
    """A failure of the node could not be remembered."""

    kind = StartKind.MEMORY
    problem: str


class BlockingPods(StartFinding, frozen=True):
    """Pods of gates.blocking-pod-selector run on the node."""

    kind = StartKind.BLOCKING_POD
    pods: tuple[str, ...]
    selector: str


class BlockedNow(StartFinding, frozen=True):
    """A blocker that the plan did not have."""

    kind = StartKind.BLOCKED
    object: str
    message: str


class ControllerMoving(StartFinding, frozen=True):
    """A controller must first move its pods off another node in flight."""

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
    """The rules name a Prometheus that this process does not ask."""

    kind = StartKind.ALERT
    is_for_later = True
    url: str


class ObjectUnhealthy(StartFinding, frozen=True):
    """A gates.healthy expression is false."""

    kind = StartKind.HEALTH
    resource: str
    expression: str


class ObjectHealthUnknown(StartFinding, frozen=True):
    """An object of gates.healthy is unreadable, or its expression has no answer."""

    kind = StartKind.HEALTH
    resource: str
    problem: str


class GateTimeout(Finding, frozen=True):
    """A gate has held the node for longer than gates.timeout."""

    is_for_later = True
    held: Finding
    timeout: Duration

    @property
    def kind(self) -> StrEnum:  # type: ignore[override]
        """Return the kind of what holds the node."""
        return self.held.kind


class WaveNotConfirmed(StartFinding, frozen=True):
    """Someone was asked and did not confirm."""

    kind = StartKind.NOT_CONFIRMED
    wave: int


class CommandRefused(StartFinding, frozen=True):
    """gates.command holds the rollout, with this answer."""

    kind = StartKind.COMMAND
    answer: str


class StopRequested(StartFinding, frozen=True):
    """Someone asked the rollout to stop."""

    kind = StartKind.STOPPED


class DeadlineReached(StartFinding, frozen=True):
    """The time of --active-deadline is up."""

    kind = StartKind.STOPPED


class LockLost(StartFinding, frozen=True):
    """This process no longer holds the lock."""

    kind = StartKind.LOCK_LOST


class NodeMarkedByOther(StartFinding, frozen=True):
    """Another rollout has marked a node that this one has started, although it holds the lock."""

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
    """Only nodes that had begun were finished, for this reason."""

    kind = StartKind.BLOCKED
    message: str
