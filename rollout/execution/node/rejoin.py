"""Continues the run of a node whose Node is deleted during the reboot and registered again.

Some cloud controllers delete the Node of a machine that is down. If host and Node do not come back
in time, the machine was removed, which is no failure.
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
    node_loss,
    require_mark,
)
from rollout.execution.node.proof import await_ready
from rollout.gather.cluster.snapshot import read_node
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.detection import targets_text
from rollout.model.progress import Phase

T = TypeVar("T")

# Seconds for a host whose Node is gone to come back, at most this part of --reboot-timeout.
_GONE_SECONDS = 120.0
_GONE_PART = 4
_TICK = 5.0
MAY_COME_BACK = "its Node was deleted: its host may still come back"
DID_NOT_COME_BACK = "its Node was deleted during its reboot, and its host did not come back"


@dataclass(slots=True)
class Absence:
    context: NodeContext
    patience: Deadline | None = None

    def check(self) -> None:
        """Raise `NodeRemovedError` if the Node has been gone for too long."""
        watched = self.context.watched
        if watched is None or not watched.is_absent:
            self.patience = None
            return
        if self.patience is None:
            seconds = absence_seconds(self.context.policy.reboot_timeout)
            self.patience = self.context.cluster.deadline(seconds)
            self.context.step(Phase.REBOOTING, MAY_COME_BACK)
        elif self.patience.expired:
            raise NodeRemovedError(DID_NOT_COME_BACK)


def after_rejoin(context: NodeContext, progress: Progress, phase: Phase, act: Callable[[], T]) -> T:
    """Run `act`, which writes on the Node. If the Node was deleted, await a new one and repeat."""
    try:
        return act()
    except (ApiNotFoundError, MarksGoneError):
        if node_loss(context) is None:
            raise
    _rejoin(context, progress, phase)
    return act()


def _rejoin(context: NodeContext, progress: Progress, phase: Phase) -> None:
    _await_registered(context, progress)
    old_marks = {
        marks.STAGED_VERSION: progress.staged_version or None,
        marks.DETECTED: targets_text(progress.targets) or None,
        marks.READY_BEFORE: mark_before(context, marks.READY_BEFORE),
        marks.RESCUED: mark_before(context, marks.RESCUED),
    }
    mark_again(context, phase, old_marks)
    # In earlier phases, a later step waits for Ready.
    if phase is Phase.READY:
        await_ready(context, progress.boot, context.policy.ready_timeout)


def mark_before(context: NodeContext, mark: str) -> str | None:
    """Return a mark of the Node before it was deleted; None if unknown."""
    before = context.watched.seen if context.watched else None
    return before.annotations.get(mark) if before else None


def mark_again(task: NodeTask, phase: Phase, old_marks: Mapping[str, str | None]) -> None:
    """Cordon and mark the new Node, unless it is marked."""

    def change(node: Node) -> dict[str, Any] | None:
        if node.annotations.get(marks.RUN):
            require_mark(task, node)
            return None
        is_our_cordon = not (node.unschedulable or task.planned.cordoned)
        annotations = {
            **marks_of_run(task, phase),
            **old_marks,
            marks.CORDONED_BY_US: "true" if is_our_cordon else None,
        }
        return {"metadata": {"annotations": annotations}, "spec": {"unschedulable": True}}

    change_node(task, change)
    task.report.notice(
        f"{task.name}: its Node was deleted during its reboot, and is registered again"
    )


def absence_seconds(timeout: float) -> float:
    return min(_GONE_SECONDS, timeout / _GONE_PART)


def has_other_machine(context: NodeContext) -> bool:
    """Whether the Node of this name belongs to another machine now. False if that is unknown."""
    before = context.watched.seen if context.watched else None
    try:
        node = read_node(context.cluster.api, context.name)
    except ApiError:
        return False
    return before is not None and node.uid != before.uid and node.machine_id != before.machine_id


def _await_registered(context: NodeContext, progress: Progress) -> None:
    timeout = context.policy.ready_timeout
    deadline = context.cluster.deadline(timeout)
    with watch_node(context.cluster, context.name, deadline) as view:
        while not deadline.expired:
            if any(node.boot_id == progress.boot.boot_id for node in view.items()):
                return
            context.check_may_act()
            context.step(
                Phase.BOOTED, "its Node was deleted: waiting for its kubelet to register it again"
            )
            context.cluster.clock.wait(view.changed, min(_TICK, deadline.remaining))
            view.changed.clear()
    raise NodeRemovedError(
        "its Node was deleted during its reboot, and not registered again within --ready-timeout"
        f" {timeout}"
    )
