"""The phases of a node's run, as one table; and a node's failure with its outcome, which decides who gets it back.

Everything that decides where a node may go next is here; whatever is not in the table is a defect
and raises. A phase is written on the Node before the act that it names, so that a crash at any
point leaves enough to go on from:

    pending    nothing touched yet
    cordoned   unschedulable, by us or before us
    draining   its pods are being evicted
    drained    nothing is left on it that has to go
    rebooting  the reboot has been, or is about to be, asked for
    booted     the host is up with another boot id
    ready      the kubelet of that boot reports Ready
    done       proven, and back in service
    failed     ended; its last result says how

Two ways lead back to draining: pods have come to a drained node, or to one whose host still answers
in the boot from before, and it is not asked to reboot under them.
"""

from collections.abc import Mapping

from rollout.errors import DrainError, FencedError, RebootError, RolloutError, StepError
from rollout.model.plan import ExclusionReason, PlannedNode
from rollout.model.progress import Outcome, Phase

NEXT: Mapping[Phase, frozenset[Phase]] = {
    Phase.PENDING: frozenset({Phase.CORDONED, Phase.FAILED}),
    Phase.CORDONED: frozenset({Phase.DRAINING, Phase.FAILED}),
    Phase.DRAINING: frozenset({Phase.DRAINED, Phase.FAILED}),
    Phase.DRAINED: frozenset({Phase.REBOOTING, Phase.DRAINING, Phase.FAILED}),
    Phase.REBOOTING: frozenset({Phase.BOOTED, Phase.DRAINING, Phase.FAILED}),
    Phase.BOOTED: frozenset({Phase.READY, Phase.FAILED}),
    Phase.READY: frozenset({Phase.DONE, Phase.FAILED}),
    Phase.DONE: frozenset(),
    Phase.FAILED: frozenset(),
}

# Until its reboot is asked for, a node can be given back as it was.
BEFORE_REBOOT = frozenset({Phase.PENDING, Phase.CORDONED, Phase.DRAINING, Phase.DRAINED})
# From here on it may be in another boot, and has to be proven.
AFTER_REBOOT = frozenset({Phase.REBOOTING, Phase.BOOTED, Phase.READY})


def advance(current: Phase, following: Phase) -> Phase:
    """Return the following phase, if the table allows it; any other is a defect of this program."""
    if following not in NEXT[current]:
        raise AssertionError(f"{current} does not lead to {following}")
    return following


# After these the node works as it did before, or better: it is uncordoned, and reported.
_WORKS = frozenset(
    {
        *(Outcome.DRAIN_FAILED, Outcome.REBOOT_REFUSED, Outcome.NOT_REBOOTED, Outcome.ROLLED_BACK),
        *(Outcome.SKIPPED, Outcome.ABORTED),
    }
)


class NodeFailure(StepError):  # noqa: N818 - a failed node is an outcome of a rollout, not an error of it
    """A step that failed with an outcome of its own; `reason` as of a `NodeResult`."""

    def __init__(
        self,
        outcome: Outcome,
        message: str,
        *,
        hint: str = "",
        reason: ExclusionReason | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.outcome = outcome
        self.reason = reason


class NodeRemovedError(NodeFailure):
    """Its machine was removed, or is about to be. Not a failure; rollout leaves nothing behind on it."""

    def __init__(self, message: str) -> None:
        super().__init__(Outcome.SKIPPED, message, reason=ExclusionReason.DELETING)


class NotStartedError(NodeFailure):
    """Skipped before its cordon: nothing was done to it."""

    def __init__(self, why: str, reason: ExclusionReason | None = None) -> None:
        super().__init__(Outcome.SKIPPED, why, reason=reason)
        self.why = why


class RefusedError(NotStartedError):
    """Not admitted right before its cordon: nothing of ours stands on the node, and it waits for another turn."""


class WithheldError(NodeFailure):
    """Not rebooted, because its staged version is not admitted or nothing needs the reboot any more."""

    def __init__(self, why: str, reason: ExclusionReason | None = None) -> None:
        super().__init__(Outcome.SKIPPED, f"returned before its reboot: {why}", reason=reason)


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
