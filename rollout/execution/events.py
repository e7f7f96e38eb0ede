"""Kubernetes Events on the Node for each phase.

A failure to write them is reported once and ends the writing, not the rollout.
"""

import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import Any, Self

from msgspec.structs import replace

from rollout.errors import ApiConflictError, ApiNotFoundError, RolloutError
from rollout.execution.base.deadline import Deadline, is_transient, retry_until
from rollout.execution.base.reporting import Reporter
from rollout.model.plan import PlannedNode
from rollout.model.progress import (
    NodeFinished,
    NodeStep,
    Outcome,
    Phase,
    PodBlocked,
    PodReleased,
    StepEvent,
)
from rollout.model.quantity import Duration
from rollout.model.text import counted, version_change
from rollout.model.timestamps import whole_second
from rollout.ports import Clock, ClusterApi, Observer

EVENTS = "/api/v1/namespaces/default/events"
COMPONENT = "node-rollout"
_LONGEST_MESSAGE = 1024
_LONGEST_NAME = 253
_PATIENCE = 900.0


# People filter by these reasons, so they must not change.
EVENT_OF_PHASE = {
    Phase.CORDONED: ("Cordoned", "Cordoned, to be rebooted: {versions}{kept}"),
    Phase.DRAINING: ("Draining", "Evicting {pods}"),
    Phase.DRAINED: ("Drained", "All pods that had to be evicted are gone"),
    Phase.REBOOTING: ("Rebooting", "Asking the host to reboot: {versions}"),
    Phase.BOOTED: ("Booted", "The host is up with a new boot ID"),
    Phase.READY: ("Ready", "The kubelet of the new boot reports Ready"),
}
REASON_OF_END = {
    Outcome.SUCCEEDED: "Done",
    Outcome.SKIPPED: "Skipped",
    Outcome.ABORTED: "GivenBack",
}
REASON_OF_FAILURE = "RolloutFailed"
REASON_OF_BLOCKED_DRAIN = "DrainBlocked"


