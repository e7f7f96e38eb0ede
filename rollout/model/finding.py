"""Reasons to leave a node out, to block or warn, to hold, refuse, skip or fail.

A finding is one class for each kind of reason. Its fields are the values of the cause: nothing in
the program reads them out of a sentence. `rollout.wording` makes the sentence and names the fix.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from rollout.model.detection import Source
from rollout.model.memory import NodeFailures, Pause
from rollout.model.plan import ExclusionReason
from rollout.model.quantity import Duration
from rollout.model.rivals import Rival, SelfReboot


@dataclass(frozen=True, slots=True)
class Finding:
    """A reason. Its `kind` is the published word for it.

    `passes`: it passes by itself, or people end it, and a later run may start the node.
    """

    kind: ClassVar[StrEnum]
    passes: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class NodeFinding(Finding):
    """A reason why a node is not part of a plan, or may not be rebooted now."""

    kind: ClassVar[ExclusionReason]


@dataclass(frozen=True, slots=True)
class ExcludedByFlag(NodeFinding):
    """`flag` is the flag with its value, if it has one."""

    kind = ExclusionReason.EXCLUDED
    flag: str


@dataclass(frozen=True, slots=True)
class VirtualNode(NodeFinding):
    """No host of its own is behind the Node."""

    kind = ExclusionReason.UNSUPPORTED


@dataclass(frozen=True, slots=True)
class OtherSystem(NodeFinding):
    """The host runs an operating system that rollout does not reboot, such as Windows."""

    kind = ExclusionReason.UNSUPPORTED
    system: str


@dataclass(frozen=True, slots=True)
class NodeDeleting(NodeFinding):
    """The Node is being deleted."""

    kind = ExclusionReason.DELETING


@dataclass(frozen=True, slots=True)
class NodeLeaving(NodeFinding):
    """`remover` is about to remove the machine, as its `taint` says."""

    kind = ExclusionReason.DELETING
    remover: str
    taint: str


@dataclass(frozen=True, slots=True)
class NodeNotReady(NodeFinding):
    """`is_silent`: the kubelet no longer reports. `message` is the Ready condition's."""

    kind = ExclusionReason.NOT_READY
    is_silent: bool
    message: str


@dataclass(frozen=True, slots=True)
class LeftCordoned(NodeFinding):
    """An unfinished rollout cordoned the node; `phase` is as its annotation has it."""

    kind = ExclusionReason.LEFT_CORDONED
    run: str
    phase: str


@dataclass(frozen=True, slots=True)
class RivalMark(NodeFinding):
    """Marks on the Node say that another coordinator works on it.

    `marks` are annotations and labels, `value` is that of the only one if the value matters.
    `commands` remove the marks.
    """

    kind = ExclusionReason.RIVAL
    rival: Rival
    marks: tuple[str, ...]
    value: str
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RivalPod(NodeFinding):
    """The system-upgrade-controller works on the node with this pod."""

    kind = ExclusionReason.RIVAL
    rival: Rival
    pod: str


@dataclass(frozen=True, slots=True)
class RivalOnHost(NodeFinding):
    """A service on the host reboots it; `strategy` is Zincati's, empty for others."""

    kind = ExclusionReason.RIVAL
    rival: Rival | SelfReboot
    strategy: str = ""


@dataclass(frozen=True, slots=True)
class CordonedByOther(NodeFinding):
    """Someone else cordoned the node; `mark` is that of a coordinator, if it has one."""

    kind = ExclusionReason.CORDONED
    mark: RivalMark | None


@dataclass(frozen=True, slots=True)
class UnknownMark(NodeFinding):
    """An annotation with rollout's prefix that this version does not know."""

    kind = ExclusionReason.UNKNOWN_MARKS
    annotation: str


@dataclass(frozen=True, slots=True)
class MissingMark(NodeFinding):
    """A begun node lacks an annotation that rollout always writes."""

    kind = ExclusionReason.UNKNOWN_MARKS
    annotation: str


