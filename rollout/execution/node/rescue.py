"""Runs reboot.rescue once if a rebooted host does not come back.

The command may cut the power, so the kubelet must be silent, too: a broken jump host alone must not
power-cycle hosts. The Node is marked first, so that the command never runs twice for one reboot.
"""

from collections.abc import Mapping

from rollout.errors import (
    ApiError,
    FencedError,
    InputError,
    SshBrokenError,
    SshError,
    SshStalledError,
    SshTimeoutError,
    SshUnreachableError,
    StepError,
)
from rollout.execution.base.gate_ports import Rescue
from rollout.execution.drain.task import NodeTask
from rollout.execution.node.context import NodeContext
from rollout.execution.node.failures import NodeFailure, NodeRemovedError
from rollout.execution.node.marking import change_node, require_mark
from rollout.execution.node.reboot import await_boot, check_still_drained
from rollout.execution.node.ssh_host import SshHost
from rollout.gather.hosts.probe import BootFacts
from rollout.model import marks
from rollout.model.cluster import ConditionStatus, Node
from rollout.model.detection import Source
from rollout.model.progress import NodeRescued, Outcome, Phase
from rollout.model.rescue import RescueVariable
from rollout.model.soft_taint import Patch
from rollout.wording import rescue_text


def await_boot_or_rescue(
    context: NodeContext, host: SshHost, targets: Mapping[Source, str], *, in_doubt: bool
) -> BootFacts:
    try:
        return await_boot(context, host, targets, in_doubt=in_doubt)
    except NodeFailure as failure:
        rescue = context.engine.rescue
        if rescue is None or not _may_rescue_help(host, failure):
            raise
        remark = _run_rescue(context, host, rescue, failure)
    try:
        # After a rescue, no reboot is requested again.
        return await_boot(context, host, targets)
    except NodeRemovedError:
        raise
    except NodeFailure as failure:
        raise _with_remark(failure, remark) from failure


def _may_rescue_help(host: SshHost, failure: NodeFailure) -> bool:
    return failure.outcome is Outcome.NOT_BACK and _is_unreachable(host.error)


def _is_unreachable(error: SshError | None) -> bool:
    if isinstance(error, SshBrokenError | SshStalledError):
        return False
    return isinstance(error, SshUnreachableError | SshTimeoutError)


def _run_rescue(context: NodeContext, host: SshHost, rescue: Rescue, failure: NodeFailure) -> str:
    """Return what to add to the failure if the host still does not come back.

    Raises `failure` with the reason if the rescue must not run.
    """
    try:
        check_still_drained(context, context.cluster.deadline())
        _mark_rescued(context)
    except (FencedError, NodeRemovedError):
        raise
    except (StepError, ApiError) as error:
        raise _with_remark(failure, f"reboot.rescue was not run: {error.message}") from error
    # The host may have come back; asking it renews `host.error`.
    host.boot_now()
    if not _is_unreachable(host.error):
        return "reboot.rescue was not run: the host responded"
    context.report_step(Phase.REBOOTING, "running reboot.rescue")
    environment: Mapping[str, str] = {
        RescueVariable.RUN: context.run_id,
        RescueVariable.NODE: context.name,
        RescueVariable.ADDRESS: host.endpoint.address,
    }
    try:
        end = rescue(environment, is_stopped=lambda: _is_fenced(context))
    except InputError as error:
        raise _with_remark(failure, f"reboot.rescue was not run: {error.message}") from error
    context.report.tell(NodeRescued(context.report.now, context.name, end.problem, end.output))
    context.check_may_act()
    return rescue_text(end.problem, end.output)


def _mark_rescued(task: NodeTask) -> None:
    # `patch_to_mark_rescued` runs again after a conflict or an outage.
    has_tried_to_write = False

    def patch_to_mark_rescued(node: Node) -> Patch | None:
        nonlocal has_tried_to_write
        require_mark(task, node)
        if node.annotations.get(marks.RESCUED) == task.planned.boot_id:
            if has_tried_to_write:
                # The answer to an earlier write was lost.
                return None
            raise StepError("it may already have been started for this reboot")
        # A kubelet that reports NotReady is up.
        if node.ready is not ConditionStatus.UNKNOWN:
            raise StepError(f"its Node's Ready condition is {node.ready}, not Unknown")
        has_tried_to_write = True
        return {"metadata": {"annotations": {marks.RESCUED: task.planned.boot_id}}}

    change_node(task, patch_to_mark_rescued)


def _is_fenced(task: NodeTask) -> bool:
    try:
        task.check_may_act()
    except FencedError:
        return True
    return False


def _with_remark(failure: NodeFailure, remark: str) -> NodeFailure:
    return NodeFailure(failure.outcome, f"{failure.message}; {remark}", hint=failure.hint)
