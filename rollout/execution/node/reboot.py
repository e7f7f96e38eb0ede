"""Requests a reboot, and waits until the machine has a new boot ID."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from rollout.errors import (
    ApiError,
    DrainError,
    RebootError,
    SshError,
    SshTimeoutError,
    SshUnreachableError,
    StepError,
)
from rollout.execution.base.deadline import Deadline, is_transient
from rollout.execution.drain.drain import pods_to_remove
from rollout.execution.drain.returning import without_pods_of
from rollout.execution.drain.task import NodeTask
from rollout.execution.node.context import NodeContext
from rollout.execution.node.failures import NodeFailure, WithheldError
from rollout.execution.node.pace import ConnectionPace
from rollout.execution.node.rejoin import AbsenceLimit
from rollout.execution.node.ssh_host import (
    SshHost,
    is_host_silent,
    is_in_old_boot,
    machine_difference,
    missing_boot_failure,
    read_boot,
)
from rollout.execution.node.staged import RestagedError, check_staged, check_version, is_approved
from rollout.gather.cluster.snapshot import read_attachments, read_daemon_sets
from rollout.gather.hosts.identity import with_annotation_sign
from rollout.gather.hosts.probe import BootFacts, parse_boot, parse_last_answer
from rollout.model import marks
from rollout.model.cluster import Node, VolumeAttachment
from rollout.model.detection import Source
from rollout.model.finding import ApiUnavailable
from rollout.model.host import HostFacts
from rollout.model.progress import Activity, Outcome, Phase
from rollout.model.text import counted
from rollout.model.tool_output import last_line
from rollout.planning.drain.verdicts import DrainRules
from rollout.planning.play.pace import DETACH_SECONDS
from rollout.ports import CommandResult
from rollout.wording import text

_DETACH_PAUSE = 0.5
# The command gets at least _COMMAND_SECONDS of this time.
_REQUEST_SECONDS = 90.0
_CHECK_SECONDS = 10.0
_COMMAND_SECONDS = 15.0
# Longer than any default delay of a shutdown.
_SHUTDOWN_SECONDS = 120.0


class _NotSentError(StepError):
    """No command was sent, because the last check was not possible in time."""


class RefilledError(DrainError):
    """Pods that have to leave are on the node again."""


class RebootDelivery(Enum):
    RECEIVED = auto()
    # The connection broke off while the command was sent.
    IN_DOUBT = auto()
    # The host has rebooted by itself.
    NOT_NEEDED = auto()


def check_drained_and_detached(task: NodeTask) -> None:
    check_still_drained(task, task.cluster.deadline())
    _await_detached(task)
    task.check_may_act()


def check_still_drained(task: NodeTask, deadline: Deadline) -> Node:
    """Check that the node is still cordoned, marked and drained.

    Raises:
        RefilledError: pods have arrived that can be evicted.
        DrainError: the node was uncordoned, its marks are gone, or a pod must not be evicted.
    """
    node = task.read_node(deadline)
    if not node.unschedulable:
        raise DrainError(
            f"{task.name} was uncordoned outside this rollout before its reboot was requested"
        )
    if node.annotations.get(marks.RUN) != task.run_id:
        raise DrainError(
            f"rollout's annotations on {task.name} were removed before its reboot was requested"
        )
    _check_empty(task, deadline)
    task.check_may_act()
    return node


def _check_empty(task: NodeTask, deadline: Deadline) -> None:
    present = task.read_pods(deadline)
    daemon_sets = task.cluster.ask(read_daemon_sets, deadline)
    rules = DrainRules.of(task.policy.drain, daemon_sets, now=task.cluster.api.server_time())
    removable = pods_to_remove(present, rules)
    # The reboot stops pods that keep coming back.
    arrived = without_pods_of(task.returning_owners, removable)
    if arrived:
        raise RefilledError(f"{arrived[0].key} was scheduled on {task.name} after the drain")


def _await_detached(task: NodeTask) -> None:
    """`ApiError` if attachments cannot be read; one that stays is only reported."""
    deadline = task.cluster.deadline(min(DETACH_SECONDS, task.policy.drain.timeout))
    while True:
        attached = _read_attachments(task, deadline)
        if not attached:
            return
        if deadline.expired:
            task.report.notice(
                f"{task.name}: the volume {attached[0].volume} is still attached; continuing"
            )
            return
        detail = f"waiting for {counted(len(attached), 'volume')} to detach"
        task.report_step(Phase.DRAINED, detail, activity=Activity.WAITING)
        task.check_may_act()
        deadline.pause(_DETACH_PAUSE)


def _read_attachments(task: NodeTask, deadline: Deadline) -> tuple[VolumeAttachment, ...]:
    try:
        return task.cluster.ask(lambda api: read_attachments(api, task.name), deadline)
    except ApiError as error:
        if error.is_forbidden:
            # rollout may not read attachments here.
            return ()
        raise


def ask_for_reboot(
    context: NodeContext, host: SshHost, targets: Mapping[Source, str]
) -> RebootDelivery:
    """Try to send the reboot command until the deadline.

    Raises:
        NodeFailure: nothing was sent in time, or a different machine answers.
        RebootError: the host refuses to reboot.
        DrainError: the last check forbids the reboot.
        RestagedError: another version is staged than `targets` say.
        WithheldError: the staged version is no longer approved.
    """
    deadline = context.cluster.deadline(context.policy.reboot_timeout)
    while True:
        try:
            result = _send_reboot_command(context, host, targets)
        except _NotSentError as error:
            _report_wait(context, host, f"the host cannot be asked to reboot yet: {error}")
            boot = _await_answer(context, host, deadline, error.message)
            if not is_in_old_boot(host, boot):
                return RebootDelivery.NOT_NEEDED
            continue
        except SshTimeoutError as error:
            # The host answered on this connection: the command counts as received.
            _report_wait(context, host, f"no response to the reboot command: {error}")
            return RebootDelivery.RECEIVED
        except SshUnreachableError:
            return RebootDelivery.IN_DOUBT
        except SshError as error:
            raise RebootError(
                f"the host cannot be asked to reboot: {error}", hint=error.hint
            ) from error
        if result is None:
            return RebootDelivery.NOT_NEEDED
        if not _is_accepted(result):
            refusal = last_line(result.stderr) or f"exit status {result.exit_status}"
            raise RebootError(f"the host refuses to reboot: {refusal}")
        return RebootDelivery.RECEIVED


def _is_accepted(result: CommandResult) -> bool:
    # A host that goes down at once reports no exit status.
    return result.exit_status in (0, None)


def _send_reboot_command(
    context: NodeContext, host: SshHost, targets: Mapping[Source, str]
) -> CommandResult | None:
    """Return None if the machine has rebooted already.

    After an SSH error, the command may have been sent. After other errors, it was not.
    """
    check = _LastCheck(context, host, targets, context.cluster.deadline(_REQUEST_SECONDS))
    try:
        # All three use one connection.
        return host.shell.run_if(
            host.endpoint,
            host.probe.last_question,
            check.release_command,
            host.reboot_command,
            timeout=_REQUEST_SECONDS,
        )
    except (SshTimeoutError, SshUnreachableError) as error:
        if check.has_released_command:
            raise
        raise _NotSentError(error.message) from error


@dataclass(slots=True)
class _LastCheck:
    context: NodeContext
    host: SshHost
    # As approved.
    targets: Mapping[Source, str]
    # For the check and the command.
    deadline: Deadline
    # From then on, the command may have been sent.
    has_released_command: bool = False

    def release_command(self, answer: CommandResult) -> bool:
        """Return False if the host has rebooted already.

        An error means that the command must not be sent, or not yet.
        """
        boot = parse_boot(answer)
        if boot is None:
            raise _NotSentError("its response has no boot ID")
        if not is_in_old_boot(self.host, boot):
            return False
        difference = machine_difference(self.host, boot)
        if difference:
            raise NodeFailure(Outcome.REBOOT_REFUSED, f"not asked to reboot: {difference}")
        node = self._check_still_drained()
        self._check_staged(answer, node)
        if self.deadline.remaining < _COMMAND_SECONDS:
            raise _NotSentError("the last check of the Node took too long")
        self.has_released_command = True
        return True

    def _check_still_drained(self) -> Node:
        """An outage of the API server only delays the command."""
        try:
            return check_still_drained(self.context, self.context.cluster.deadline(_CHECK_SECONDS))
        except ApiError as error:
            if not is_transient(error):
                raise
            raise _NotSentError(text(ApiUnavailable(error.message))) from error

    def _check_staged(self, answer: CommandResult, node: Node) -> None:
        # None if the answer cannot be read.
        facts = parse_last_answer(self.host.endpoint, answer, self.host.probe)
        if self.context.policy.rollback and (facts is None or facts.detection.unanswered):
            # An update may be overwriting the version to go back to.
            raise _NotSentError(_why_rollback_unknown(facts))
        if facts is None:
            check_version(self.context, version=None)
            return
        detection = with_annotation_sign(facts, node).detection
        if not is_approved(self.context, self.targets, detection):
            raise RestagedError(f"{detection.staged_version or 'nothing'} is staged now")
        check_staged(self.context, detection)


def _why_rollback_unknown(facts: HostFacts | None) -> str:
    if facts is None:
        return "its response is incomplete"
    return "; ".join(sign.detail for sign in facts.detection.unanswered)


def _await_answer(
    context: NodeContext, host: SshHost, deadline: Deadline, why_not_sent: str
) -> BootFacts:
    pace = ConnectionPace(context, host)
    while not deadline.expired:
        pace.pause(deadline)
        try:
            boot, reason_to_wait = read_boot(host, deadline.remaining)
        except NodeFailure as failure:
            message = f"not asked to reboot: {failure.message}"
            raise NodeFailure(Outcome.REBOOT_REFUSED, message, hint=failure.hint) from failure
        pace.note_attempt()
        if boot is not None:
            return boot
        why_not_sent = reason_to_wait
    raise NodeFailure(
        Outcome.REBOOT_REFUSED,
        "not asked to reboot within --reboot-timeout"
        f" {context.policy.reboot_timeout}: {why_not_sent}",
        hint=host.error.hint if host.error else "",
    )


def await_boot(
    context: NodeContext, host: SshHost, targets: Mapping[Source, str], *, in_doubt: bool = False
) -> BootFacts:
    """`NodeFailure` without a new boot ID in time.

    `in_doubt`: the request was perhaps lost, so it is repeated in the old boot, as by
    `ask_for_reboot`.
    """
    deadline = context.cluster.deadline(context.policy.reboot_timeout)
    request = _RequestInDoubt(context, host, targets, is_resolved=not in_doubt)
    absence = AbsenceLimit(context)
    pace = ConnectionPace(context, host)
    while not deadline.expired:
        pace.pause(deadline)
        boot, reason_to_wait = read_boot(host, deadline.remaining)
        pace.note_attempt()
        if boot is not None and not is_in_old_boot(host, boot):
            return boot
        if boot is None:
            _report_wait(context, host, f"waiting for the host: {reason_to_wait}")
        else:
            objection = None if request.is_resolved else request.repeat()
            _report_wait(context, host, objection or reason_to_wait)
        absence.check()
    # Once more, with the full timeout.
    boot, reason_to_wait = read_boot(host)
    if boot is not None and not is_in_old_boot(host, boot):
        return boot
    raise missing_boot_failure(host, boot, reason_to_wait, context.policy.reboot_timeout)


def _report_wait(context: NodeContext, host: SshHost, detail: str) -> None:
    activity = Activity.HOST_DOWN if is_host_silent(host.error) else None
    context.report_step(Phase.REBOOTING, detail, activity=activity)


@dataclass(slots=True)
class _RequestInDoubt:
    """An earlier request to reboot that the host has perhaps not received.

    A host that shuts down still answers in its old boot, so the node is not given up at once.
    """

    context: NodeContext
    host: SshHost
    targets: Mapping[Source, str]
    is_resolved: bool = False
    # Time for the shutdown once a repetition is forbidden.
    shutdown_deadline: Deadline | None = None

    def repeat(self) -> str | None:
        """Return why another request is forbidden, or None.

        The doubt may remain if the host is silent or going down.
        """
        try:
            result = _send_reboot_command(self.context, self.host, self.targets)
        except (SshError, _NotSentError):
            return None
        except RefilledError:
            # Another drain does no harm to a host that is going down.
            raise
        except (DrainError, WithheldError) as error:
            self._raise_after_shutdown_time(error)
            return f"not asked to reboot again, only watched: {error.message}"
        except NodeFailure as error:
            # The host may be going down, so the node stays cordoned.
            raise NodeFailure(Outcome.NOT_BACK, error.message, hint=error.hint) from error
        self.is_resolved = result is None or _is_accepted(result)
        return None

    def _raise_after_shutdown_time(self, error: DrainError | WithheldError) -> None:
        if self.shutdown_deadline is None:
            seconds = min(_SHUTDOWN_SECONDS, self.context.policy.reboot_timeout / 2)
            self.shutdown_deadline = self.context.cluster.deadline(seconds)
        if self.shutdown_deadline.expired:
            raise error
