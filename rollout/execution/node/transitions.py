"""The transition table of a node's run; and a node's failure with its outcome, which decides whether it is returned.

Every move of a node is an edge in `TABLE`. A move that is not in the table is a defect and raises.
A phase is written on the Node before the act that it names, so that a crash at any point leaves
enough to continue:

    pending    nothing of this rollout is on the node
    cordoned   unschedulable, by rollout or before it
    draining   its pods are being evicted
    drained    every pod that had to leave is gone
    rebooting  the reboot was requested, or is about to be
    booted     the host is up with another boot ID
    ready      the kubelet of that boot reports Ready
    done       proven, and back in service
    failed     it stays cordoned; its last result says why

Three rules are visible in the table:

1. Only `proven` leads to done, and only after `booted` and `ready`.
2. Only a drained node's reboot is requested. The other way to rebooting is `taken-up-rebooting`: the
   host has rebooted by itself, or a failed one does not answer.
3. A node that is not proven is either `returned` (rollout removes its cordon and its marks) or has
   `failed`. Until its reboot is requested, it can always be returned.

A process that takes a node up knows which act was about to begin, not whether it happened. So the
node continues at a phase from which everything is proven again.
"""

from collections.abc import Mapping, Sequence

from rollout.errors import DrainError, FencedError, RebootError, RolloutError, StepError
from rollout.model.finding import Finding, NodeFinding
from rollout.model.plan import ExclusionReason, PlannedNode
from rollout.model.progress import Edge, Outcome, Phase
from rollout.wording import text

TABLE: Mapping[Phase, Mapping[Edge, Phase]] = {
    Phase.PENDING: {
        Edge.CORDONED: Phase.CORDONED,
        Edge.RETURNED: Phase.PENDING,
        Edge.TAKEN_UP: Phase.PENDING,
        Edge.TAKEN_UP_REBOOTING: Phase.REBOOTING,
    },
    Phase.CORDONED: {
        Edge.DRAIN_STARTED: Phase.DRAINING,
        Edge.RETURNED: Phase.PENDING,
        Edge.TAKEN_UP: Phase.CORDONED,
        Edge.TAKEN_UP_REBOOTING: Phase.REBOOTING,
    },
    Phase.DRAINING: {
        Edge.EVICTED: Phase.DRAINED,
        Edge.RETURNED: Phase.PENDING,
        Edge.TAKEN_UP: Phase.CORDONED,
        Edge.TAKEN_UP_REBOOTING: Phase.REBOOTING,
    },
    Phase.DRAINED: {
        Edge.REBOOT_REQUESTED: Phase.REBOOTING,
        Edge.REFILLED: Phase.DRAINING,
        Edge.RESTAGED: Phase.DRAINED,
        Edge.RETURNED: Phase.PENDING,
        Edge.TAKEN_UP: Phase.CORDONED,
        Edge.TAKEN_UP_REBOOTING: Phase.REBOOTING,
    },
    Phase.REBOOTING: {
        Edge.BOOTED: Phase.BOOTED,
        Edge.REFILLED: Phase.DRAINING,
        Edge.RESTAGED: Phase.REBOOTING,
        Edge.RETURNED: Phase.PENDING,
        Edge.FAILED: Phase.FAILED,
        Edge.TAKEN_UP: Phase.REBOOTING,
    },
    Phase.BOOTED: {
        Edge.READY: Phase.READY,
        Edge.RETURNED: Phase.PENDING,
        Edge.FAILED: Phase.FAILED,
        Edge.TAKEN_UP: Phase.REBOOTING,
    },
    Phase.READY: {
        Edge.PROVEN: Phase.DONE,
        Edge.RETURNED: Phase.PENDING,
        Edge.FAILED: Phase.FAILED,
        Edge.TAKEN_UP: Phase.REBOOTING,
    },
    Phase.DONE: {},
    Phase.FAILED: {
        Edge.RETURNED: Phase.PENDING,
        Edge.TAKEN_UP: Phase.CORDONED,
        Edge.TAKEN_UP_UNCORDONED: Phase.PENDING,
        Edge.TAKEN_UP_REBOOTING: Phase.REBOOTING,
    },
}

