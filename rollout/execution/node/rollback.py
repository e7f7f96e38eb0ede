"""A rollback's target must not change, and a failed rollback is undone.

The reboot's command also chooses the other system, so a host that has not booted it is told to boot
what it runs.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from rollout.errors import FencedError, RolloutError, SshError
from rollout.execution.drain.task import NodeTask
from rollout.execution.node.context import NodeContext
from rollout.execution.node.failures import NodeFailure
from rollout.execution.node.ssh_host import (
    SSH_SECONDS,
    SshHost,
    is_in_planned_boot,
    machine_difference,
)
from rollout.gather.hosts.probe import BOOT_COMMAND, BootFacts, parse_boot
from rollout.gather.hosts.rollback_command import BOOT_RUNNING_COMMAND
from rollout.model.finding import PreviousVersionChanged
from rollout.model.plan import PlannedNode
from rollout.model.progress import Outcome
from rollout.model.tool_output import last_line
from rollout.ports import CommandResult

_NOT_UNDONE = "its next reboot may boot its other version, because the rollback cannot be undone"


def changed_target(task: NodeTask, version: str) -> PreviousVersionChanged | None:
    planned = task.planned.staged_version
    if not task.policy.rollback or version == planned:
        return None
    return PreviousVersionChanged(planned, version)


def prove_rollback(planned: PlannedNode, version: str, boot: BootFacts, *, target: str) -> None:
    """`NodeFailure` if the host does not run the version that the rollback was to boot."""
    is_partition = target.startswith("/")
    if not is_partition:
        # Their os-release may name another version, or the same one: the digest is the proof.
        return
    if boot.version == version:
        return
    what = "still runs" if boot.version == planned.running_version else "runs"
    raise NodeFailure(
        Outcome.ROLLED_BACK,
        f"the host rebooted, and {what} {boot.version} instead of {version}: the rollback did not"
        " take effect",
        see=("cgpt show on the host",),
    )


@contextmanager
def undoing_rollback(context: NodeContext, host: SshHost) -> Iterator[None]:
    """After an error, make the host boot again what it runs."""
    try:
        yield
    except FencedError:
        # Another process may have the node now, and roll it back.
        raise
    except RolloutError as error:
        # A host that is not back has left its old boot.
        is_away = isinstance(error, NodeFailure) and error.outcome is Outcome.NOT_BACK
        if context.policy.rollback and not is_away:
            trouble = undo_rollback(host)
            if trouble:
                context.report.notice(f"warning: {context.name}: {trouble}")
        raise


def undo_rollback(host: SshHost) -> str:
    """Make a host that still runs its old version boot that again; return why this failed.

    Empty if it worked, or if the host runs another version.
    """
    planned = host.planned

    def runs_old_version(answer: CommandResult) -> bool:
        boot = parse_boot(answer)
        if boot is None or machine_difference(host, boot):
            return False
        return is_in_planned_boot(host, boot) or boot.version == planned.running_version

    try:
        result = host.shell.run_if(
            host.host,
            BOOT_COMMAND,
            runs_old_version,
            BOOT_RUNNING_COMMAND,
            timeout=SSH_SECONDS,
        )
    except SshError as error:
        return f"{_NOT_UNDONE}: {error}"
    if result is None or result.exit_status == 0:
        return ""
    complaint = last_line(result.stderr) or f"exit status {result.exit_status}"
    return f"{_NOT_UNDONE}: {complaint}"
