"""The reboot: the last look before it, the command, and the first half of its proof, another boot id of the machine.

There is one way to ask for it, and every ask goes it, the first and each later one, in this process
and any other. The last look (still cordoned, still empty of what had to go, volumes detached) is
taken before the reboot is announced on the Node. Then, with the connection to the host open, the
host must be the node's machine in the boot from before, and what can change within a moment is
looked at once more. Then the command is sent, and nothing else comes between.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rollout.errors import (
    ApiError,
    DrainError,
    RebootError,
    SshError,
    SshTimeoutError,
    SshUnreachableError,
    StepError,
)
from rollout.execution.base.deadline import Deadline, is_passing
from rollout.execution.drain.drain import must_go
from rollout.execution.drain.returning import without_returning
from rollout.execution.drain.task import NodeTask
from rollout.execution.node.context import NodeContext
from rollout.execution.node.failures import NodeFailure, WithheldError
from rollout.execution.node.rejoin import Absence
from rollout.execution.node.ssh_host import (
    SshHost,
    in_boot_before,
    is_host_silent,
    look,
    no_boot,
    other_machine,
)
from rollout.execution.node.staged import RestagedError, check_staged, check_version, is_as_admitted
from rollout.gather.cluster.snapshot import read_attachments, read_daemon_sets
from rollout.gather.hosts.identity import with_node
from rollout.gather.hosts.probe import BootFacts, parse_boot, parse_last_answer
from rollout.model import marks
from rollout.model.cluster import Node, VolumeAttachment
from rollout.model.detection import Source
from rollout.model.progress import Activity, Outcome, Phase
from rollout.model.tool_output import last_line
from rollout.planning.drain.verdicts import DrainRules
from rollout.ports import CommandResult

_PAUSE = 0.5
_DETACH_SECONDS = 120.0


class RefilledError(DrainError):
    """Pods that have to go are on the node again, which is still cordoned: it can be drained once more."""


def last_look(task: NodeTask) -> None:
    """Still cordoned, still empty of what had to go, volumes detached: else `DrainError`."""
    look_again(task, task.cluster.deadline())
    _await_detached(task)
    task.check()


def look_again(task: NodeTask, deadline: Deadline) -> Node:
    """Check what anybody may undo at any moment, and return the Node; `ApiError` if it cannot be read in time.

    Raises:
        RefilledError: pods have come that can be evicted again. DrainError: somebody uncordoned the
        node, or took our marks away, or a pod has come that must not be touched. FencedError: this
        process may not act any more.
    """
    node = task.node(deadline)
    if not node.unschedulable:
        raise DrainError(
            f"{task.name} was uncordoned outside this rollout before its reboot was asked for"
        )
    if node.annotations.get(marks.RUN) != task.rollout:
        raise DrainError(f"our marks on {task.name} were removed before its reboot was asked for")
    _check_empty(task, deadline)
    task.check()
    return node


def _check_empty(task: NodeTask, deadline: Deadline) -> None:
    present = task.pods(deadline)
    owners = task.cluster.ask(read_daemon_sets, deadline)
    pods = must_go(
        present, DrainRules.of(task.policy.drain, owners, now=task.cluster.api.server_time())
    )
    if pods := without_returning(pods, task.returning):
        raise RefilledError(f"{pods[0].key} arrived on {task.name} after it was drained")


def _await_detached(task: NodeTask) -> None:
    """Wait, within bounds, for volumes: one that stays attached is reported, and does not stop the reboot."""
    deadline = task.cluster.deadline(min(_DETACH_SECONDS, task.policy.drain.timeout))
    while attached := _attachments(task, deadline):
        if deadline.expired:
            task.report.notice(
                f"{task.name}: the volume {attached[0].volume} is still attached; going on"
            )
            return
        detail = f"waiting for {len(attached)} volumes to detach"
        task.step(Phase.DRAINED, detail, activity=Activity.WAITING)
        task.check()
        deadline.pause(_PAUSE)


def _attachments(task: NodeTask, deadline: Deadline) -> tuple[VolumeAttachment, ...]:
    """Volumes on the node; none where this user may not see them, of which the plan has warned."""
    try:
        return task.cluster.ask(lambda api: read_attachments(api, task.name), deadline)
    except ApiError as error:
        if error.is_forbidden:
            return ()
        raise


_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 5.0
_LOOKS_IN_A_WAIT = 5
# One request for a reboot: connecting, what the host has staged, the last look, and the command.
# The steps before the command must leave it _COMMAND_SECONDS.
_ASK_SECONDS = 90.0
_LOOK_SECONDS = 10.0
_COMMAND_SECONDS = 15.0
# A host that was asked is down by then, unless something on it delays shutdowns for longer than any
# default does.
_DOUBT_SECONDS = 120.0


class _NotNowError(StepError):
    """The last look could not be taken in time: nothing was sent to the host."""


def ask_for_reboot(context: NodeContext, host: SshHost, targets: Mapping[Source, str]) -> None:
    """Run the reboot command until the host has taken it, or has booted anew; `RebootError` where it refuses.

    A connection that ends before the command's answer counts as an answer, and so does a timeout:
    the command may have been carried out, and the proof decides. After a connection that was never
    made, or broke, the command is repeated only once the host was seen to be still in the boot from
    before: no host is ever asked to reboot twice.

    Raises:
        DrainError: the last look has found something that keeps the node from being rebooted.
        RestagedError: the host has staged another version than the one with these `targets`.
        WithheldError: the staged version is not admitted any more.
    """
    deadline = context.cluster.deadline(context.policy.reboot_timeout)
    while not _has_been_asked(context, host, targets):
        if not _is_in_the_same_boot(context, host, deadline):
            return


def _has_been_asked(context: NodeContext, host: SshHost, targets: Mapping[Source, str]) -> bool:
    """Whether the command has, or may have, arrived; or is not wanted any more, for the host has booted anew."""
    try:
        result = _ask(context, host, targets)
        if result is not None and result.exit_status not in (0, None):
            refusal = last_line(result.stderr) or f"exit status {result.exit_status}"
            raise RebootError(f"the host refuses to reboot: {refusal}")
    except SshTimeoutError as error:
        _report_reboot(context, host, f"no answer to the reboot command: {error}")
    except (SshUnreachableError, _NotNowError) as error:
        _report_reboot(context, host, f"the host cannot be asked to reboot yet: {error}")
        return False
    except SshError as error:
        raise RebootError(
            f"the host cannot be asked to reboot: {error}", hint=error.hint
        ) from error
    return True


def _ask(
    context: NodeContext, host: SshHost, targets: Mapping[Source, str]
) -> CommandResult | None:
    """Return the answer to the reboot command, which only the node's machine in the boot from before is given.

    None if that boot is over. The last checks come after the connection is open, because reaching a
    host can take long. On the same connection the host says what it has staged.
    """
    started = context.cluster.deadline(_ASK_SECONDS)

    def may_reboot(answer: CommandResult) -> bool:
        boot = parse_boot(answer)
        if boot is None:
            raise _NotNowError("its answer holds no boot id")
        if not in_boot_before(host, boot):
            return False
        if why := other_machine(host, boot):
            raise NodeFailure(Outcome.REBOOT_REFUSED, f"not asked to reboot: {why}")
        _check_may_reboot(context, host, targets, answer)
        if started.remaining < _COMMAND_SECONDS:
            raise _NotNowError("the last check of the Node took too long")
        return True

    question = host.probe.last_question
    return host.shell.run_if(
        host.host, question, may_reboot, host.reboot_command, timeout=_ASK_SECONDS
    )


def _check_may_reboot(
    context: NodeContext, host: SshHost, targets: Mapping[Source, str], answer: CommandResult
) -> None:
    try:
        node = look_again(context, context.cluster.deadline(_LOOK_SECONDS))
    except ApiError as error:
        if not is_passing(error):
            raise
        raise _NotNowError(f"the API server is unavailable: {error.message}") from error
    facts = parse_last_answer(host.host, answer, host.probe)
    if facts is None:
        check_version(context, None)
        return
    detection = with_node(facts, node).detection
    if not is_as_admitted(context, targets, detection):
        raise RestagedError(f"{detection.version or 'nothing'} is staged now")
    check_staged(context, detection)


def _is_in_the_same_boot(context: NodeContext, host: SshHost, deadline: Deadline) -> bool:
    """Look until the host answers: whether with the boot id from before."""
    last = "it did not answer"
    while not deadline.expired:
        deadline.pause(_FIRST_PAUSE)
        facts, last = look(host, deadline.remaining)
        if facts is not None:
            return in_boot_before(host, facts)
    raise no_boot(host, last, context.policy.reboot_timeout)


def await_boot(
    context: NodeContext, host: SshHost, targets: Mapping[Source, str], *, in_doubt: bool = False
) -> BootFacts:
    """Facts of the next boot, once the host answers with another boot id.

    Where it is in doubt whether the host was asked, it is asked as `ask_for_reboot` does as soon as
    it answers with the boot id from before, if the last look holds. `DrainError` or `WithheldError`
    where it does not, and the host has not rebooted by an earlier ask either; `NodeRemovedError`
    where the machine was taken away.
    """
    deadline = context.cluster.deadline(context.policy.reboot_timeout)
    doubt = _Doubt(context, host, targets) if in_doubt else None
    absence = Absence(context)
    began = context.now
    last = "no attempt was made"
    while not deadline.expired:
        deadline.pause(_pause(context.now - began))
        facts, last = look(host, deadline.remaining)
        if facts is not None and not in_boot_before(host, facts):
            return facts
        if facts is not None and doubt is not None:
            last = doubt.ask() or last
            doubt = doubt if doubt.stands else None
        _report_reboot(context, host, last if facts else f"waiting for the host: {last}")
        absence.check()
    raise no_boot(host, last, context.policy.reboot_timeout)


def _report_reboot(context: NodeContext, host: SshHost, detail: str) -> None:
    activity = Activity.HOST_DOWN if is_host_silent(host.error) else None
    context.step(Phase.REBOOTING, detail, activity=activity)


def _pause(waited: float) -> float:
    """Seconds until the next look at a host: a boot is seen when it has taken little longer than it did."""
    return min(_LONGEST_PAUSE, max(_FIRST_PAUSE, waited / _LOOKS_IN_A_WAIT))


@dataclass(slots=True)
class _Doubt:
    """Whether the host of a node that is marked as rebooting was asked by the process that marked it."""

    context: NodeContext
    host: SshHost
    targets: Mapping[Source, str]
    stands: bool = True
    refused: Deadline | None = None

    def ask(self) -> str:
        """Ask the host, which answers in the boot from before; why it was not asked, empty where it was.

        Going down it may refuse: that is no verdict. `RefilledError` at once, for draining does no
        harm to a host that was asked before; what else keeps it from being asked is raised once it
        surely was not.
        """
        try:
            result = _ask(self.context, self.host, self.targets)
        except (SshError, _NotNowError):
            return ""
        except WithheldError as error:
            return self._wait(error)
        except NodeFailure as error:
            # Unlike one that was surely not asked, it may be away.
            raise NodeFailure(Outcome.NOT_BACK, error.message, hint=error.hint) from error
        except RefilledError:
            raise
        except DrainError as error:
            return self._wait(error)
        self.stands = not (result is None or result.exit_status in (0, None))
        return ""

    def _wait(self, error: DrainError | WithheldError) -> str:
        """Give an earlier ask the time to show."""
        if self.refused is None:
            seconds = min(_DOUBT_SECONDS, self.context.policy.reboot_timeout / 2)
            self.refused = self.context.cluster.deadline(seconds)
        if self.refused.expired:
            raise error
        return f"not asked to reboot again, only watched: {error.message}"
