"""Events and results of a rollout; docs/json.md explains the fields."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from rollout.model.completion import AwaitedPod
from rollout.model.finding import Finding, held_version
from rollout.model.plan import Exclusion, ExclusionReason, RolloutPlan

Moment = Annotated[datetime, Meta(tz=True, description="RFC 3339, UTC")]


class Phase(StrEnum):
    """The phase of a node, as in its `phase` annotation."""

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
    """A transition of a node, usually to another phase; see `execution/node/transitions`."""

    CORDONED = "cordoned"
    DRAIN_STARTED = "drain-started"
    EVICTED = "evicted"
    REBOOT_REQUESTED = "reboot-requested"
    # By a FleetLock server, before this drain.
    GRANTED_BEFORE_DRAIN = "granted"
    BOOTED = "booted"
    READY = "ready"
    PROVEN = "proven"
    # The empty node has pods again.
    REFILLED = "refilled"
    RESTAGED = "restaged"
    RETURNED = "returned"
    FAILED = "failed"
    # These three: another process continues the node.
    TAKEN_UP = "taken-up"
    TAKEN_UP_UNCORDONED = "taken-up-uncordoned"
    TAKEN_UP_REBOOTING = "taken-up-rebooting"


class Outcome(StrEnum):
    """How a node's update ended."""

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
        """Whether the node failed."""
        return self not in (Outcome.SUCCEEDED, Outcome.SKIPPED, Outcome.ABORTED)


class NodeCondition(Struct, frozen=True):
    """A condition of a Node, as in the API."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: str = ""


class NodeDiagnosis(Struct, frozen=True):
    """What a failed node shows; unknown values are empty."""

    ssh_error: str = ""
    conditions: tuple[NodeCondition, ...] = ()
    console: str = ""


class NodeResult(Struct, frozen=True):
    """How a node's update ended."""

    node: str
    outcome: Outcome
    phase: Phase
    seconds: float
    message: str = ""
    hint: str = ""
    version: str = ""
    left_cordoned: bool = False
    diagnosis: NodeDiagnosis = NodeDiagnosis()
    # Only for a skipped node.
    reason: ExclusionReason | None = None
    finding: Finding | None = None
    fixes: tuple[str, ...] = ()
    # Before its cordon, to be retried.
    is_refused: bool = False
    # The drain timeout that would have sufficed, or 0.
    needed_drain_seconds: int = 0
    # None without a change.
    edge: Edge | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the node is rebooted, proved and returned."""
        return self.outcome is Outcome.SUCCEEDED


class NotStarted(Struct, frozen=True):
    """A planned node without a reboot or a failure."""

    node: str
    message: str
    reason: ExclusionReason | None = None
    # PENDING if it was never begun.
    phase: Phase = Phase.PENDING
    left_cordoned: bool = False
    # None if begun.
    finding: Finding | None = None

    @property
    def was_begun(self) -> bool:
        """Whether rollout had cordoned the node."""
        return self.phase is not Phase.PENDING

    @property
    def kind(self) -> str:
        """Return the reason's word, or empty."""
        return self.finding.kind if self.finding else self.reason or ""

    @property
    def is_for_later(self) -> bool:
        """Whether a later pass may take it."""
        return self.finding is not None and self.finding.is_for_later


class NotDone(Struct, frozen=True):
    """A selected node that should have been rebooted, but was not started by this run."""

    node: str
    # An `ExclusionReason` or an `Outcome`.
    reason: str
    message: str
    version: str = ""


class RunResult(Struct, frozen=True):
    """How a rollout, or one process of it, ended."""

    # Each planned node is in one of these three.
    finished: tuple[NodeResult, ...]
    skipped: tuple[NotStarted, ...] = ()
    not_started: tuple[NotStarted, ...] = ()
    excluded: tuple[Exclusion, ...] = ()
    # In earlier processes.
    failed_before: tuple[NotDone, ...] = ()
    pods_to_move: int = 0
    # In this process.
    evictions: int = 0
    # Only an earlier process planned these.
    left_over: tuple[str, ...] = ()
    # These keep nodes from starting.
    held: tuple[str, ...] = ()
    # Held since this process ran.
    newly_held: tuple[str, ...] = ()
    # The record is still in the cluster.
    resumable: bool = True
    # The version to leave, or empty.
    rollback: str = ""

    @property
    def succeeded(self) -> tuple[NodeResult, ...]:
        """Return nodes that succeeded."""
        return tuple(result for result in self.finished if result.succeeded)

    @property
    def failed(self) -> tuple[NodeResult, ...]:
        """Return nodes that did not succeed."""
        return tuple(result for result in self.finished if not result.succeeded)

    @property
    def not_done(self) -> tuple[NotDone, ...]:
        """Return nodes that should have been rebooted."""
        not_done_now = list(wrongly_left_out(self.excluded))
        for skipped in self.skipped:
            is_rightly_skipped = skipped.reason is not None and not skipped.reason.is_trouble
            if is_rightly_skipped:
                continue
            reason = skipped.reason or Outcome.SKIPPED
            version = held_version(skipped.finding)
            not_done_now.append(NotDone(skipped.node, reason, skipped.message, version))
        # For a node in both, the newer reason counts.
        names = {entry.node for entry in not_done_now}
        failed_before = [entry for entry in self.failed_before if entry.node not in names]
        return (*failed_before, *not_done_now)

    @property
    def aborted(self) -> frozenset[str]:
        """Return the begun nodes that a resume starts again."""
        return frozenset(entry.node for entry in self.not_started if entry.was_begun)

    @property
    def deferred(self) -> tuple[str, ...]:
        """Return the nodes that this process runs on."""
        return tuple(node.node for node in self.not_done if node.reason is ExclusionReason.DEFERRED)

    @property
    def left_out(self) -> Mapping[str, int]:
        """Count nodes rightly left out, by reason."""
        return rightly_left_out((*self.excluded, *self.skipped))

    @property
    def complete(self) -> bool:
        """Whether all nodes are done or rightly left out."""
        return not (self.failed or self.not_started or self.not_done)


