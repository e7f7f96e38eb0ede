"""Requests a reboot, and waits until the machine has a new boot ID.

Last checks use the open connection to the host, right before the command.
"""

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
from rollout.execution.drain.returning import without_returning
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
# For connecting, asking what is staged, the last check and the command, which gets at least
# _COMMAND_SECONDS.
_REQUEST_SECONDS = 90.0
_CHECK_SECONDS = 10.0
_COMMAND_SECONDS = 15.0
# Longer than any default delay of a shutdown.
_SHUTDOWN_SECONDS = 120.0


class _NotNowError(StepError):
    """The host could not be asked, or the Node not checked, in time: nothing was sent."""


class RefilledError(DrainError):
    """Pods that have to leave are on the node again."""


class RebootDelivery(Enum):
    """Whether a host has received the request to reboot."""

    RECEIVED = auto()
    # The connection broke off while the command was sent.
    IN_DOUBT = auto()
    # The host has rebooted by itself.
    NOT_NEEDED = auto()


def check_drained_and_detached(task: NodeTask) -> None:
    """Like `check_still_drained`, then wait for the node's volumes."""
    check_still_drained(task, task.cluster.deadline())
    _await_detached(task)
    task.check_may_act()


def check_still_drained(task: NodeTask, deadline: Deadline) -> Node:
    """Check that the node is still cordoned, marked and drained, and return it.

    Raises:
        RefilledError: pods have arrived that can be evicted.
        DrainError: the node was uncordoned, its marks are gone, or a pod must not be evicted.
        FencedError: this process may no longer act.
        ApiError: the Node or its pods cannot be read in time.
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
    now = task.cluster.api.server_time()
    leaving = pods_to_remove(present, DrainRules.of(task.policy.drain, daemon_sets, now=now))
    pods = without_returning(leaving, task.returning_owners)
    if pods:
        raise RefilledError(f"{pods[0].key} was scheduled on {task.name} after the drain")


def _await_detached(task: NodeTask) -> None:
    """Wait for volumes; one that stays attached is only reported.

    `ApiError` if the attachments cannot be read in time.
    """
    deadline = task.cluster.deadline(min(DETACH_SECONDS, task.policy.drain.timeout))
    while attached := _attachments(task, deadline):
        if deadline.expired:
            task.report.notice(
                f"{task.name}: the volume {attached[0].volume} is still attached; continuing"
            )
            return
        detail = f"waiting for {counted(len(attached), 'volume')} to detach"
        task.report_step(Phase.DRAINED, detail, activity=Activity.WAITING)
        task.check_may_act()
        deadline.pause(_DETACH_PAUSE)


def _attachments(task: NodeTask, deadline: Deadline) -> tuple[VolumeAttachment, ...]:
    try:
        return task.cluster.ask(lambda api: read_attachments(api, task.name), deadline)
    except ApiError as error:
        if error.is_forbidden:
            # Without this right, no volume is waited for.
            return ()
        raise


def ask_for_reboot(
    context: NodeContext, host: SshHost, targets: Mapping[Source, str]
) -> RebootDelivery:
    """Send the reboot command, unless the host has rebooted by itself.

    Raises:
        NodeFailure: nothing was sent within --reboot-timeout, or a different machine answers.
        RebootError: the host refuses to reboot.
        DrainError: the last check forbids the reboot.
        RestagedError: another version is staged than `targets` say.
        WithheldError: the staged version is no longer approved.
    """
    deadline = context.cluster.deadline(context.policy.reboot_timeout)
    while True:
        try:
            result = _send_if_allowed(context, host, targets)
        except _NotNowError as error:
            _report_wait(context, host, f"the host cannot be asked to reboot yet: {error}")
            boot = _await_answer(context, host, deadline, error.message)
            if not is_in_old_boot(host, boot):
                return RebootDelivery.NOT_NEEDED
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
        else:
            if result is None:
                return RebootDelivery.NOT_NEEDED
            _require_accepted(result)
            return RebootDelivery.RECEIVED


def _require_accepted(result: CommandResult) -> None:
    if not _may_be_accepted(result):
        refusal = last_line(result.stderr) or f"exit status {result.exit_status}"
        raise RebootError(f"the host refuses to reboot: {refusal}")


def _may_be_accepted(result: CommandResult) -> bool:
    # A host that goes down at once reports no exit status.
    return result.exit_status in (0, None)


def _send_if_allowed(
    context: NodeContext, host: SshHost, targets: Mapping[Source, str]
) -> CommandResult | None:
    """Send the reboot command to the planned machine; None if it has rebooted already."""
    check = _LastCheck(context, host, targets, context.cluster.deadline(_REQUEST_SECONDS))
    try:
        return host.shell.run_if(
            host.endpoint,
            host.probe.last_question,
            check.may_reboot,
            host.reboot_command,
            timeout=_REQUEST_SECONDS,
        )
    except (SshTimeoutError, SshUnreachableError) as error:
        if check.is_passed:
            # The command may have been sent.
            raise
        raise _NotNowError(error.message) from error


@dataclass(slots=True)
class _LastCheck:
    context: NodeContext
    host: SshHost
    targets: Mapping[Source, str]
    deadline: Deadline
    is_passed: bool = False

    def may_reboot(self, answer: CommandResult) -> bool:
        boot = parse_boot(answer)
        if boot is None:
            raise _NotNowError("its response has no boot ID")
        if not is_in_old_boot(self.host, boot):
            return False
        difference = machine_difference(self.host, boot)
        if difference:
            raise NodeFailure(Outcome.REBOOT_REFUSED, f"not asked to reboot: {difference}")
        self._check_staged(answer, self._read_if_still_drained())
        if self.deadline.remaining < _COMMAND_SECONDS:
            raise _NotNowError("the last check of the Node took too long")
        self.is_passed = True
        return True

    def _read_if_still_drained(self) -> Node:
        try:
            return check_still_drained(self.context, self.context.cluster.deadline(_CHECK_SECONDS))
        except ApiError as error:
            if not is_transient(error):
                raise
            raise _NotNowError(text(ApiUnavailable(error.message))) from error

    def _check_staged(self, answer: CommandResult, node: Node) -> None:
        facts = parse_last_answer(self.host.endpoint, answer, self.host.probe)
        if self.context.policy.rollback and (facts is None or facts.detection.unanswered):
            # The host's other system may be half overwritten by now.
            raise _NotNowError(_why_rollback_unknown(facts))
        if facts is None:
            check_version(self.context, None)
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
    context: NodeContext, host: SshHost, deadline: Deadline, why_not_asked: str
) -> BootFacts:
    """Wait until the host, which was not asked to reboot yet, tells its boot."""
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
        why_not_asked = reason_to_wait
    raise NodeFailure(
        Outcome.REBOOT_REFUSED,
        "not asked to reboot within --reboot-timeout"
        f" {context.policy.reboot_timeout}: {why_not_asked}",
        hint=host.error.hint if host.error else "",
    )


def await_boot(
    context: NodeContext, host: SshHost, targets: Mapping[Source, str], *, in_doubt: bool = False
) -> BootFacts:
    """Wait until the host answers with a new boot ID; `NodeFailure` if it does not in time.

    `in_doubt`: an earlier request may be lost, so a host that still answers in the old boot is
    asked again, with the checks and errors of `ask_for_reboot`.
    """
    deadline = context.cluster.deadline(context.policy.reboot_timeout)
    doubt = _Doubt(context, host, targets) if in_doubt else None
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
            why_not_repeated = None
            if doubt is not None and not doubt.is_resolved:
                why_not_repeated = doubt.repeat_request()
            _report_wait(context, host, why_not_repeated or reason_to_wait)
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
class _Doubt:
    """Whether the host has received an earlier request to reboot."""

    context: NodeContext
    host: SshHost
    targets: Mapping[Source, str]
    is_resolved: bool = False
    # How long an earlier request has to show once this one is forbidden.
    earlier_request_ends: Deadline | None = None

    def repeat_request(self) -> str | None:
        """Request the reboot again; return why that is forbidden, or None.

        With None, the doubt may remain: the host was silent, or refused because it is going down.
        """
        try:
            result = _send_if_allowed(self.context, self.host, self.targets)
        except (SshError, _NotNowError):
            return None
        except WithheldError as error:
            return self._why_forbidden(error)
        except NodeFailure as error:
            # An earlier request may be taking the host down.
            raise NodeFailure(Outcome.NOT_BACK, error.message, hint=error.hint) from error
        except RefilledError:
            # A drain does no harm, even to such a host.
            raise
        except DrainError as error:
            return self._why_forbidden(error)
        self.is_resolved = result is None or _may_be_accepted(result)
        return None

    def _why_forbidden(self, error: DrainError | WithheldError) -> str:
        """Return the error as a text, or raise it once an earlier request has had time to show."""
        if self.earlier_request_ends is None:
            seconds = min(_SHUTDOWN_SECONDS, self.context.policy.reboot_timeout / 2)
            self.earlier_request_ends = self.context.cluster.deadline(seconds)
        if self.earlier_request_ends.expired:
            raise error
        return f"not asked to reboot again, only watched: {error.message}"