@dataclass
class NodeEvents:
    api: ClusterApi
    run_id: str
    nodes: Sequence[PlannedNode]
    observers: Sequence[Observer]
    clock: Clock
    closing_seconds: float = 3.0

    def __post_init__(self) -> None:
        self.report = Reporter((*self.observers, self), self.clock)
        self._planned = {node.name: node for node in self.nodes}
        self._phases: dict[str, Phase] = {}
        self._reported_blocked_pods: dict[str, str] = {}
        self._queued_events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._written_names: set[str] = set()
        self._give_up_at = float("inf")
        # An unanswered request must not keep the process alive.
        self._writer = threading.Thread(target=self._write_all, name="events", daemon=True)

    def __enter__(self) -> Self:
        self._writer.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._give_up_at = self.clock.monotonic() + self.closing_seconds
        self._queued_events.put(None)
        self._writer.join(self.closing_seconds)

    def notify(self, event: StepEvent) -> None:
        match event:
            case NodeStep():
                self._report_step(event)
            case PodBlocked():
                self._report_blocked(event)
            case PodReleased():
                if self._reported_blocked_pods.get(event.node) == event.pod:
                    del self._reported_blocked_pods[event.node]
            case NodeFinished():
                self._report_end(event)
            case _:
                return

    def _report_step(self, step: NodeStep) -> None:
        is_new_phase = self._phases.get(step.node) is not step.phase
        if not is_new_phase:
            return
        self._phases[step.node] = step.phase
        if step.phase not in EVENT_OF_PHASE:
            return
        reason, sentence = EVENT_OF_PHASE[step.phase]
        node = self._planned[step.node]
        if step.version_staged:
            node = replace(node, staged_version=step.version_staged)
        message = sentence.format(
            versions=_versions(node),
            kept=_kept_message(node),
            pods=counted(node.evict, "pod"),
        )
        self.queue_event(step.node, reason, message, step.at)

    def _report_blocked(self, blocked: PodBlocked) -> None:
        reported_pod = self._reported_blocked_pods.setdefault(blocked.node, blocked.pod)
        if blocked.pod != reported_pod:
            return
        message = (
            f"Eviction of {blocked.pod} is blocked by {blocked.blocker_text}: {blocked.message}"
        )
        self.queue_event(
            blocked.node, REASON_OF_BLOCKED_DRAIN, message, blocked.at, is_warning=True
        )

    def _report_end(self, result: NodeFinished) -> None:
        node = self._planned.get(result.node)
        if node is None:
            # Another process has started this node.
            return
        reason = REASON_OF_END.get(result.outcome, REASON_OF_FAILURE)
        if result.left_cordoned:
            reason = REASON_OF_FAILURE
        message = _end_message(result, node)
        is_warning = reason == REASON_OF_FAILURE
        self.queue_event(result.node, reason, message, result.at, is_warning=is_warning)

    def queue_event(
        self, node: str, reason: str, message: str, at: datetime, *, is_warning: bool = False
    ) -> None:
        """Queue an Event; a second for the same `reason` updates it."""
        digest = sha256(f"{self.run_id}/{node}/{reason}".encode()).hexdigest()[:16]
        time = whole_second(at)
        # `node-1.0123456789abcdef`
        longest_node = _LONGEST_NAME - len(f".{digest}")
        name = f"{node[:longest_node].rstrip('.-')}.{digest}"
        uid = self._planned[node].node_uid
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid},
            "reason": reason,
            "message": f"{message} (rollout {self.run_id})"[:_LONGEST_MESSAGE],
            "type": "Warning" if is_warning else "Normal",
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self.run_id,
            "count": 1,
            "firstTimestamp": time,
            "lastTimestamp": time,
        }
        self._queued_events.put(event)

    def _write_all(self) -> None:
        while True:
            event = self._queued_events.get()
            if event is None:
                return
            try:
                retry_until(
                    Deadline(self.clock, _PATIENCE),
                    partial(self._write, event),
                    retriable=lambda error: is_transient(error) and self._has_time,
                )
            except RolloutError as error:
                if self._has_time:
                    self.report.notice(
                        f"Events about this rollout cannot be written: {error.message}"
                    )
                return

    @property
    def _has_time(self) -> bool:
        return self.clock.monotonic() < self._give_up_at

    def _write(self, event: dict[str, Any]) -> None:
        name = event["metadata"]["name"]
        path = f"{EVENTS}/{name}"
        update = {"message": event["message"], "lastTimestamp": event["lastTimestamp"]}
        if name in self._written_names:
            try:
                self.api.patch(path, update)
            except ApiNotFoundError:
                # The Event has expired.
                pass
            else:
                return
        try:
            self.api.create(EVENTS, event)
        except ApiConflictError:
            # It exists: an earlier process created it, or the answer was lost.
            self.api.patch(path, update)
        self._written_names.add(name)


def _end_message(result: NodeFinished, node: PlannedNode) -> str:
    after = f"after {Duration(round(result.seconds))}"
    version = f", running {result.version}" if result.version else ""
    if result.succeeded:
        end = "Done" if node.was_cordoned else "Uncordoned"
        return f"{end} {after}{version}{_kept_message(node)}"
    if result.outcome is Outcome.SKIPPED and result.phase is Phase.PENDING:
        return f"Not changed: {result.message}"
    if result.outcome is Outcome.ABORTED and not result.left_cordoned:
        why = f": {result.message}" if result.message else ""
        remark = _kept_message(node) or "; it is uncordoned"
        end = f"Uncordoned without a reboot, in phase {result.phase}"
        return f"{end}, {after}{version}{why}{remark}"
    remark = "; it is left cordoned" if result.left_cordoned else ""
    return f"{result.outcome} in phase {result.phase} {after}: {result.message}{remark}"


def _versions(node: PlannedNode) -> str:
    if not node.staged:
        return f"{node.running_version or 'an unknown version'}, nothing staged"
    versions = version_change(node.running_version, node.staged_version, node.detected_by)
    # Some terminals have no UTF-8.
    return versions.replace("→", "->")


def _kept_message(node: PlannedNode) -> str:
    return "; it was cordoned before and stays cordoned" if node.was_cordoned else ""
