"""A node's failure with its outcome: what decides whether the node is given back or left cordoned."""

from dataclasses import replace

from rollout.errors import ApiError, DrainError, FencedError, RebootError, RolloutError, StepError
from rollout.model.plan import ExclusionReason, PlannedNode
from rollout.model.progress import Outcome, Phase

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
        self, outcome: Outcome, message: str, *, hint: str = "", reason: ExclusionReason | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.outcome = outcome
        self.reason = reason


class RefusedError(NodeFailure):
    """Not admitted right before its cordon: nothing of ours stands on the node, and it waits for another turn."""

    def __init__(self, why: str) -> None:
        super().__init__(Outcome.SKIPPED, f"not started: {why}")
        self.why = why


class GivenUpError(NodeFailure):
    """Stopped on request before the reboot."""

    def __init__(self, why: str = "stopped on request") -> None:
        super().__init__(Outcome.ABORTED, f"given back before its reboot: {why}")


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
        case ApiError():
            return Outcome.FAILED
        case _:
            return Outcome.FAILED


def may_be_given_back(outcome: Outcome, phase: Phase, before_reboot: frozenset[Phase]) -> bool:
    """Whether the node is in service again once our cordon is gone."""
    return outcome in _WORKS or (phase in before_reboot and outcome is not Outcome.FENCED)


def blamed(planned: PlannedNode, outcome: Outcome, version: str, *, is_refused: bool) -> PlannedNode:
    """Return the node as its end is remembered: a staged `version` that it runs is not what failed, whatever else did.

    Nor is any, where keys or credentials are why its host was not seen to be back (`is_refused`).
    """
    is_taken = outcome is Outcome.ROLLED_BACK and version == planned.staged_version
    return replace(planned, staged_version="") if is_taken or is_refused else planned
