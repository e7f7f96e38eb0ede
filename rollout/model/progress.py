"""What happens during a rollout, as values that observers turn into progress, JSON lines and reports.

Events that are Structs are JSON lines as they stand: their fields are published, and read again
from journals. What each field means is said where it is published: docs/json.md.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from rollout.model.finding import Finding, held_version
from rollout.model.plan import Exclusion, ExclusionReason, RolloutPlan

Moment = Annotated[datetime, Meta(tz=True, description="RFC 3339, UTC")]


class Phase(StrEnum):
    """Where a node stands; the words are what its `phase` annotation says."""

    PENDING = "pending"
    CORDONED = "cordoned"
    DRAINING = "draining"
    DRAINED = "drained"
    REBOOTING = "rebooting"
    BOOTED = "booted"
    READY = "ready"
    DONE = "done"
    FAILED = "failed"


class Edge(StrEnum):
    """A move of a node from one phase to another. `execution/node/transitions` has the table."""

    CORDONED = "cordoned"
    DRAIN_STARTED = "drain-started"
    EVICTED = "evicted"
    REBOOT_REQUESTED = "reboot-requested"
    BOOTED = "booted"
    READY = "ready"
    PROVEN = "proven"
    REFILLED = "refilled"
    RESTAGED = "restaged"
    RETURNED = "returned"
    FAILED = "failed"
    TAKEN_UP = "taken-up"
    TAKEN_UP_UNCORDONED = "taken-up-uncordoned"
    TAKEN_UP_REBOOTING = "taken-up-rebooting"


class Outcome(StrEnum):
    """How a node's run ended."""

    SUCCEEDED = "succeeded"
    DRAIN_FAILED = "drain-failed"
    REBOOT_REFUSED = "reboot-refused"
    NOT_REBOOTED = "not-rebooted"
    NOT_BACK = "not-back"
    NOT_READY = "not-ready"
    ROLLED_BACK = "rolled-back"
    CHECK_FAILED = "check-failed"
    FENCED = "fenced"
    STRANDED = "stranded"
    SKIPPED = "skipped"
    ABORTED = "aborted"
    FAILED = "failed"

    @property
    def is_failure(self) -> bool:
        """Whether its node failed: one that was not touched, or was given back because somebody asked, did not."""
        return self not in (Outcome.SUCCEEDED, Outcome.SKIPPED, Outcome.ABORTED)