@dataclass(frozen=True, slots=True)
class InvalidMark(NodeFinding):
    """An annotation of rollout has a value that this version does not understand."""

    kind = ExclusionReason.UNKNOWN_MARKS
    annotation: str
    value: str


@dataclass(frozen=True, slots=True)
class NodePaused(NodeFinding):
    """`rollout pause` paused the node."""

    kind = ExclusionReason.PAUSED
    pause: Pause


@dataclass(frozen=True, slots=True)
class PausedByAnnotation(NodeFinding):
    """An annotation pauses the node, without saying who set it."""

    kind = ExclusionReason.PAUSED
    annotation: str


@dataclass(frozen=True, slots=True)
class AllNodesPaused(NodeFinding):
    """`rollout pause --all` paused every node."""

    kind = ExclusionReason.PAUSED
    passes = True
    pause: Pause


@dataclass(frozen=True, slots=True)
class NoHost(NodeFinding):
    """The inventory has no host for the Node."""

    kind = ExclusionReason.UNREACHABLE


@dataclass(frozen=True, slots=True)
class ProbeFailed(NodeFinding):
    """The host gave no facts; `message`, `hint` and `brief` are those of the probe."""

    message: str
    hint: str
    brief: str


@dataclass(frozen=True, slots=True)
class HostUnreachable(ProbeFailed):
    """SSH to the host failed."""

    kind = ExclusionReason.UNREACHABLE


@dataclass(frozen=True, slots=True)
class HostMismatch(ProbeFailed):
    """The host that answered is not the Node's."""

    kind = ExclusionReason.WRONG_HOST


@dataclass(frozen=True, slots=True)
class StatusUnreported(ProbeFailed):
    """The host answered, and did not say whether it needs a reboot."""

    kind = ExclusionReason.UNKNOWN_STATUS


@dataclass(frozen=True, slots=True)
class RebootNotNeeded(NodeFinding):
    """`answers` are what the sources say; they are empty if no source is asked.

    `detect_flag` asks sources that do report a reboot. `may_reboot_idle`: `--allow idle` would
    reboot the host.
    """

    kind = ExclusionReason.NO_UPDATE
    answers: tuple[str, ...]
    detect_flag: str = ""
    may_reboot_idle: bool = False


@dataclass(frozen=True, slots=True)
class SourcesSilent(NodeFinding):
    """`answers` are those of the sources that did not say whether a reboot is needed.

    `shows` are sources that the host has and that were not asked; `detect_flag` asks them.
    `lacks_engine`: the host has no update engine.
    """

    kind = ExclusionReason.UNKNOWN_STATUS
    answers: tuple[str, ...]
    shows: tuple[Source, ...] = ()
    detect_flag: str = ""
    lacks_engine: bool = False


@dataclass(frozen=True, slots=True)
class HeldVersion(NodeFinding):
    """The version failed on `nodes`, last `at`; `nodes` is empty if all have succeeded since."""

    kind = ExclusionReason.VERSION_HELD
    version: str
    nodes: tuple[str, ...]
    at: str


@dataclass(frozen=True, slots=True)
class UncountedVersion(NodeFinding):
    """Failures of the version cannot be remembered, because `others` versions are held."""

    kind = ExclusionReason.VERSION_HELD
    version: str
    others: int


@dataclass(frozen=True, slots=True)
class MaybeHeldVersion(NodeFinding):
    """The host does not tell its staged version, which may be a held one."""

    kind = ExclusionReason.VERSION_HELD
    held: HeldVersion | UncountedVersion

    @property
    def version(self) -> str:
        """Return the held version."""
        return self.held.version


def held_version(finding: Finding | None) -> str:
    """Return the version whose hold the finding is about; empty for other findings."""
    if isinstance(finding, HeldVersion | UncountedVersion | MaybeHeldVersion):
        return finding.version
    return ""


