"""What a host has staged now, and whether its node may be booted into that.

A host may stage another version at any moment. What a node was admitted for is therefore compared with what its host
says: before the cordon, after the drain, and on the connection on which the reboot is requested. Another version is
judged as one that was planned would be; what follows then goes by that one.
"""

from collections.abc import Mapping

from rollout.errors import StepError
from rollout.execution.node.context import NodeContext, at_version
from rollout.execution.node.marking import mark_staged
from rollout.execution.node.transitions import NotStartedError, WithheldError
from rollout.model.detection import DEFAULT_SOURCES, Detection, Source
from rollout.model.plan import ExclusionReason
from rollout.model.progress import Phase


class RestagedError(StepError):
    """The host has staged another version than the one that its node was admitted for."""


def is_as_admitted(context: NodeContext, targets: Mapping[Source, str], detection: Detection) -> bool:
    """Whether a reboot would bring what the node was admitted for; true if the host does not tell."""
    if detection.unanswered:
        return True
    # of an engine that speaks alone no targets are marked
    is_by_engine_alone = not targets and detection.by == DEFAULT_SOURCES
    is_same_version = detection.version == context.planned.staged_version
    return is_same_version and (is_by_engine_alone or detection.targets == targets)


def check_staged(context: NodeContext, detection: Detection) -> None:
    """`WithheldError` if nothing asks for the reboot any more, or what it would bring is not admitted."""
    is_told = not detection.unanswered
    if context.planned.staged and is_told and not detection.needs_reboot:
        by_engine = tuple(sign.source for sign in detection.signs) == DEFAULT_SOURCES
        gone = "its staged update is gone" if by_engine else "nothing asks for its reboot any more"
        raise WithheldError(gone, ExclusionReason.NO_UPDATE)
    check_version(context, detection.version if is_told else None)


def check_version(context: NodeContext, version: str | None) -> None:
    """`WithheldError` if the node may not be booted into this version; None for one that its host does not tell."""
    if withheld := context.objection(context.planned, version):
        raise WithheldError(withheld.why, withheld.reason)


def admit_anew(context: NodeContext, phase: Phase, detection: Detection) -> None:
    """Ask the gate command about the version that is staged now, and mark the Node with it; `WithheldError`."""
    before = context.planned.staged_version
    now = detection.version
    staged = at_version(context, now)
    context.step(phase, f"{now or 'an unknown version'} is staged now, instead of {before or 'an unknown version'}")
    try:
        context.gates.before_node(staged)
    except NotStartedError as error:
        raise WithheldError(error.why, error.reason) from error
    mark_staged(staged, detection)
