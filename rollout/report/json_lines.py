"""A run as JSON lines: one object a line, for programs.

The first line names the version of the format. Fields and types may be added within a major version; what stands
here stays.
"""

import threading
from collections.abc import Iterable
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
    VersionHeld,
    WaveSettling,
    WaveStarted,
)
from rollout.model.text import timestamp
from rollout.planning.document import encode_plan
from rollout.report.line_types import (
    BlockedLine,
    DryRunLine,
    EventLine,
    FailedNode,
    NodeFinishedLine,
    NoticeLine,
    PlanLine,
    ReleasedLine,
    RunLine,
    RunRecord,
    StepLine,
    Summary,
    SummaryLine,
    VersionHeldLine,
    VersionLine,
    WaveSettlingLine,
    WaveStartedLine,
)


class JsonLines:
    """Writes every event as one line, at once. Safe to call from many threads."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def begin(self, at: datetime) -> None:
        """The first line: the version of this format."""
        self._write(VersionLine(type="version", at=timestamp(at), format_version=FORMAT_VERSION))

    def record(self, record: RunRecord) -> None:
        """What a journal begins with: who keeps these lines has the journal of a process whose files go with it."""
        self._write(record)

    def notify(self, event: StepEvent) -> None:
        """One line for one event."""
        self._write(line(event))

    def rehearsed(self, at: datetime, nodes: Iterable[Rehearsal]) -> None:
        """One line for each node of a dry run."""
        for node in nodes:
            evictions, objections = node.evictions, node.objections
            self._write(
                DryRunLine(type="dry_run", at=timestamp(at), node=node.node, evictions=evictions, objections=objections)
            )

    def _write(self, content: RunLine) -> None:
        text = json_line(content).decode() + "\n"
        with self._lock:
            self._stream.write(text)
            self._stream.flush()


def line(event: StepEvent) -> EventLine:  # noqa: C901, PLR0911 - one return a type of event
    """The object that stands for an event."""
    at = timestamp(event.at)
    match event:
        case PlanReady():
            plan = msgspec.Raw(msgspec.json.format(encode_plan(event.plan), indent=-1))
            return PlanLine(type="plan", at=at, plan=plan)
        case WaveStarted():
            return _wave(at, event)
        case WaveSettling():
            return WaveSettlingLine(type="wave_settling", at=at, index=event.index, waiting_for=event.waiting_for)
        case NodeStep():
            step = StepLine(type="step", at=at, node=event.node, phase=event.phase, detail=event.detail)
            return StepLine(**step, endings=dict(event.endings)) if event.endings else step
        case PodBlocked():
            return _blocked(at, event)
        case PodReleased():
            since = timestamp(event.since)
            return ReleasedLine(
                type="released", at=at, node=event.node, pod=event.pod, budget=event.budget, since=since
            )
        case NodeFinished():
            return _node(at, event.result)
        case VersionHeld():
            return VersionHeldLine(
                type="version_held", at=at, version=event.version, nodes=event.nodes, message=event.message
            )
        case Notice():
            return NoticeLine(type="notice", at=at, message=event.message)
        case RunFinished():
            return SummaryLine(type="summary", at=at, **summary(event.result))
        case _:
            assert_never(event)


def _wave(at: str, event: WaveStarted) -> WaveStartedLine:
    return {
        "type": "wave_started",
        "at": at,
        "index": event.index,
        "waves": event.waves,
        "nodes": event.nodes,
        "because": event.because,
        "in_flight": event.in_flight,
    }


def _blocked(at: str, event: PodBlocked) -> BlockedLine:
    return {
        "type": "blocked",
        "at": at,
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


def _node(at: str, result: NodeResult) -> NodeFinishedLine:
    finished: NodeFinishedLine = {
        "type": "node_finished",
        "at": at,
        "node": result.node,
        "outcome": result.outcome,
        "phase": result.phase,
        "message": result.message,
        "hint": result.hint,
        "version": result.version,
        "seconds": round(result.seconds, 1),
        "left_cordoned": result.left_cordoned,
    }
    if not result.succeeded:
        findings = result.findings
        finished["ssh_error"] = findings.ssh_error
        finished["conditions"] = findings.conditions
        finished["console"] = findings.console
    return finished


def summary(result: RunResult) -> Summary:
    """The end of a run: each planned node in exactly one of the four lists; `reasons` says why of the last two.

    `not_done` and `left_out` tell of the nodes that were asked for and that the plan could not take, or need not.
    """
    return {
        "succeeded": [node.node for node in result.succeeded],
        "failed": [_failure(node) for node in result.failed],
        "skipped": [node.node for node in result.skipped],
        "not_started": [node.node for node in result.not_started],
        "reasons": {node.node: str(node.message) for node in (*result.skipped, *result.not_started)},
        "not_done": [{"node": node.node, "reason": node.reason, "message": node.message} for node in result.not_done],
        "left_out": result.left_out,
        "pods_to_move": result.moves.pods_to_move,
        "evictions": result.moves.evictions,
        "moved_twice": result.moves.moved_twice,
    }


def _failure(result: NodeResult) -> FailedNode:
    findings = result.findings
    return {
        "node": result.node,
        "phase": result.phase,
        "message": result.message,
        "outcome": result.outcome,
        "hint": result.hint,
        "left_cordoned": result.left_cordoned,
        "ssh_error": findings.ssh_error,
        "conditions": findings.conditions,
        "console": findings.console,
    }
