"""How a node's run fails, and the outcome of each failure."""

from collections.abc import Sequence

from rollout.errors import DrainError, FencedError, RebootError, RolloutError, StepError
from rollout.execution.node.transitions import BEFORE_REBOOT
from rollout.model.detection import Source
from rollout.model.finding import Finding, NodeFinding
from rollout.model.plan import ExclusionReason, PlannedNode
from rollout.model.progress import Outcome, Phase
from rollout.wording import text

# After these, the node works as before, so it is uncordoned.
_WORKS = frozenset(
    {
        Outcome.DRAIN_FAILED,
        Outcome.REBOOT_REFUSED,
        Outcome.NOT_REBOOTED,
        Outcome.ROLLED_BACK,
        Outcome.SKIPPED,
        Outcome.ABORTED,
    }
)

NO_ANSWER_HINT = (
    "Check its console: is it stuck in firmware, the boot loader, or waiting for a disk or the"
    " network?"
)


class NodeFailure(StepError):  # noqa: N818 - an outcome of a rollout, not an error of it
    def __init__(
        self,
        outcome: Outcome,
        message: str = "",
        *,
        hint: str = "",
        see: Sequence[str] = (),
        reason: ExclusionReason | None = None,
        finding: Finding | None = None,
    ) -> None:
        why = text(finding) if finding and not message else message
        super().__init__(why, hint=hint, see=see)
        self.outcome = outcome
        self.reason = finding.kind if isinstance(finding, NodeFinding) else reason
        self.finding = finding


class NodeRemovedError(NodeFailure):
    """The machine was or will be removed, which is no failure of the node."""

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
        super().__init__(Outcome.SKIPPED, why, reason=reason, finding=finding)


class RefusedError(NotStartedError):
    """Not admitted right before its cordon, and tried again.

    Handle it before `NotStartedError`, which skips the node for good.
    """


class WithheldError(NodeFailure):
    """Not rebooted: its version is not approved, nothing needs the reboot, or pods still run."""

    def __init__(
        self,
        why: str = "",
        reason: ExclusionReason | None = None,
        *,
        finding: Finding | None = None,
    ) -> None:
        message = f"not rebooted: {text(finding) if finding else why}"
        super().__init__(Outcome.SKIPPED, message, reason=reason, finding=finding)


class GivenUpError(NodeFailure):
    """Stopped on request before the reboot."""

    def __init__(self, why: str = "stopped on request") -> None:
        super().__init__(Outcome.ABORTED, f"not rebooted: {why}")


def not_ready(node: str, message: str) -> NodeFailure:
    see = (f"kubectl describe node {node}", "journalctl -u kubelet on the host")
    return NodeFailure(Outcome.NOT_READY, message, see=see)


def outcome_of(error: RolloutError) -> Outcome:
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


def may_be_returned(outcome: Outcome, phase: Phase) -> bool:
    return outcome in _WORKS or (phase in BEFORE_REBOOT and outcome is not Outcome.FENCED)


def is_update_cleared(
    planned: PlannedNode, outcome: Outcome, version: str, *, is_refused: bool
) -> bool:
    """Whether a failure says nothing against the staged update, which `version` may be.

    `is_refused`: keys or credentials keep rollout out.
    """
    if is_refused:
        return True
    is_rolled_back = outcome is Outcome.ROLLED_BACK
    if Source.ROLLBACK in planned.detected_by:
        # The previous version has not run.
        return is_rolled_back or version == planned.running_version
    return is_rolled_back and version == planned.staged_version
