from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from rollout.errors import ApiError, ApiNotFoundError, DrainError, FencedError, RolloutError
from rollout.execution.base.deadline import retry_until
from rollout.execution.node.context import NodeContext, Progress
from rollout.execution.node.failures import (
    NodeFailure,
    NodeRemovedError,
    is_update_cleared,
    may_be_returned,
    outcome_of,
)
from rollout.execution.node.marking import (
    MarkedByOtherError,
    MarksGoneError,
    NodeLoss,
    find_node_loss,
    is_cordoned_now,
    is_marked_now,
    mark_failed,
    return_node,
)
from rollout.execution.node.rejoin import has_other_machine
from rollout.execution.node.ssh_host import is_login_refused
from rollout.execution.node.transitions import AFTER_REBOOT, BEFORE_REBOOT, require_edge
from rollout.gather.cluster.snapshot import read_diagnosis
from rollout.model.finding import StillRunning
from rollout.model.plan import ExclusionReason
from rollout.model.progress import Edge, NodeDiagnosis, NodeResult, Outcome
from rollout.planning.eligibility.memory import NodeEnd

# While the API server is unavailable.
_DIAGNOSIS_SECONDS = 10.0
_UNPROVEN = frozenset(
    {Outcome.REBOOT_REFUSED, Outcome.NOT_BACK, Outcome.NOT_REBOOTED, Outcome.NOT_READY}
)


class _FinalState(Struct, frozen=True):
    # RETURNED or FAILED; None if nothing was written.
    edge: Edge | None
    is_cordoned: bool
    # Why the marks could not be written, or the node's failure before that.
    trouble: str = ""


def end_without_success(
    context: NodeContext, progress: Progress, error: RolloutError
) -> NodeResult:
    error = _explain_deletion(context, progress, error)
    outcome = outcome_of(error)
    is_cleared = is_update_cleared(
        context.planned,
        outcome,
        progress.version,
        is_login_refused=is_login_refused(context.host.error),
    )
    # A crash must not lose a failure whose marks are gone.
    end = NodeEnd(
        outcome,
        progress.phase,
        is_update_cleared=is_cleared,
        pods_still_ran=isinstance(error, NodeFailure) and isinstance(error.finding, StillRunning),
    )
    remember(context, end)
    try:
        final_state = _return_or_mark_failed(context, progress, outcome)
    except FencedError as fenced:
        # Another process ends the node.
        final_state = _FinalState(None, is_cordoned=True, trouble=f"; before: {error.message}")
        error = fenced
        outcome = Outcome.FENCED
    return NodeResult(
        node=context.name,
        outcome=outcome,
        phase=progress.phase,
        seconds=context.seconds,
        message=error.message + final_state.trouble,
        hint=error.hint,
        version=progress.version,
        left_cordoned=final_state.is_cordoned,
        diagnosis=_diagnose(context, outcome),
        reason=error.reason if isinstance(error, NodeFailure) else None,
        finding=error.finding if isinstance(error, NodeFailure | MarkedByOtherError) else None,
        fixes=error.fixes,
        needed_drain_seconds=error.needed_seconds if isinstance(error, DrainError) else 0,
        edge=final_state.edge,
    )


def remember(context: NodeContext, end: NodeEnd) -> None:
    """Store nothing if the host's version is unknown."""
    planned = context.host.node_to_remember(context.planned)
    if planned is not None:
        context.engine.remember(planned, end)