def rightly_left_out(nodes: Iterable[Exclusion | NotStarted]) -> Mapping[str, int]:
    """Count nodes by reason, without trouble."""
    reasons = [node.reason for node in nodes if node.reason is not None]
    return Counter(sorted(reason.value for reason in reasons if not reason.is_trouble))


def wrongly_left_out(excluded: Iterable[Exclusion]) -> tuple[NotDone, ...]:
    """Return the nodes that should have been rebooted."""
    not_done = list[NotDone]()
    for exclusion in excluded:
        if exclusion.reason.is_trouble:
            entry = NotDone(exclusion.node, exclusion.reason, exclusion.message, exclusion.version)
            not_done.append(entry)
    return tuple(not_done)


class PlanReady(Struct, frozen=True):
    """This plan is about to run."""

    at: datetime
    plan: RolloutPlan


class JsonLine(Struct, frozen=True, tag_field="type"):
    """An event in JSON."""

    at: Moment


class WaveStarted(JsonLine, frozen=True, tag="wave_started"):
    """A wave has started."""

    index: int
    waves: int
    nodes: tuple[str, ...]
    because: str = ""
    in_flight: int | None = None


class WaveSettling(JsonLine, frozen=True, tag="wave_settling"):
    """A wave is waiting until the replacements of its evicted pods are available."""

    index: int
    waiting_for: str


class Activity(StrEnum):
    """What a node is waiting for within a phase."""

    WAITING = "waiting"
    COMPLETION = "completion"
    HOST_DOWN = "host-down"


class NodeStep(JsonLine, frozen=True, tag="step"):
    """A node entered another phase, or made progress within its phase."""

    node: str
    phase: Phase
    detail: str = ""
    endings: Mapping[str, float] | UnsetType = UNSET
    version_staged: str | UnsetType = UNSET
    edge: Edge | UnsetType = UNSET
    activity: Activity | UnsetType = UNSET
    awaited: tuple[AwaitedPod, ...] | UnsetType = UNSET


class PodBlocked(JsonLine, frozen=True, tag="blocked"):
    """A budget, a webhook, a policy or the API server currently does not allow an eviction."""

    node: str
    pod: str
    budget: str
    since: Moment
    message: str
    seconds_left: float
    needs: int | None = None
    has: int | None = None
    owner: str = ""
    controller: str = ""
    webhook: str = ""
    admission_policy: str = ""
    budgets: tuple[str, ...] = ()

    @property
    def blocker_name(self) -> str:
        """Return what prevents the eviction, or empty."""
        return self.budget or self.webhook or self.admission_policy

    @property
    def blocker_text(self) -> str:
        """Return what prevents the eviction, in words."""
        if self.webhook:
            return f"admission webhook {self.webhook}"
        if self.admission_policy:
            return f"ValidatingAdmissionPolicy {self.admission_policy}"
        return f"PDB {self.budget}" if self.budget else "the API server"


class PodReleased(JsonLine, frozen=True, tag="released"):
    """A pod whose eviction was blocked can be evicted now, or is gone."""

    node: str
    pod: str
    budget: str
    since: Moment


class EvictedPod(Struct, frozen=True):
    """A pod that was evicted or deleted."""

    pod: str
    owner: str
    evicted_at: Moment
    seconds: float | None = None


class PodsEvicted(JsonLine, frozen=True, tag="evicted"):
    """Evicted pods of a node are gone, or the drain has ended."""

    node: str
    pods: tuple[EvictedPod, ...]


class NodeFinished(JsonLine, frozen=True, tag="node_finished"):
    """rollout has finished with a node.

    `ssh_error`, `conditions` and `console` are set only if the node did not succeed.
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
        """Return the result's event."""
        diagnosis = None if result.succeeded else result.diagnosis
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
            ssh_error=diagnosis.ssh_error if diagnosis else UNSET,
            conditions=diagnosis.conditions if diagnosis else UNSET,
            console=diagnosis.console if diagnosis else UNSET,
            edge=result.edge or UNSET,
        )

    @property
    def succeeded(self) -> bool:
        """Whether the node succeeded."""
        return self.outcome is Outcome.SUCCEEDED

    @property
    def diagnosis(self) -> NodeDiagnosis:
        """Return the event's diagnosis."""
        return NodeDiagnosis(self.ssh_error or "", self.conditions or (), self.console or "")


class NodeRescued(JsonLine, frozen=True, tag="rescued"):
    """`reboot.rescue` has run for a host that did not come back."""

    node: str
    problem: str = ""
    output: tuple[str, ...] = ()


class Notice(JsonLine, frozen=True, tag="notice"):
    """A message about the whole rollout, such as an outage or a stop request."""

    message: str


class VersionHeld(JsonLine, frozen=True, tag="version_held"):
    """This version is held: it failed, or was held manually or by a rollback."""

    version: str
    nodes: tuple[str, ...]
    message: str


class RunFinished(Struct, frozen=True):
    """The rollout ended."""

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
    | NodeRescued
    | VersionHeld
    | Notice
    | RunFinished
)