# Until its reboot is requested, a node can be returned as it was.
BEFORE_REBOOT = frozenset({Phase.PENDING, Phase.CORDONED, Phase.DRAINING, Phase.DRAINED})
# From here on it may be in another boot, and has to be proven.
AFTER_REBOOT = frozenset({Phase.REBOOTING, Phase.BOOTED, Phase.READY})
# A node is taken up by one of these.
TAKEN_UP = frozenset({Edge.TAKEN_UP, Edge.TAKEN_UP_UNCORDONED, Edge.TAKEN_UP_REBOOTING})


def follow(phase: Phase, edge: Edge) -> Phase:
    """Return the phase that this edge leads to; an edge that does not start here is a defect."""
    if edge not in TABLE[phase]:
        raise AssertionError(f"no edge {edge} starts at the phase {phase}")
    return TABLE[phase][edge]


# After these the node works as it did before, or better: it is uncordoned, and reported.
_WORKS = frozenset(
    {
        *(Outcome.DRAIN_FAILED, Outcome.REBOOT_REFUSED, Outcome.NOT_REBOOTED, Outcome.ROLLED_BACK),
        *(Outcome.SKIPPED, Outcome.ABORTED),
    }
)


class NodeFailure(StepError):  # noqa: N818 - a failed node is an outcome of a rollout, not an error of it
    """A step that failed with an outcome of its own; `reason` and `finding` as of a `NodeResult`."""

    def __init__(
        self,
        outcome: Outcome,
        message: str,
        *,
        hint: str = "",
        see: Sequence[str] = (),
        reason: ExclusionReason | None = None,
        finding: Finding | None = None,
    ) -> None:
        super().__init__(message, hint=hint, see=see)
        self.outcome = outcome
        self.reason = finding.kind if isinstance(finding, NodeFinding) else reason
        self.finding = finding


class NodeRemovedError(NodeFailure):
    """Its machine was removed, or is about to be. Not a failure; rollout leaves nothing behind on it."""

    def __init__(self, message: str) -> None:
        super().__init__(Outcome.SKIPPED, message, reason=ExclusionReason.DELETING)


class NotStartedError(NodeFailure):
    """Skipped before its cordon: nothing was done to it."""

    def __init__(
        self,
        why: str = "",
        reason: ExclusionReason | None = None,
        *,
        finding: Finding | None = None,
    ) -> None:
        self.why = text(finding) if finding else why
        super().__init__(Outcome.SKIPPED, self.why, reason=reason, finding=finding)


class RefusedError(NotStartedError):
    """Not admitted right before its cordon: nothing of ours stands on the node, and it waits for another turn."""


class WithheldError(NodeFailure):
    """Not rebooted, because its staged version is not admitted or nothing needs the reboot any more."""

    def __init__(
        self,
        why: str = "",
        reason: ExclusionReason | None = None,
        *,
        finding: Finding | None = None,
    ) -> None:
        message = f"returned before its reboot: {text(finding) if finding else why}"
        super().__init__(Outcome.SKIPPED, message, reason=reason, finding=finding)


class GivenUpError(NodeFailure):
    """Stopped on request before the reboot."""

    def __init__(self, why: str = "stopped on request") -> None:
        super().__init__(Outcome.ABORTED, f"returned before its reboot: {why}")


def outcome_of(error: RolloutError) -> Outcome:
    """Return what a failure makes of the node."""
    match error:
        case NodeFailure():
            return error.outcome
        case FencedError():
            return Outcome.FENCED
        case DrainError():
            return Outcome.DRAIN_FAILED
        case RebootError():
            return Outcome.REBOOT_REFUSED
        case _:
            return Outcome.FAILED


def may_be_given_back(outcome: Outcome, phase: Phase) -> bool:
    """Whether the node is in service again once our cordon is gone."""
    return outcome in _WORKS or (phase in BEFORE_REBOOT and outcome is not Outcome.FENCED)


def is_update_cleared(
    planned: PlannedNode, outcome: Outcome, version: str, *, is_refused: bool
) -> bool:
    """Whether a failure says nothing against the staged update.

    The host runs that `version` now, or keys or credentials keep rollout out (`is_refused`).
    """
    runs_update = outcome is Outcome.ROLLED_BACK and version == planned.staged_version
    return runs_update or is_refused
