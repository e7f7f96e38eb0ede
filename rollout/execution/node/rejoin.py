"""Continues a node whose Node is deleted during the reboot and registered again.

Some cloud controllers delete the Node of a machine that is down. If it stays away, the machine was
removed, which is no failure.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from rollout.errors import ApiError, ApiNotFoundError
from rollout.execution.base.deadline import Deadline
from rollout.execution.base.live_view import watch_node
from rollout.execution.drain.task import NodeTask
from rollout.execution.node.claim import marks_of_run
from rollout.execution.node.context import NodeContext, Progress
from rollout.execution.node.failures import NodeRemovedError
from rollout.execution.node.marking import (
    MarksGoneError,
    change_node,
    find_node_loss,
    require_mark,
)
from rollout.execution.node.proof import await_ready
from rollout.gather.cluster.snapshot import read_node
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.detection import targets_text
from rollout.model.progress import Phase

T = TypeVar("T")

# A host whose Node is gone may take this long, or this part of --reboot-timeout.
_GONE_SECONDS = 120.0
_GONE_PART = 4
_TICK = 5.0
MAY_COME_BACK = "its Node was deleted: its host may still come back"
DID_NOT_COME_BACK = "its Node was deleted during its reboot, and its host did not come back"


@dataclass(slots=True)
class AbsenceLimit:
    context: NodeContext
    # None while the Node is present.
    deadline: Deadline | None = None

    def check(self) -> None:
        watched = self.context.watched
        is_absent = watched is not None and watched.is_absent
        if not is_absent:
            self.deadline = None
            return
        if self.deadline is None:
            seconds = absence_seconds(self.context.policy.reboot_timeout)
            self.deadline = self.context.cluster.deadline(seconds)
            self.context.report_step(Phase.REBOOTING, MAY_COME_BACK)
        elif self.deadline.expired:
            raise NodeRemovedError(DID_NOT_COME_BACK)


def retry_if_node_lost(
    context: NodeContext, progress: Progress, phase: Phase, act: Callable[[], T]
) -> T:
    try:
        return act()
    except (ApiNotFoundError, MarksGoneError):
        is_planned_node_lost = find_node_loss(context) is not None
        if not is_planned_node_lost:
            raise
    _await_and_mark_new_node(context, progress, phase)
    return act()


def _await_and_mark_new_node(context: NodeContext, progress: Progress, phase: Phase) -> None:
    _await_registered(context, progress)
    marks_to_restore = {
        marks.STAGED_VERSION: progress.staged_version or None,
        marks.DETECTED: targets_text(progress.targets) or None,
        # `progress` has none of these.
        marks.READY_BEFORE: mark_before_deletion(context, marks.READY_BEFORE),
        marks.RESCUED: mark_before_deletion(context, marks.RESCUED),
    }
    mark_new_node(context, phase, marks_to_restore)
    if phase is Phase.READY:
        # Only the deleted Node is known to have been Ready.
        await_ready(context, progress.boot, context.policy.ready_timeout)


def mark_before_deletion(context: NodeContext, mark: str) -> str | None:
    deleted = context.watched.last_seen if context.watched else None
    return deleted.annotations.get(mark) if deleted else None


def mark_new_node(task: NodeTask, phase: Phase, marks_to_restore: Mapping[str, str | None]) -> None:
    def patch_to_mark(node: Node) -> dict[str, Any] | None:
        is_marked = bool(node.annotations.get(marks.RUN))
        if is_marked:
            require_mark(task, node)
            # The answer to an earlier write was lost.
            return None
        # Someone else's cordon stays, even one from the deleted Node.
        is_our_cordon = not (node.unschedulable or task.planned.was_cordoned)
        annotations = {
            **marks_of_run(task, phase),
            **marks_to_restore,
            marks.CORDONED_BY_US: "true" if is_our_cordon else None,
        }
        return {"metadata": {"annotations": annotations}, "spec": {"unschedulable": True}}

    change_node(task, patch_to_mark)
    task.report.notice(
        f"{task.name}: its Node was deleted during its reboot, and is registered again"
    )


def absence_seconds(timeout: float) -> float:
    return min(_GONE_SECONDS, timeout / _GONE_PART)


def has_other_machine(context: NodeContext) -> bool:
    planned = context.watched.last_seen if context.watched else None
    try:
        current = read_node(context.cluster.api, context.name)
    except ApiError:
        return False
    if planned is None or current.uid == planned.uid:
        return False
    return current.machine_id != planned.machine_id


def _await_registered(context: NodeContext, progress: Progress) -> None:
    timeout = context.policy.ready_timeout
    deadline = context.cluster.deadline(timeout)
    with watch_node(context.cluster, context.name, deadline) as view:
        while not deadline.expired:
            is_registered = any(node.boot_id == progress.boot.boot_id for node in view.items())
            if is_registered:
                return
            context.check_may_act()
            context.report_step(
                Phase.BOOTED, "its Node was deleted: waiting for its kubelet to register it again"
            )
            context.cluster.clock.wait(view.changed, min(_TICK, deadline.remaining))
            view.changed.clear()
    raise NodeRemovedError(
        "its Node was deleted during its reboot, and not registered again within --ready-timeout"
        f" {timeout}"
    )
