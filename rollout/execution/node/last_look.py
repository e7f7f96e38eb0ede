"""The last look before a host is asked to reboot: still cordoned, still empty of what had to go, volumes detached.

It precedes every ask, the first and each later one, in this process and any other. The whole of it is taken before
the reboot is announced on the Node; what can change within a moment is looked at once more with the connection to the
host already open, so that nothing but the command itself follows.
"""

from rollout.errors import ApiError, DrainError
from rollout.execution.base.deadline import Deadline
from rollout.execution.drain.drain import must_go
from rollout.execution.drain.returning_pods import without_returning
from rollout.execution.drain.task import DrainTask
from rollout.gather.cluster.snapshot import read_attachments, read_daemon_sets, read_node, read_node_pods
from rollout.model import marks
from rollout.model.cluster import VolumeAttachment
from rollout.model.progress import Phase
from rollout.planning.verdicts import DrainRules

_PAUSE = 0.5
_DETACH_SECONDS = 120.0
_FORBIDDEN = 403


class RefilledError(DrainError):
    """Pods that have to go are on the node again, which is still cordoned: it can be drained once more."""


def last_look(task: DrainTask) -> None:
    """Still cordoned, still empty of what had to go, volumes detached: else `DrainError`."""
    look_again(task, task.cluster.deadline())
    _await_detached(task)
    task.guard.check()


def look_again(task: DrainTask, deadline: Deadline) -> None:
    """Look at what anybody may undo within a moment; `ApiError` where it cannot be seen by the deadline.

    Raises:
        RefilledError: pods have come that can be evicted again.
        DrainError: somebody uncordoned the node, or took our marks away, or a pod has come that must not be touched.
        FencedError: this process may not act any more.
    """
    node = task.cluster.ask(lambda api: read_node(api, task.node), deadline)
    if not node.unschedulable:
        raise DrainError(f"{task.node} was uncordoned outside this rollout before its reboot was asked for")
    if node.annotations.get(marks.RUN) != task.rollout:
        raise DrainError(f"our marks on {task.node} were removed before its reboot was asked for")
    _check_empty(task, deadline)
    task.guard.check()


def _check_empty(task: DrainTask, deadline: Deadline) -> None:
    listing = task.cluster.ask(lambda api: read_node_pods(api, task.node), deadline)
    owners = task.cluster.ask(read_daemon_sets, deadline)
    pods = must_go(listing.pods, DrainRules.of(task.policy, owners, now=task.cluster.api.server_time()))
    if pods := without_returning(pods, task.returning):
        raise RefilledError(f"{pods[0].key} arrived on {task.node} after it was drained")


def _await_detached(task: DrainTask) -> None:
    """Wait, within bounds, for volumes: one that stays attached is reported, and does not stop the reboot."""
    deadline = task.cluster.deadline(min(_DETACH_SECONDS, task.policy.timeout))
    while attached := _attachments(task, deadline):
        if deadline.expired:
            task.report.notice(f"{task.node}: the volume {attached[0].volume} is still attached; going on")
            return
        task.report.step(task.node, Phase.DRAINED, f"waiting for {len(attached)} volumes to detach")
        deadline.pause(_PAUSE)


def _attachments(task: DrainTask, deadline: Deadline) -> tuple[VolumeAttachment, ...]:
    """Volumes on the node; none where this user may not see them, of which the plan has warned."""
    try:
        return task.cluster.ask(lambda api: read_attachments(api, task.node), deadline)
    except ApiError as error:
        if error.status == _FORBIDDEN:
            return ()
        raise
