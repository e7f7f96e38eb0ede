"""Waits for a rebooted host, and runs reboot.rescue once if the host does not come back.

The command may cut the power, so the host must be silent over SSH and through its kubelet: a broken
jump host alone must not power-cycle hosts. The Node is marked first, so that no other process runs
it again for this reboot.
"""

from collections.abc import Mapping

from rollout.errors import (
    ApiError,
    DrainError,
    FencedError,
    SshTimeoutError,
    SshUnreachableError,
    StepError,
)
from rollout.execution.drain.task import NodeTask
from rollout.execution.node.context import NodeContext, Rescue
from rollout.execution.node.failures import NodeFailure, NodeRemovedError
from rollout.execution.node.marking import MarksGoneError, change_node, require_mark
from rollout.execution.node.reboot import await_boot, look_again
from rollout.execution.node.ssh_host import SshHost, read_boot
from rollout.gather.hosts.probe import BootFacts
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.detection import Source
from rollout.model.progress import NodeRescued, Outcome, Phase
from rollout.model.rescue import RescueVariable
from rollout.model.soft_taint import Patch
from rollout.wording import rescue_text


class _NotRescuedError(StepError):
    """The command must not run for this host."""


def await_boot_or_rescue(
    context: NodeContext, host: SshHost, targets: Mapping[Source, str], *, in_doubt: bool
) -> BootFacts:
    """Wait as `await_boot`; if the host stays silent, run the rescue and wait once more."""
    try:
        return await_boot(context, host, targets, in_doubt=in_doubt)
    except NodeFailure as failure:
        rescue = context.engine.rescue
        if rescue is None or not _is_silent(host, failure):
            raise
        remark = _run_rescue(context, host, rescue, failure)
    try:
        # A reboot in doubt was requested in the first wait.
        return await_boot(context, host, targets)
    except NodeRemovedError:
        raise
    except NodeFailure as failure:
        raise _with_remark(failure, remark) from failure


def _is_silent(host: SshHost, failure: NodeFailure) -> bool:
    is_unreachable = isinstance(host.error, SshUnreachableError | SshTimeoutError)
    return failure.outcome is Outcome.NOT_BACK and is_unreachable


def _run_rescue(context: NodeContext, host: SshHost, rescue: Rescue, failure: NodeFailure) -> str:
    """Run the command; return what to say of it if the host does not come back.

    Raises the `failure` with the reason if the command must not run.
    """
    try:
        look_again(context, context.cluster.deadline())
        _mark_rescued(context)
    except (DrainError, MarksGoneError, ApiError, _NotRescuedError) as error:
        raise _with_remark(failure, f"reboot.rescue was not run: {error.message}") from error
    boot, _ = read_boot(host)
    if boot is not None:
        return "reboot.rescue was not run: the host responded"
    context.step(Phase.REBOOTING, "running reboot.rescue")
    environment: Mapping[str, str] = {
        RescueVariable.RUN: context.rollout,
        RescueVariable.NODE: context.name,
        RescueVariable.ADDRESS: host.host.address,
    }
    end = rescue(environment, stopped=lambda: _is_fenced(context))
    context.report.tell(NodeRescued(context.report.now, context.name, end.problem, end.output))
    context.check_may_act()
    return rescue_text(end.problem, end.output)


def _mark_rescued(task: NodeTask) -> None:
    """Mark that the rescue runs for this reboot; `_NotRescuedError` if it must not."""
    is_sent = False

    def change(node: Node) -> Patch | None:
        nonlocal is_sent
        require_mark(task, node)
        if node.annotations.get(marks.RESCUED) == task.planned.boot_id:
            if is_sent:
                # The answer to the write was lost.
                return None
            raise _NotRescuedError("it was started for this reboot before")
        if node.is_ready:
            raise _NotRescuedError("the kubelet of the host reports Ready")
        is_sent = True
        return {"metadata": {"annotations": {marks.RESCUED: task.planned.boot_id}}}

    change_node(task, change)


def _is_fenced(task: NodeTask) -> bool:
    try:
        task.check_may_act()
    except FencedError:
        return True
    return False


def _with_remark(failure: NodeFailure, remark: str) -> NodeFailure:
    return NodeFailure(failure.outcome, f"{failure.message}; {remark}", hint=failure.hint)
