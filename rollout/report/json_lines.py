"""A run as JSON lines: one object a line, for programs; the first names the version of the format."""

import threading
from datetime import datetime
from typing import IO

import msgspec

from rollout.model.json_text import json_line
from rollout.model.plan import FORMAT_VERSION
from rollout.model.progress import NodeResult, PlanReady, RunFinished, RunResult, StepEvent
from rollout.planning.plan.document import encode_plan
from rollout.report.lines import (
    AnyLine,
    EventLine,
    FailedNode,
    NotDoneNode,
    PlanLine,
    SummaryLine,
    VersionLine,
    record_of,
)


class JsonLines:
    """Writes every event as one line, at once. Safe to call from many threads."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def begin(self, at: datetime) -> None:
        """The first line: the version of this format."""
        self.write(VersionLine(at, FORMAT_VERSION))

    def notify(self, event: StepEvent) -> None:
        """One line for one event."""
        self.write(line(event))

    def write(self, content: AnyLine) -> None:
        """A line that is no event: the record of a process, what a dry run met."""
        text = json_line(record_of(content)).decode() + "\n"
        with self._lock:
            self._stream.write(text)
            self._stream.flush()


def line(event: StepEvent) -> EventLine:
    """The line that stands for an event."""
    match event:
        case PlanReady():
            return PlanLine(event.at, msgspec.json.decode(encode_plan(event.plan)))
        case RunFinished():
            return summary(event.at, event.result)
        case _:
            return event


def summary(at: datetime, result: RunResult) -> SummaryLine:
    """The end of a run: each planned node in exactly one of the four lists; `reasons` says why of the last two.

    `not_done` and `left_out` tell of the nodes that were asked for and that the plan could not take, or need not.
    """
    return SummaryLine(
        at=at,
        succeeded=[node.node for node in result.succeeded],
        failed=[_failure(node) for node in result.failed],
        skipped=[node.node for node in result.skipped],
        not_started=[node.node for node in result.not_started],
        reasons={node.node: str(node.message) for node in (*result.skipped, *result.not_started)},
        not_done=[NotDoneNode(node.node, node.reason, node.message) for node in result.not_done],
        left_out=dict(result.left_out),
        pods_to_move=result.pods_to_move,
        evictions=result.evictions,
    )


def _failure(result: NodeResult) -> FailedNode:
    return FailedNode(
        node=result.node,
        phase=result.phase,
        message=result.message,
        outcome=result.outcome,
        hint=result.hint,
        left_cordoned=result.left_cordoned,
        ssh_error=result.findings.ssh_error,
        conditions=result.findings.conditions,
        console=result.findings.console,
    )
