"""How a node's update ends without success.

error             raised by                                       the node then
NotStartedError   the checks up to the cordon                     is skipped, without a mark
RefusedError      `claim_and_cordon`: a gate or limit refuses     waits in its wave again
WithheldError     `check_staged` and others: no reboot is due     is returned and skipped
StoppedError      each check before the reboot, after a stop      is returned, left to a resume
NodeRemovedError  each check: its Node or machine is removed      is skipped, and returned if there
RefilledError     `check_still_drained`: pods have arrived        is drained again, a few times
RestagedError     `ask_for_reboot`: another version is staged     is approved anew, a few times
MarksGoneError    each write: somebody removed the marks          fails, and is left as it is
FencedError       each write: the lock or the Node is another's   fails, and is left as it is
other errors      each step                                       fails: see `may_be_returned`
"""

from collections.abc import Sequence

from rollout.errors import DrainError, FencedError, RebootError, RolloutError, StepError
from rollout.execution.node.transitions import BEFORE_REBOOT
from rollout.model.detection import Source
from rollout.model.finding import Finding, NodeFinding
from rollout.model.plan import ExclusionReason, PlannedNode
from rollout.model.progress import Outcome, Phase
from rollout.model.quantity import Duration
from rollout.model.text import joined
from rollout.wording import text

_NODE_WORKS_AFTER = frozenset(
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
    """Ends the run of a node with an outcome.

    The kind of a `finding` replaces `reason`.
    """

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
        if finding and not message:
            message = text(finding)
        super().__init__(message, hint=hint, see=see)
        self.outcome = outcome
        self.reason = finding.kind if isinstance(finding, NodeFinding) else reason
        self.finding = finding


class NodeRemovedError(NodeFailure):
    """The removal of a machine is no failure of its node."""

    def __init__(self, message: str) -> None:
        super().__init__(Outcome.SKIPPED, message, reason=ExclusionReason.DELETING)


class NotStartedError(NodeFailure):
    def __init__(
        self,
        message: str = "",
        reason: ExclusionReason | None = None,
        *,
        finding: Finding | None = None,
    ) -> None:
        super().__init__(Outcome.SKIPPED, message, reason=reason, finding=finding)


class RefusedError(NotStartedError):
    """Catch it before `NotStartedError`, which skips the node for good."""


class WithheldError(NodeFailure):
    """The node is returned. Give a `finding`, or `why` with an optional `reason`."""

    def __init__(
        self,
        why: str = "",
        reason: ExclusionReason | None = None,
        *,
        finding: Finding | None = None,
    ) -> None:
        if finding:
            why = text(finding)
        super().__init__(Outcome.SKIPPED, f"not rebooted: {why}", reason=reason, finding=finding)


class StoppedError(NodeFailure):
    def __init__(self, why: str = "stopped on request") -> None:
        super().__init__(Outcome.ABORTED, f"not rebooted: {why}")


def not_ready(node: str, message: str) -> NodeFailure:
    see = (f"kubectl describe node {node}", "journalctl -u kubelet on the host")
    return NodeFailure(Outcome.NOT_READY, message, see=see)


def not_ready_in_time(node: str, timeout: Duration, why: str = "") -> NodeFailure:
    message = f"the Node did not become Ready within --ready-timeout {timeout}"
    return not_ready(node, joined(": ", message, why))


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
    if outcome is Outcome.FENCED:
        # Another process may be working on the node.
        return False
    return outcome in _NODE_WORKS_AFTER or phase in BEFORE_REBOOT


def is_update_cleared(
    planned: PlannedNode, outcome: Outcome, running_version: str, *, is_login_refused: bool
) -> bool:
    """Whether the failure says nothing against the staged version.

    `running_version` is empty if the host has not answered since the reboot.
    """
    if is_login_refused:
        # The host itself may be well.
        return True
    is_rolled_back = outcome is Outcome.ROLLED_BACK
    if Source.ROLLBACK in planned.detected_by:
        # In a rollback, such a host has not tried the version to go back to.
        return is_rolled_back or running_version == planned.running_version
    # Only another source lacks proof that this reboot worked.
    return is_rolled_back and running_version == planned.staged_version
