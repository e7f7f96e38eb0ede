"""The reboot: a last look, the command, and the proof.

A reboot counts only when proven: the boot id read over SSH is another, the Node reports that boot id too (so its
kubelet has reported since), and it is Ready. No clocks are compared, and no NotReady is waited for: a fast reboot may
never show one.
"""

from rollout.errors import (
    ApiError,
    DrainError,
    HostKeyError,
    RebootError,
    SshError,
    SshTimeoutError,
    SshUnreachableError,
    StepError,
)
from rollout.execution.deadline import Deadline, patiently
from rollout.execution.draining.drain import must_go
from rollout.execution.draining.live_view import watch_node
from rollout.execution.draining.returning import not_left_to_the_reboot
from rollout.execution.node.context import NodeContext
from rollout.execution.node.failures import NodeFailure
from rollout.gather.cluster.snapshot import read_attachments, read_daemon_sets, read_node, read_node_pods
from rollout.gather.hosts.answer import complaint
from rollout.gather.hosts.boot import BOOT_COMMAND, BootFacts, parse_boot
from rollout.model.cluster import Node, VolumeAttachment
from rollout.model.progress import Outcome, Phase
from rollout.planning.verdicts import DrainRules
from rollout.ports import CommandResult

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 5.0
_SSH_SECONDS = 20.0
_DETACH_SECONDS = 120.0
_FORBIDDEN = 403


def last_look(context: NodeContext) -> None:
    """Still cordoned, still empty of what had to go, volumes detached: else `DrainError`."""
    deadline = Deadline(context.clock, context.api_patience)
    node = patiently(lambda: read_node(context.api, context.name), deadline, context.told_of_outage)
    if not node.unschedulable:
        raise DrainError(f"somebody uncordoned {context.name} while it was being drained")
    _check_empty(context, deadline)
    _await_detached(context)
    context.guard.check()


def _check_empty(context: NodeContext, deadline: Deadline) -> None:
    listing = patiently(lambda: read_node_pods(context.api, context.name), deadline, context.told_of_outage)
    owners = patiently(lambda: read_daemon_sets(context.api), deadline, context.told_of_outage)
    left = must_go(listing.pods, DrainRules.of(context.policy.drain, owners, now=context.api.server_time()))
    if left := not_left_to_the_reboot(left, context.returning):
        raise DrainError(f"{left[0].key} arrived on {context.name} after it was drained")


def _await_detached(context: NodeContext) -> None:
    """Wait, within bounds, for volumes: one that stays attached is reported, and does not stop the reboot."""
    deadline = Deadline(context.clock, min(_DETACH_SECONDS, context.policy.drain.timeout))
    while attached := _attachments(context, deadline):
        if deadline.expired:
            context.report.notice(f"{context.name}: the volume {attached[0].volume} is still attached; going on")
            return
        context.report.step(context.name, Phase.DRAINED, f"waiting for {len(attached)} volumes to detach")
        context.pause.wait(_FIRST_PAUSE)


def _attachments(context: NodeContext, deadline: Deadline) -> tuple[VolumeAttachment, ...]:
    """Volumes on the node; none where this user may not see them, of which the plan has warned."""
    try:
        return patiently(lambda: read_attachments(context.api, context.name), deadline, context.told_of_outage)
    except ApiError as error:
        if error.status == _FORBIDDEN:
            return ()
        raise


def ask_for_reboot(context: NodeContext) -> None:
    """Run the reboot command until the host has taken it, or has booted anew; `RebootError` where it refuses.

    A connection that ends before the command's answer counts as an answer, and so does a timeout: the command may have
    been carried out, and the proof decides. After a connection that was never made, or broke, the command is repeated
    only once the host was seen to be still in the boot from before: no host is ever asked to reboot twice.
    """
    deadline = Deadline(context.clock, context.policy.reboot_timeout)
    while not _has_been_asked(context):
        if not _is_in_the_same_boot(context, deadline):
            return


def _has_been_asked(context: NodeContext) -> bool:
    """Whether the command has, or may have, arrived; or is not wanted any more, for the host has booted anew."""
    try:
        result = _ask(context)
        if result is not None:
            _check_accepted(result)
    except SshTimeoutError as error:
        context.report.step(context.name, Phase.REBOOTING, f"no answer to the reboot command: {error}")
    except SshUnreachableError as error:
        context.report.step(context.name, Phase.REBOOTING, f"the host cannot be asked to reboot yet: {error}")
        return False
    except SshError as error:
        raise RebootError(f"the host cannot be asked to reboot: {error}", hint=error.hint) from error
    return True


def _ask(context: NodeContext) -> CommandResult | None:
    """The answer to the reboot command, which only the boot from before is given; None where that is over.

    Whether we still may is asked last, with the connection already open: reaching a host can take long.
    """

    def may_reboot(answer: CommandResult) -> bool:
        facts = parse_boot(answer)
        context.guard.check()
        return facts is not None and facts.boot_id == context.planned.boot_id

    return context.shell.run_if(context.host, BOOT_COMMAND, may_reboot, context.reboot_command, timeout=_SSH_SECONDS)


def _ask_again(context: NodeContext) -> bool:
    """Ask a host that may have been asked before; whether it took it. Going down it may refuse: no verdict."""
    try:
        result = _ask(context)
    except SshError:
        return False
    return result is None or result.exit_status in (0, None)


