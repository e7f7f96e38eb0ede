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
from rollout.model.rivals import Rival, SelfReboot


@dataclass(frozen=True, slots=True)
class Finding:
    """A reason. Its `kind` is the published word for it."""

    kind: ClassVar[StrEnum]


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