@dataclass(frozen=True, slots=True)
class NoEvidence(NodeFinding):
    """`cluster` has not proved the version, which is empty if the host does not tell it.

    `known` are versions with evidence; `problems` say why other evidence does not count.
    """

    kind = ExclusionReason.UNPROVEN
    version: str
    cluster: str
    known: tuple[str, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EvidenceShort(NodeFinding):
    """`cluster` has proved the version on too few nodes, for too few hours, or with failures.

    `failed` are the nodes that failed there, each with the reason. A count that is enough is None.
    """

    kind = ExclusionReason.UNPROVEN
    version: str
    cluster: str
    failed: Mapping[str, str]
    nodes: tuple[int, int] | None
    hours: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class NodeResting(NodeFinding):
    """The node failed, and is not tried again before `until`."""

    kind = ExclusionReason.FAILED_RECENTLY
    node: str
    failures: NodeFailures
    until: str


@dataclass(frozen=True, slots=True)
class NoSudo(NodeFinding):
    """`user` may not reboot the host; `refusal` is what sudo said, if anything."""

    kind = ExclusionReason.NO_SUDO
    user: str
    refusal: str


@dataclass(frozen=True, slots=True)
class ShutdownInhibited(NodeFinding):
    """`holder` blocks the shutdown through systemd-inhibit."""

    kind = ExclusionReason.INHIBITED
    holder: str


@dataclass(frozen=True, slots=True)
class RebootBlocked(NodeFinding):
    """A source forbids the reboot; `answer` is what it said."""

    kind = ExclusionReason.INHIBITED
    answer: str


@dataclass(frozen=True, slots=True)
class ShutdownScheduled(NodeFinding):
    """The host has scheduled a shutdown; `schedule` is as it describes it."""

    kind = ExclusionReason.SHUTDOWN_PENDING
    schedule: str


@dataclass(frozen=True, slots=True)
class OwnNodeOnly(NodeFinding):
    """This process runs on the node, in `pod`, which no other node would take."""

    kind = ExclusionReason.OWN_NODE
    pod: str


@dataclass(frozen=True, slots=True)
class OwnNodeDeferred(NodeFinding):
    """This process runs on the node, in `pod`; the next run takes the node, from elsewhere."""

    kind = ExclusionReason.DEFERRED
    pod: str


@dataclass(frozen=True, slots=True)
class DrainBlocked(NodeFinding):
    """`--skip blocked` left the node out because of this blocker."""

    kind = ExclusionReason.BLOCKED
    object: str
    message: str


class StartKind(StrEnum):
    """Why a planned node was not started, or the rollout started no further node; fixed words."""

    WINDOW = "window"
    DEADLINE = "deadline"
    MEMORY = "memory"
    BLOCKING_POD = "blocking-pod"
    BLOCKED = "blocked"
    ALERT = "alert"
    COMMAND = "command"
    NOT_CONFIRMED = "not-confirmed"
    STOPPED = "stopped"
    LEASE_LOST = "lease-lost"
    MAX_FAILURES = "max-failures"
    MAX_UNAVAILABLE = "max-unavailable"
    UNSETTLED = "unsettled"
    API_UNAVAILABLE = "api-unavailable"


@dataclass(frozen=True, slots=True)
class StartFinding(Finding):
    """A reason not to start a planned node now, a wave, or the rest of a rollout."""

    kind: ClassVar[StartKind]


@dataclass(frozen=True, slots=True)
class WindowClosed(StartFinding):
    """No maintenance window is open, or a freeze holds.

    `opens` is when the next one opens, empty for never.
    """

    kind = StartKind.WINDOW
    passes = True
    freezes: tuple[str, ...]
    opens: str


@dataclass(frozen=True, slots=True)
class WindowTooShort(StartFinding):
    """Less time is left in the window, or before the freeze, than the node is estimated to take."""

    kind = StartKind.WINDOW
    passes = True
    left: Duration
    needed: Duration
    ends_in_freeze: bool
    opens: str


@dataclass(frozen=True, slots=True)
class NoWindowFits(StartFinding):
    """The node is estimated to take longer than any maintenance window."""

    kind = StartKind.WINDOW
    needed: Duration


@dataclass(frozen=True, slots=True)
class DeadlineTooNear(StartFinding):
    """Less time is left until --active-deadline than the node is estimated to take."""

    kind = StartKind.DEADLINE
    passes = True
    left: Duration
    needed: Duration


@dataclass(frozen=True, slots=True)
class MemoryUnreadable(StartFinding):
    """What earlier rollouts remembered cannot be read."""

    kind = StartKind.MEMORY
    problem: str


@dataclass(frozen=True, slots=True)
class MemoryUnwritable(StartFinding):
    """A failure of the node could not be remembered."""

    kind = StartKind.MEMORY
    problem: str


@dataclass(frozen=True, slots=True)
class BlockingPods(StartFinding):
    """Pods that match gates.blocking-pod-selector run on the node."""

    kind = StartKind.BLOCKING_POD
    pods: tuple[str, ...]
    selector: str


@dataclass(frozen=True, slots=True)
class BlockedNow(StartFinding):
    """A blocker that the plan did not have."""

    kind = StartKind.BLOCKED
    object: str
    message: str


@dataclass(frozen=True, slots=True)
class AlertsFiring(StartFinding):
    """Prometheus has these alerts."""

    kind = StartKind.ALERT
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AlertsUnreadable(StartFinding):
    """Prometheus could not be asked."""

    kind = StartKind.ALERT
    problem: str


@dataclass(frozen=True, slots=True)
class AlertsNotAsked(StartFinding):
    """The rules want alerts of a server that this process does not ask."""

    kind = StartKind.ALERT
    passes = True
    url: str


@dataclass(frozen=True, slots=True)
class GateTimeout(Finding):
    """A gate has held the node for longer than gates.timeout."""

    passes = True
    held: Finding
    timeout: Duration

    @property
    def kind(self) -> StrEnum:  # type: ignore[override]
        """Return the kind of what holds the node."""
        return self.held.kind


@dataclass(frozen=True, slots=True)
class WaveNotConfirmed(StartFinding):
    """Someone was asked and did not confirm the wave."""

    kind = StartKind.NOT_CONFIRMED
    wave: int


@dataclass(frozen=True, slots=True)
class CommandRefused(StartFinding):
    """gates.command did not let the rollout pass; `answer` says why."""

    kind = StartKind.COMMAND
    answer: str


@dataclass(frozen=True, slots=True)
class StopRequested(StartFinding):
    """Someone asked the rollout to stop."""

    kind = StartKind.STOPPED


@dataclass(frozen=True, slots=True)
class DeadlineReached(StartFinding):
    """The time of --active-deadline is up."""

    kind = StartKind.STOPPED


@dataclass(frozen=True, slots=True)
class LeaseLost(StartFinding):
    """This process no longer holds the Lease."""

    kind = StartKind.LEASE_LOST


@dataclass(frozen=True, slots=True)
class FailureLimit(StartFinding):
    """As many nodes have failed as --max-failures allows."""

    kind = StartKind.MAX_FAILURES
    failed: int
    limit: int


@dataclass(frozen=True, slots=True)
class UnavailableLimit(StartFinding):
    """These nodes use up --max-unavailable, or that of a `pool`."""

    kind = StartKind.MAX_UNAVAILABLE
    limit: int
    nodes: tuple[str, ...]
    pool: str = ""


@dataclass(frozen=True, slots=True)
class Unsettled(StartFinding):
    """The cluster did not settle in time. `node` or `wave` is what it had to settle after."""

    kind = StartKind.UNSETTLED
    timeout: Duration
    missing: str
    node: str = ""
    wave: int = 0


@dataclass(frozen=True, slots=True)
class ApiUnavailable(StartFinding):
    """The API server did not answer."""

    kind = StartKind.API_UNAVAILABLE
    message: str


@dataclass(frozen=True, slots=True)
class RestBlocked(StartFinding):
    """Only nodes that were begun are finished; `message` says what blocks the others."""

    kind = StartKind.BLOCKED
    message: str