def _explain_deletion(
    context: NodeContext, progress: Progress, error: RolloutError
) -> RolloutError:
    """Return another error if this one only follows from the Node's deletion.

    A deletion before the reboot is no failure, nor is one with the machine after it.
    """
    is_reboot_unproven = isinstance(error, NodeFailure) and error.outcome in _UNPROVEN
    may_follow_from_deletion = isinstance(error, ApiNotFoundError | MarksGoneError | DrainError)
    if not (is_reboot_unproven or may_follow_from_deletion):
        return error
    loss = find_node_loss(context)
    if loss is None:
        return error
    message = f"its Node was {loss}"
    if progress.phase in BEFORE_REBOOT:
        has_lost_marks = context.started_by_earlier_process and not progress.marked
        if has_lost_marks:
            # Only the deleted Node's marks said whether the host had to reboot already.
            message = f"{message} before the rollout was resumed"
        else:
            message = f"not rebooted: {message} while it was {progress.phase}"
        # A recreated Node still needs its reboot.
        reason = ExclusionReason.DELETING if loss is NodeLoss.DELETED else None
        return NodeFailure(Outcome.SKIPPED, message, reason=reason)
    if loss is NodeLoss.DELETED or has_other_machine(context):
        if is_reboot_unproven:
            message += f" after its reboot was requested: {error.message}"
        return NodeRemovedError(message)
    if is_reboot_unproven:
        # The same machine has registered again, so the error says more.
        return error
    return NodeFailure(
        Outcome.FAILED,
        f"its reboot is not verified: {message} after the reboot was requested",
        hint=f"Look at its host. Once its Node is Ready, run: rollout apply --node {context.name}",
    )


def _return_or_mark_failed(
    context: NodeContext, progress: Progress, outcome: Outcome
) -> _FinalState:
    """Do nothing without this rollout's marks. Raises `FencedError`."""
    # Another process may be working on the node.
    may_write = outcome is not Outcome.FENCED
    if not may_write or not _carries_marks(context, progress, outcome):
        # A node that this or an earlier process has cordoned stays so.
        is_cordoned_before = context.started_by_earlier_process and outcome is not Outcome.SKIPPED
        return _FinalState(None, is_cordoned=progress.marked or is_cordoned_before)
    edge = Edge.RETURNED if may_be_returned(outcome, progress.phase) else Edge.FAILED
    require_edge(progress.phase, edge)
    version = _known_version(context, progress, outcome)
    try:
        if edge is Edge.RETURNED:
            return_node(context, outcome, version)
        else:
            mark_failed(context, outcome, version)
    except (MarksGoneError, ApiNotFoundError):
        return _FinalState(None, is_cordoned=is_cordoned_now(context))
    except FencedError:
        raise
    except RolloutError as error:
        trouble = f"; and its rollout annotations could not be removed: {error.message}"
        return _FinalState(None, is_cordoned=True, trouble=trouble)
    return _FinalState(edge, is_cordoned=edge is Edge.FAILED)


def _carries_marks(context: NodeContext, progress: Progress, outcome: Outcome) -> bool:
    if progress.marked:
        return True
    if context.started_by_earlier_process:
        # `continue_from_marks` found no usable mark.
        return False
    if outcome is Outcome.SKIPPED:
        # `claim_and_cordon` has removed its own mark.
        return False
    # The first mark may have been written although its answer was lost.
    return is_marked_now(context)


def _known_version(context: NodeContext, progress: Progress, outcome: Outcome) -> str:
    if progress.version:
        return progress.version
    may_be_in_new_boot = outcome is Outcome.FAILED and progress.phase in AFTER_REBOOT
    if may_be_in_new_boot or outcome is Outcome.NOT_BACK:
        return ""
    # A host that has rebooted comes with a version.
    return context.planned.running_version


def _diagnose(context: NodeContext, outcome: Outcome) -> NodeDiagnosis:
    if not outcome.is_failure:
        return NodeDiagnosis()
    diagnosis = NodeDiagnosis()
    # Without an answer, only the SSH error is known.
    with suppress(ApiError):
        deadline = context.cluster.deadline_within(_DIAGNOSIS_SECONDS)
        diagnosis = retry_until(deadline, lambda: read_diagnosis(context.cluster.api, context.name))
    return replace(diagnosis, ssh_error=str(context.host.error or ""))