@dataclass(frozen=True, slots=True)
class NodeCondition:
    """One of a Node's conditions, as the API has it; `since` is its last transition (RFC 3339)."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: str = ""


@dataclass(frozen=True, slots=True)
class Findings:
    """What was seen of a node that failed, for whoever looks at it next; each empty where there is nothing to tell.

    `ssh_error` is why its host did not answer when it was last asked, `conditions` are those of the
    Node that are not as they should be, `console` says where its machine's console is.
    """

    ssh_error: str = ""
    conditions: tuple[NodeCondition, ...] = ()
    console: str = ""


@dataclass(frozen=True, slots=True)
class NodeResult:
    """One node's end. `phase` is the last one it reached; `message` is empty for a success without anything odd.

    `left_cordoned` tells a node that we cordoned and that has to stay so; `findings` are of one
    that failed. `reason` is the exclusion that a skipped one would be now, None where there is none
    like it, and `finding` why it was skipped, if that has a type. `waits`: this is no end, as it
    was refused right before its cordon, and is to be asked about again. `needed_drain_seconds` is
    the drain timeout with which the node's pods would have had time to terminate; 0 if a longer one
    would not help, or none is needed. `edge` is the node's last move, None if its Node was left as
    it is.
    """

    node: str
    outcome: Outcome
    phase: Phase
    seconds: float
    message: str = ""
    hint: str = ""
    version: str = ""
    left_cordoned: bool = False
    findings: Findings = Findings()
    reason: ExclusionReason | None = None
    finding: Finding | None = None
    fixes: tuple[str, ...] = ()
    waits: bool = False
    needed_drain_seconds: int = 0
    edge: Edge | None = None

    @property
    def succeeded(self) -> bool:
        """Whether it is rebooted, proven and back in service."""
        return self.outcome is Outcome.SUCCEEDED


@dataclass(frozen=True, slots=True)
class NotStarted:
    """A planned node that was not rebooted without having failed, and why; `reason` as in `NodeResult`.

    `was_begun`: rollout had already started it. `finding` is why it was not started, None if it was.
    """

    node: str
    message: str
    reason: ExclusionReason | None = None
    was_begun: bool = False
    finding: Finding | None = None

    @property
    def kind(self) -> str:
        """Return the word for why the node was not started or was skipped; empty if there is none."""
        return self.finding.kind if self.finding else self.reason or ""

    @property
    def is_for_later(self) -> bool:
        """Whether a later pass may take the node, because its reason passes by itself."""
        return self.finding is not None and self.finding.passes


@dataclass(frozen=True, slots=True)
class NotDone:
    """A node that was asked for and that this run did not begin; `reason` is the word of an exclusion or an outcome.

    `version` is the one that is held, empty for other reasons.
    """

    node: str
    reason: str
    message: str
    version: str = ""


@dataclass(frozen=True, slots=True)
class RunResult:
    """The end of a rollout: every planned node is in exactly one of the first three.

    `excluded` are the selected nodes that were not planned, `failed_before` those that an earlier
    process of this rollout failed and that are not tried again. `left_over` were planned by an
    earlier process, and left out when this one went on. `held` are the versions whose hold keeps
    nodes from being started, `newly_held` those that became so in this process. `pods_to_move` is
    how many pods had to leave the planned nodes, `evictions` how many there were in this process.
    `resumable`: its record stands, so that it can be gone on with.
    """

    finished: tuple[NodeResult, ...]
    skipped: tuple[NotStarted, ...] = ()
    not_started: tuple[NotStarted, ...] = ()
    excluded: tuple[Exclusion, ...] = ()
    failed_before: tuple[NotDone, ...] = ()
    pods_to_move: int = 0
    evictions: int = 0
    left_over: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    newly_held: tuple[str, ...] = ()
    resumable: bool = True

    @property
    def succeeded(self) -> tuple[NodeResult, ...]:
        """Nodes that made it."""
        return tuple(result for result in self.finished if result.succeeded)

    @property
    def failed(self) -> tuple[NodeResult, ...]:
        """Nodes that did not."""
        return tuple(result for result in self.finished if not result.succeeded)

    @property
    def not_done(self) -> tuple[NotDone, ...]:
        """Nodes that were asked for and never begun, for other reasons than that their turn did not come."""
        skipped = [
            NotDone(
                node.node,
                node.reason or Outcome.SKIPPED,
                node.message,
                version=held_version(node.finding),
            )
            for node in self.skipped
            if node.reason is None or node.reason.is_trouble
        ]
        troubled = (*excluded_by_trouble(self.excluded), *skipped)
        named = {node.node for node in troubled}
        return (*(node for node in self.failed_before if node.node not in named), *troubled)

    @property
    def deferred(self) -> tuple[str, ...]:
        """Those of them that the next run takes, from elsewhere: this process is on them."""
        return tuple(node.node for node in self.not_done if node.reason is ExclusionReason.DEFERRED)

    @property
    def left_out(self) -> Mapping[str, int]:
        """How many nodes there was nothing to do with, or that were held back, by the reason's word."""
        reasons = [exclusion.reason for exclusion in self.excluded]
        reasons += [node.reason for node in self.skipped if node.reason is not None]
        return Counter(sorted(reason.value for reason in reasons if not reason.is_trouble))

    @property
    def complete(self) -> bool:
        """Whether every node that was asked for is done, or was rightly left out."""
        return not (self.failed or self.not_started or self.not_done)


def excluded_by_trouble(excluded: Iterable[Exclusion]) -> tuple[NotDone, ...]:
    """Those of a plan's exclusions that nobody has decided on: the nodes were asked for, and are not done."""
    return tuple(
        NotDone(exclusion.node, exclusion.reason, exclusion.message, exclusion.version)
        for exclusion in excluded
        if exclusion.reason.is_trouble
    )


@dataclass(frozen=True, slots=True)
class PlanReady:
    """The plan that is about to run."""

    at: datetime
    plan: RolloutPlan


class JsonLine(Struct, frozen=True, tag_field="type"):
    """A line of JSON, by its type."""

    at: Moment


class WaveStarted(JsonLine, frozen=True, tag="wave_started"):
    """A wave begins."""

    index: int
    waves: int
    nodes: tuple[str, ...]
    because: str = ""
    in_flight: int | None = None


class WaveSettling(JsonLine, frozen=True, tag="wave_settling"):
    """A wave's nodes are done, its moved pods are not all available again."""

    index: int
    waiting_for: str


