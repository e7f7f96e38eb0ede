"""The last look before a host is asked to reboot: still cordoned, still empty of what had to go, volumes detached.

It precedes every ask, the first and each later one, in this process and any other. The whole of it is taken before
the reboot is announced on the Node; what can change within a moment is looked at once more with the connection to the
host already open, so that nothing but the command itself follows.
"""

from rollout.errors import ApiError, DrainError
from rollout.execution.base.deadline import Deadline, patiently
from rollout.execution.drain.drain import must_go
from rollout.execution.drain.returning import not_left_to_the_reboot
from rollout.execution.node.context import NodeContext
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


def last_look(context: NodeContext) -> None:
    """Still cordoned, still empty of what had to go, volumes detached: else `DrainError`."""
    look_again(context, Deadline(context.clock, context.api_patience))
    _await_detached(context)
    context.guard.check()


def look_again(context: NodeContext, deadline: Deadline) -> None:
    """The part of it that anybody may undo within a moment; `ApiError` where it cannot be seen by the deadline.

    Raises:
        RefilledError: pods have come that can be evicted again.
        DrainError: somebody uncordoned the node, or took our marks away, or a pod has come that must not be touched.
        FencedError: this process may not act any more.
    """
    node = patiently(lambda: read_node(context.api, context.name), deadline, context.told_of_outage)
    if not node.unschedulable:
        raise DrainError(f"{context.name} was uncordoned by someone else before its reboot was asked for")
    if node.annotations.get(marks.RUN) != context.run:
        raise DrainError(f"our marks on {context.name} were removed before its reboot was asked for")
    _check_empty(context, deadline)
    context.guard.check()


def _check_empty(context: NodeContext, deadline: Deadline) -> None:
    listing = patiently(lambda: read_node_pods(context.api, context.name), deadline, context.told_of_outage)
    owners = patiently(lambda: read_daemon_sets(context.api), deadline, context.told_of_outage)
    left = must_go(listing.pods, DrainRules.of(context.policy.drain, owners, now=context.api.server_time()))
    if left := not_left_to_the_reboot(left, context.returning):
        raise RefilledError(f"{left[0].key} arrived on {context.name} after it was drained")


def _await_detached(context: NodeContext) -> None:
    """Wait, within bounds, for volumes: one that stays attached is reported, and does not stop the reboot."""
    deadline = Deadline(context.clock, min(_DETACH_SECONDS, context.policy.drain.timeout))
    while attached := _attachments(context, deadline):
        if deadline.expired:
            context.report.notice(f"{context.name}: the volume {attached[0].volume} is still attached; going on")
            return
        context.report.step(context.name, Phase.DRAINED, f"waiting for {len(attached)} volumes to detach")
        context.pause.wait(_PAUSE)


def _attachments(context: NodeContext, deadline: Deadline) -> tuple[VolumeAttachment, ...]:
    """Volumes on the node; none where this user may not see them, of which the plan has warned."""
    try:
        return patiently(lambda: read_attachments(context.api, context.name), deadline, context.told_of_outage)
    except ApiError as error:
        if error.status == _FORBIDDEN:
            return ()
        raise
