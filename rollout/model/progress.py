"""What happens during a rollout, as values that observers turn into progress, JSON lines and reports."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from rollout.model.plan import RolloutPlan


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

    `ssh_error` is why its host did not answer when it was last asked, `conditions` are those of the Node that are not
    as they should be, `console` says where its machine's console is.
    """

    ssh_error: str = ""
    conditions: tuple[NodeCondition, ...] = ()
    console: str = ""


@dataclass(frozen=True, slots=True)
class NodeResult:
    """One node's end. `phase` is the last one it reached; `message` and `hint` are empty for a success.

    `left_cordoned` tells a node that we cordoned and that has to stay so; `findings` are of one that failed.
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

    @property
    def succeeded(self) -> bool:
        """Whether it is rebooted, proven and back in service."""
        return self.outcome is Outcome.SUCCEEDED


@dataclass(frozen=True, slots=True)
class NotStarted:
    """A planned node whose turn never came, and why."""

    node: str
    message: str


@dataclass(frozen=True, slots=True)
class RunResult:
    """The end of a rollout: every planned node is in exactly one of the three."""

    finished: tuple[NodeResult, ...]
    skipped: tuple[NotStarted, ...] = ()
    not_started: tuple[NotStarted, ...] = ()

    @property
    def succeeded(self) -> tuple[NodeResult, ...]:
        """Nodes that made it."""
        return tuple(result for result in self.finished if result.succeeded)

    @property
    def failed(self) -> tuple[NodeResult, ...]:
        """Nodes that did not."""
        return tuple(result for result in self.finished if not result.succeeded)


@dataclass(frozen=True, slots=True)
class PlanReady:
    """The plan that is about to run."""

    at: datetime
    plan: RolloutPlan


@dataclass(frozen=True, slots=True)
class WaveStarted:
    """A wave begins."""

    at: datetime
    index: int
    waves: int
    nodes: tuple[str, ...]
    because: str


@dataclass(frozen=True, slots=True)
class WaveSettling:
    """A wave's nodes are done; the owners of the moved pods are not all as available as before yet."""

    at: datetime
    index: int
    waiting_for: str


@dataclass(frozen=True, slots=True)
class NodeStep:
    """A node entered a phase, or something worth telling happened within it."""

    at: datetime
    node: str
    phase: Phase
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PodBlocked:
    """An eviction that is not allowed now; `message` is the server's, `seconds_left` until the deadline.

    `budget` is namespace/name; empty where no budget is the reason, several where the pod is under more than one.
    `needs` and `has` are the healthy pods that the budget demands and counts, None where it does not say; `owner` is
    the pod's controller as Kind/name, empty where it has none.
    """

    at: datetime
    node: str
    pod: str
    budget: str
    since: datetime
    message: str
    seconds_left: float
    needs: int | None = None
    has: int | None = None
    owner: str = ""


@dataclass(frozen=True, slots=True)
class PodReleased:
    """A pod that was held back no longer is: it is on its way, or gone."""

    at: datetime
    node: str
    pod: str
    budget: str
    since: datetime


@dataclass(frozen=True, slots=True)
class NodeFinished:
    """A node's run ended."""

    at: datetime
    result: NodeResult


@dataclass(frozen=True, slots=True)
class Notice:
    """Something about the whole run: a lost connection to the API, a stop request, a lost Lease."""

    at: datetime
    message: str


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The end."""

    at: datetime
    result: RunResult


StepEvent = (
    PlanReady | WaveStarted | WaveSettling | NodeStep | PodBlocked | PodReleased | NodeFinished | Notice | RunFinished
)