class Activity(StrEnum):
    """What goes on within a phase, if programs may need to know."""

    WAITING = "waiting"
    HOST_DOWN = "host-down"


class NodeStep(JsonLine, frozen=True, tag="step"):
    """A node entered a phase by an `edge`, or something worth telling happened within it."""

    node: str
    phase: Phase
    detail: str = ""
    endings: Mapping[str, float] | UnsetType = UNSET
    version_staged: str | UnsetType = UNSET
    edge: Edge | UnsetType = UNSET
    activity: Activity | UnsetType = UNSET


class PodBlocked(JsonLine, frozen=True, tag="blocked"):
    """An eviction that is not allowed now.

    At most one of `budget`, `webhook` and `admission_policy` is set. The last two denied the
    eviction at admission, and then `message` is what they said.
    """

    node: str
    pod: str
    budget: str
    since: Moment
    message: str
    seconds_left: float
    needs: int | None = None
    has: int | None = None
    owner: str = ""
    webhook: str = ""
    admission_policy: str = ""

    @property
    def holder(self) -> str:
        """Return the name of the budget, webhook or policy; empty if there is none."""
        return self.budget or self.webhook or self.admission_policy

    @property
    def held_by(self) -> str:
        """Return what holds the pod, in words."""
        if self.webhook:
            return f"admission webhook {self.webhook}"
        if self.admission_policy:
            return f"ValidatingAdmissionPolicy {self.admission_policy}"
        return self.budget or "the API server"


class PodReleased(JsonLine, frozen=True, tag="released"):
    """A pod that was held back may go, or is gone."""

    node: str
    pod: str
    budget: str
    since: Moment


class EvictedPod(Struct, frozen=True):
    """A pod that was evicted or deleted.

    `evicted_at` is when that was accepted; `seconds` is how long it then took until the pod was
    gone, None if it was not gone when the drain ended.
    """

    pod: str
    owner: str
    evicted_at: Moment
    seconds: float | None = None


class PodsEvicted(JsonLine, frozen=True, tag="evicted"):
    """Evicted pods of a node, reported when they are gone or the drain has ended.

    Pods that are gone in the same second share a line.
    """

    node: str
    pods: tuple[EvictedPod, ...]


class NodeFinished(JsonLine, frozen=True, tag="node_finished"):
    """A node's run ended.

    `ssh_error`, `conditions` and `console` are set only if it did not succeed. `edge` is the node's
    last move, unset if its Node was left as it is.
    """

    node: str
    outcome: Outcome
    phase: Phase
    message: str = ""
    hint: str = ""
    version: str = ""
    seconds: float = 0.0
    left_cordoned: bool = False
    ssh_error: str | UnsetType = UNSET
    conditions: tuple[NodeCondition, ...] | UnsetType = UNSET
    console: str | UnsetType = UNSET
    edge: Edge | UnsetType = UNSET

    @classmethod
    def of(cls, at: datetime, result: NodeResult) -> "NodeFinished":
        """Return the end of a node as it is told."""
        seen = None if result.succeeded else result.findings
        return cls(
            at=at,
            node=result.node,
            outcome=result.outcome,
            phase=result.phase,
            message=result.message,
            hint=result.hint,
            version=result.version,
            seconds=round(result.seconds, 1),
            left_cordoned=result.left_cordoned,
            ssh_error=seen.ssh_error if seen else UNSET,
            conditions=seen.conditions if seen else UNSET,
            console=seen.console if seen else UNSET,
            edge=result.edge or UNSET,
        )

    @property
    def succeeded(self) -> bool:
        """Whether it is rebooted, proven and back in service."""
        return self.outcome is Outcome.SUCCEEDED

    @property
    def findings(self) -> Findings:
        """What was seen of it; nothing of one that succeeded."""
        return Findings(self.ssh_error or "", self.conditions or (), self.console or "")


class Notice(JsonLine, frozen=True, tag="notice"):
    """Something about the whole run: an outage, a stop request, a protection given up."""

    message: str


class VersionHeld(JsonLine, frozen=True, tag="version_held"):
    """A version failed on as many nodes as may fail: no other is started with it."""

    version: str
    nodes: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The end."""

    at: datetime
    result: RunResult


StepEvent = (
    PlanReady
    | WaveStarted
    | WaveSettling
    | NodeStep
    | PodBlocked
    | PodReleased
    | PodsEvicted
    | NodeFinished
    | VersionHeld
    | Notice
    | RunFinished
)
