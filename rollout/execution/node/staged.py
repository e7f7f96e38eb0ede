"""What a host has staged now.

A host may stage another version at any moment, even while its reboot is requested.
"""

from collections.abc import Mapping

from rollout.errors import StepError
from rollout.execution.node.context import NodeContext, with_staged_version
from rollout.execution.node.failures import NotStartedError, WithheldError
from rollout.execution.node.marking import mark_staged
from rollout.execution.node.rollback import objection_to_target
from rollout.model.detection import DEFAULT_SOURCES, Detection, Source
from rollout.model.finding import NoPreviousVersion
from rollout.model.plan import ExclusionReason
from rollout.model.progress import Phase


class RestagedError(StepError):
    """Another version is staged than the approved one."""


def is_approved(context: NodeContext, targets: Mapping[Source, str], detection: Detection) -> bool:
    """Whether the approved update is still staged; True if unknown."""
    if detection.unanswered:
        return True
    if detection.staged_version != context.planned.staged_version:
        return False
    # For update_engine alone, the version says everything, and no targets are kept.
    is_by_engine_alone = not targets and detection.needed_by == DEFAULT_SOURCES
    return is_by_engine_alone or detection.targets == targets


def check_staged(context: NodeContext, detection: Detection) -> None:
    """Raise `WithheldError` if nothing is staged any more, or a forbidden version."""
    if detection.unanswered:
        check_version(context, version=None)
        return
    is_update_gone = context.planned.staged and not detection.needs_reboot
    if is_update_gone:
        raise _no_update_error(context, detection)
    check_version(context, detection.staged_version)


def _no_update_error(context: NodeContext, detection: Detection) -> WithheldError:
    if context.policy.rollback:
        details = (sign.detail for sign in detection.signs)
        return WithheldError(finding=NoPreviousVersion("; ".join(details)))
    has_asked_engine_alone = tuple(sign.source for sign in detection.signs) == DEFAULT_SOURCES
    if has_asked_engine_alone:
        message = "the update is no longer staged"
    else:
        message = "no source reports a pending reboot any more"
    return WithheldError(message, ExclusionReason.NO_UPDATE)


def check_version(context: NodeContext, version: str | None) -> None:
    """`WithheldError` if the node may not boot this version; None if unknown."""
    objection = context.engine.objection_to_version(context.planned, version)
    if objection:
        raise WithheldError(finding=objection)


def approve_restaged(context: NodeContext, phase: Phase, detection: Detection) -> None:
    objection = objection_to_target(context, detection.staged_version)
    if objection:
        raise WithheldError(finding=objection)
    version_now = detection.staged_version or "an unknown version"
    earlier_version = context.planned.staged_version or "an unknown version"
    context.report_step(phase, f"{version_now} is staged now, instead of {earlier_version}")
    context = with_staged_version(context, detection.staged_version)
    try:
        context.engine.run_gate_command(context)
    except NotStartedError as error:
        # The node has started, so it has to be returned.
        raise WithheldError(error.message, error.reason, finding=error.finding) from error
    mark_staged(context, detection)
