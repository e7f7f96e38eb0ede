"""Checks of rollbacks: the target must not change, and failures are undone.

The reboot command also chooses the other system, so a host that has not booted it is told to boot
what it runs. Here `staged_version` is the version to go back to, and `running_version` the one to
leave.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rollout.errors import FencedError, RolloutError, SshError, StepError
from rollout.execution.drain.task import NodeTask
from rollout.execution.node.context import UNKNOWN_BOOT, NodeContext
from rollout.execution.node.failures import NodeFailure, NodeRemovedError, StoppedError
from rollout.execution.node.ssh_host import SshHost, is_in_old_boot, machine_difference
from rollout.gather.hosts.probe import BOOT_COMMAND, BootFacts, parse_boot
from rollout.gather.hosts.rollback_command import BOOT_RUNNING_COMMAND
from rollout.model.finding import PreviousVersionChanged
from rollout.model.plan import PlannedNode
from rollout.model.progress import Outcome
from rollout.model.tool_output import last_line
from rollout.ports import CommandResult

# For connecting, asking and the command.
_UNDO_SECONDS = 90.0
_NOT_UNDONE = "its next reboot may boot its other version, because undoing the rollback failed"


def objection_to_target(task: NodeTask, version: str) -> PreviousVersionChanged | None:
    planned = task.planned.staged_version
    if not task.policy.rollback or version == planned:
        return None
    return PreviousVersionChanged(planned, version)


def is_partition(target: str) -> bool:
    """Whether the target is a device, as on Flatcar; others are digests."""
    return target.startswith("/")


def prove_rollback(
    planned: PlannedNode, staged_version: str, boot: BootFacts, *, target: str
) -> None:
    """`NodeFailure` if the host does not run `staged_version`.

    `target` is the partition or the digest that it had to boot.
    """
    if not is_partition(target):
        # `missing_in_sign` compares the digest: os-release may name either version.
        return
    if boot.running_version == staged_version:
        return
    verb = "is still running" if boot.running_version == planned.running_version else "is running"
    raise NodeFailure(
        Outcome.ROLLED_BACK,
        f"the host rebooted, and {verb} {boot.running_version} instead of {staged_version}:"
        " the rollback did not take effect",
        see=("cgpt show on the host",),
    )


@contextmanager
def undoing_failed_rollback(
    context: NodeContext, host: SshHost, boot: BootFacts = UNKNOWN_BOOT
) -> Iterator[None]:
    """If the block fails in a rollback, make the host boot what it runs.

    `boot` is the last one seen, perhaps of the version to leave.
    """
    try:
        yield
    except FencedError:
        # Another process may have the node now.
        raise
    except StoppedError:
        # The reboot command was not sent.
        raise
    except RolloutError as error:
        has_rolled_back = boot.running_version not in ("", context.planned.running_version)
        may_undo = not has_rolled_back and not _is_host_gone_or_down(error)
        if context.policy.rollback and may_undo:
            # Whoever holds the lock may have chosen the other version again.
            with suppress(StoppedError):
                context.check_may_act()
            trouble = undo_rollback(host)
            if trouble:
                error.message = f"{error.message}; {trouble}"
        raise


def _is_host_gone_or_down(error: RolloutError) -> bool:
    is_down = isinstance(error, NodeFailure) and error.outcome is Outcome.NOT_BACK
    return is_down or isinstance(error, NodeRemovedError)


def undo_earlier_rollback(context: NodeContext) -> None:
    """Undo what an earlier process could not; `StepError` if that fails.

    The node may end before its reboot, and must not boot the other version later.
    """
    if not context.policy.rollback or not isinstance(context.host, SshHost):
        return
    trouble = undo_rollback(context.host)
    if trouble:
        raise StepError(trouble)


def undo_rollback(host: SshHost) -> str:
    """If the host still runs the version to leave, let its next reboot boot it.

    Returns why that failed; empty if it worked, or if another version runs.
    """

    def runs_version_to_leave(answer: CommandResult) -> bool:
        boot = parse_boot(answer)
        if boot is None:
            raise StepError("its response has no boot ID")
        difference = machine_difference(host, boot)
        if difference:
            raise StepError(difference)
        # In a new boot, the bootloader may have fallen back.
        runs_planned_version = boot.running_version == host.planned.running_version
        return runs_planned_version or is_in_old_boot(host, boot)

    try:
        # None if the second command was not needed.
        result = host.shell.run_if(
            host.endpoint,
            BOOT_COMMAND,
            runs_version_to_leave,
            BOOT_RUNNING_COMMAND,
            timeout=_UNDO_SECONDS,
        )
    except (SshError, StepError) as error:
        return f"{_NOT_UNDONE}: {error}"
    if result is None or result.exit_status == 0:
        return ""
    complaint = last_line(result.stderr) or f"exit status {result.exit_status}"
    return f"{_NOT_UNDONE}: {complaint}"
