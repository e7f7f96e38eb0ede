"""A run as JSON lines: one object a line, for programs.

The first line names the version of the format. Fields and types may be added within a major version; what stands
here stays.
"""

import threading
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import IO, assert_never

import msgspec

from rollout.execution.rollout.rehearsal import Rehearsal
from rollout.model.json_text import json_line
from rollout.model.plan import FORMAT_VERSION
from rollout.model.progress import (
    NodeFinished,
    NodeResult,
    NodeStep,
    Notice,
    PlanReady,
    PodBlocked,
    PodReleased,
    RunFinished,
    RunResult,
    StepEvent,
    WaveSettling,
    WaveStarted,
)
from rollout.planning.document import encode_plan
from rollout.report.text import timestamp

Line = Mapping[str, object]


class JsonLines:
    """Writes every event as one line, at once. Safe to call from many threads."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def begin(self, at: datetime) -> None:
        """The first line: the version of this format."""
        self._write({"type": "version", "at": timestamp(at), "format_version": FORMAT_VERSION})

    def notify(self, event: StepEvent) -> None:
        """One line for one event."""
        self._write(line(event))

    def rehearsed(self, at: datetime, nodes: Iterable[Rehearsal]) -> None:
        """One line for each node of a dry run."""
        for node in nodes:
            self._write({"type": "dry_run", "at": timestamp(at), **_rehearsal(node)})

    def _write(self, content: Line) -> None:
        text = json_line(content).decode() + "\n"
        with self._lock:
            self._stream.write(text)
            self._stream.flush()


def line(event: StepEvent) -> Line:
    """The object that stands for an event."""
    return {"type": _TYPES[type(event)], "at": timestamp(event.at), **_content(event)}


_TYPES: Mapping[type, str] = {
    PlanReady: "plan",
    WaveStarted: "wave_started",
    WaveSettling: "wave_settling",
    NodeStep: "step",
    PodBlocked: "blocked",
    PodReleased: "released",
    NodeFinished: "node_finished",
    Notice: "notice",
    RunFinished: "summary",
}


def _content(event: StepEvent) -> Line:  # noqa: PLR0911 - one return a type of event
    match event:
        case PlanReady():
            return {"plan": msgspec.Raw(msgspec.json.format(encode_plan(event.plan), indent=-1))}
        case WaveStarted():
            return {
                "index": event.index,
                "waves": event.waves,
                "nodes": event.nodes,
                "because": event.because,
            }
        case WaveSettling():
            return {"index": event.index, "waiting_for": event.waiting_for}
        case NodeStep():
            return {"node": event.node, "phase": event.phase, "detail": event.detail}
        case PodBlocked():
            return _blocked(event)
        case PodReleased():
            return {"node": event.node, "pod": event.pod, "budget": event.budget, "since": timestamp(event.since)}
        case NodeFinished():
            return _node(event.result)
        case Notice():
            return {"message": event.message}
        case RunFinished():
            return summary(event.result)
        case _:
            assert_never(event)


def _blocked(event: PodBlocked) -> Line:
    return {
        "node": event.node,
        "pod": event.pod,
        "budget": event.budget,
        "since": timestamp(event.since),
        "needs": event.needs,
        "has": event.has,
        "owner": event.owner,
        "message": event.message,
        "seconds_left": round(event.seconds_left, 1),
    }


def _node(result: NodeResult) -> Line:
    return {
        "node": result.node,
        "outcome": result.outcome,
        "phase": result.phase,
        "message": result.message,
        "hint": result.hint,
        "version": result.version,
        "seconds": round(result.seconds, 1),
        "left_cordoned": result.left_cordoned,
        **_findings(result),
    }


def _findings(result: NodeResult) -> Line:
    """What was seen of a node that failed; nothing for one that did not."""
    if result.succeeded:
        return {}
    found = result.findings
    return {"ssh_error": found.ssh_error, "conditions": found.conditions, "console": found.console}


def _rehearsal(node: Rehearsal) -> Line:
    return {"node": node.node, "evictions": node.evictions, "objections": node.objections}


def summary(result: RunResult) -> Line:
    """The end of a run: each planned node in exactly one of the four lists; `reasons` says why of the last two.

    `not_done` and `left_out` tell of the nodes that were asked for and that the plan could not take, or need not.
    """
    return {
        "succeeded": [node.node for node in result.succeeded],
        "failed": [_failure(node) for node in result.failed],
        "skipped": [node.node for node in result.skipped],
        "not_started": [node.node for node in result.not_started],
        "reasons": {node.node: node.message for node in (*result.skipped, *result.not_started)},
        "not_done": [{"node": one.node, "reason": one.reason, "message": one.message} for one in result.not_done],
        "left_out": result.left_out,
    }


def _failure(result: NodeResult) -> Line:
    return {
        "node": result.node,
        "phase": result.phase,
        "message": result.message,
        "outcome": result.outcome,
        "hint": result.hint,
        "left_cordoned": result.left_cordoned,
        **_findings(result),
    }