def _is_in_the_same_boot(context: NodeContext, deadline: Deadline) -> bool:
    """Look until the host answers: whether with the boot id from before."""
    last = "it did not answer"
    while not deadline.expired:
        context.pause.wait(min(_FIRST_PAUSE, deadline.remaining))
        facts, last = _look(context, deadline)
        if facts is not None:
            return facts.boot_id == context.planned.boot_id
    raise _no_boot(context, last)


def _check_accepted(result: CommandResult) -> None:
    if result.exit_status not in (0, None):
        said = complaint(result.stderr) or f"exit status {result.exit_status}"
        raise RebootError(f"the host refuses to reboot: {said}")


def await_boot(context: NodeContext, *, in_doubt: bool = False) -> BootFacts:
    """Facts of the next boot, once the host answers with another boot id.

    Where it is in doubt whether the host was asked, it is asked as soon as it answers with the boot id from before.
    """
    deadline = Deadline(context.clock, context.policy.reboot_timeout)
    pause, last, told = _FIRST_PAUSE, "no attempt was made", ""
    while not deadline.expired:
        context.pause.wait(min(pause, deadline.remaining))
        pause = min(_LONGEST_PAUSE, pause * 1.5)
        facts, last = _look(context, deadline)
        if facts is not None and facts.boot_id != context.planned.boot_id:
            return facts
        if facts is not None and in_doubt:
            in_doubt = not _ask_again(context)
        if last != told:
            told = last
            context.report.step(context.name, Phase.REBOOTING, last)
    raise _no_boot(context, last)


def look_once(context: NodeContext) -> BootFacts | None:
    """Facts of the boot that the host is in now, or None where it does not answer, or not as itself."""
    try:
        facts, _said = _look(context, Deadline(context.clock, _SSH_SECONDS))
    except NodeFailure:
        return None
    return facts


def _look(context: NodeContext, deadline: Deadline) -> tuple[BootFacts | None, str]:
    try:
        result = context.shell.run(context.host, BOOT_COMMAND, timeout=min(_SSH_SECONDS, max(1.0, deadline.remaining)))
    except HostKeyError as error:
        # No amount of waiting mends this, and nothing that such a host says may be believed.
        raise NodeFailure(Outcome.NOT_BACK, f"the host cannot be trusted: {error}", hint=error.hint) from error
    except SshError as error:
        return None, f"waiting for the host: {error}"
    facts = parse_boot(result)
    if facts is None:
        return None, "waiting for the host: it gave no boot id"
    return facts, "still up with the boot id from before"


def _no_boot(context: NodeContext, last: str) -> StepError:
    """A host that still answers with its old boot id works as before; one that is away does not."""
    facts, _said = _look(context, Deadline(context.clock, _SSH_SECONDS))
    if facts is not None and facts.boot_id == context.planned.boot_id:
        return NodeFailure(
            Outcome.NOT_REBOOTED,
            f"the host did not reboot within --reboot-timeout {context.policy.reboot_timeout}: same boot id as before",
            hint="See `systemd-inhibit --list` and `systemctl list-jobs` on the host.",
        )
    return NodeFailure(
        Outcome.NOT_BACK,
        f"the host is not back within --reboot-timeout {context.policy.reboot_timeout} ({last})",
        hint="Look at its console: firmware, boot loader, a disk or a network that is waited for.",
    )


def await_ready(context: NodeContext, boot: BootFacts) -> None:
    """Return when the kubelet of this boot reports Ready."""
    deadline = Deadline(context.clock, context.policy.ready_timeout)
    told = ""
    with watch_node(context.api, context.name, deadline, context.told_of_outage) as view:
        while not deadline.expired:
            nodes = view.items()
            missing = _not_ready_because(nodes[0] if nodes else None, boot)
            if not missing:
                return
            if missing != told:
                told = missing
                context.report.step(context.name, Phase.BOOTED, missing)
            view.wait(min(5.0, deadline.remaining))
    raise NodeFailure(
        Outcome.NOT_READY,
        f"the Node is not Ready within --ready-timeout {context.policy.ready_timeout}: {told}",
        hint=f"See: kubectl describe node {context.name}; journalctl -u kubelet on the host",
    )


def _not_ready_because(node: Node | None, boot: BootFacts) -> str:
    if node is None:
        return "the Node is gone"
    if node.boot_id != boot.boot_id:
        return "waiting for its kubelet to report this boot"
    if not node.is_ready:
        return f"waiting for Ready{': ' + node.ready_message if node.ready_message else ''}"
    return ""


def check_version(context: NodeContext, staged_version: str, *, staged: bool, boot: BootFacts) -> None:
    """The host runs what was staged; else `NodeFailure`, for a node that works as it did before."""
    if not staged or (staged_version and boot.version == staged_version):
        return
    before = context.planned.running_version
    if not staged_version and boot.version != before:
        return
    expected = staged_version or "another version"
    raise NodeFailure(
        Outcome.ROLLED_BACK,
        f"the host rebooted into {boot.version}, not into {expected}: the update did not take",
        hint="See `journalctl -u update-engine` and the boot entries on the host.",
    )
