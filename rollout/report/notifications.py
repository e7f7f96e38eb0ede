from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from msgspec.structs import replace

from rollout.errors import InterruptedRunError, LockedError, RolloutError
from rollout.model.memory import MissedDeadline
from rollout.model.notification import Level, Note, NotifyEvent, RolloutState
from rollout.model.plan import RolloutPlan
from rollout.model.progress import (
    NodeFinished,
    NodeRescued,
    PlanReady,
    PodBlocked,
    RunFinished,
    RunResult,
    StepEvent,
    VersionHeld,
)
from rollout.model.text import capitalize, counted, printable, shell_word, shortened
from rollout.model.timestamps import elapsed, timestamp
from rollout.report.run_view import RunView
from rollout.report.sentences import pod_with_owner, reason_counts, result_counts, why_blocked
from rollout.report.summary import next_step
from rollout.wording import rescue_text

_STATUS_COMMAND = "rollout status --run"


@dataclass(slots=True)
class NoteMaker:
    """Not safe for several threads."""

    plan: RolloutPlan
    cluster: str
    # In seconds.
    held_after: float
    resumed: bool = False
    unattended: bool = False
    has_begun: bool = False
    _view: RunView = field(default_factory=RunView)
    _reported_blocks: set[tuple[str, str]] = field(default_factory=set)
    _has_ended: bool = False

    def notes_of(self, event: StepEvent, *, stopped: bool = False) -> Iterator[Note]:
        """`stopped`: the operator has asked the process to stop."""
        for note in self._notes_without_origin(event, stopped=stopped):
            yield self._with_origin(note, event.at)

    def notes_of_error(self, error: BaseException, at: datetime) -> Iterator[Note]:
        """Ignore a lock held elsewhere and an interrupted unattended pass."""
        ignored = (LockedError, InterruptedRunError) if self.unattended else (LockedError,)
        if not self._has_ended and not isinstance(error, ignored):
            self._has_ended = True
            yield self._with_origin(error_note(error), at)

    def _with_origin(self, note: Note, at: datetime) -> Note:
        server = self.plan.cluster.server
        cluster_name = self.cluster or server
        return replace(
            note,
            at=timestamp(at),
            cluster=cluster_name,
            server=server,
            run=self.plan.plan_id,
        )

    def _notes_without_origin(self, event: StepEvent, *, stopped: bool) -> Iterator[Note]:
        self._view.apply(event)
        match event:
            case PlanReady() if self.plan.waves:
                self.has_begun = True
                yield self._start_note()
            case PodBlocked():
                blocked_note = self._blocked_note(event)
                if blocked_note is not None:
                    yield blocked_note
            case NodeFinished():
                if event.outcome.is_failure:
                    yield _failure_note(event)
                yield from self._wave_end_notes(event)
            case NodeRescued():
                yield _rescue_note(event)
            case VersionHeld():
                yield _held_version_note(event)
            case RunFinished():
                self._has_ended = True
                yield self._end_note(event.result, stopped=stopped)
            case _:
                return

    def _start_note(self) -> Note:
        nodes = counted(self.plan.summary.nodes, "node")
        waves = counted(self.plan.summary.waves, "wave")
        staged = sorted({node.staged_version for node in self.plan.nodes if node.staged_version})
        versions = f" to {shortened(staged)}" if staged else ""
        seconds = self.plan.estimate.seconds
        takes = f", about {elapsed(seconds)}" if seconds else ""
        return Note(
            event=NotifyEvent.STARTED,
            title=f"rollout {'resumed' if self.resumed else 'started'}: {nodes}{versions}",
            body=f"{nodes} in {waves}{takes}.",
            next=_STATUS_COMMAND,
        )

    def _end_note(self, result: RunResult, *, stopped: bool) -> Note:
        state = RolloutState.COMPLETED if result.complete else RolloutState.FAILED
        is_for_next_pass = self.unattended and _has_only_nodes_for_later(result)
        # Nodes that are left for a `resume` are no failure.
        is_stopped_early = stopped and bool(result.not_started) and not result.failed
        if is_for_next_pass or is_stopped_early:
            state = RolloutState.INTERRUPTED
        return _finish_note(result, state, unattended=self.unattended)

    def _blocked_note(self, event: PodBlocked) -> Note | None:
        key = (event.node, event.blocker_name or event.pod)
        blocked_seconds = (event.at - event.since).total_seconds()
        if blocked_seconds < self.held_after or key in self._reported_blocks:
            return None
        self._reported_blocks.add(key)
        time_left = elapsed(max(0.0, event.seconds_left))
        blocked = (
            f"has been blocked by {printable(event.blocker_text)} for {elapsed(blocked_seconds)}"
        )
        reason = f"Pod {pod_with_owner(event)} cannot be evicted: {why_blocked(event)}."
        return Note(
            event=NotifyEvent.HELD,
            level=Level.WARNING,
            node=event.node,
            title=f"the drain of {printable(event.node)} {blocked}",
            body=f"{reason}\nThe drain will fail in {time_left}.",
            next=_describe_command(event),
        )

    def _wave_end_notes(self, event: NodeFinished) -> Iterator[Note]:
        wave = self._view.waves[-1] if self._view.waves else None
        if wave is None or event.node not in wave.nodes:
            return
        ends = [end for end in self._view.ended if end.node in wave.nodes]
        if len(ends) < len(wave.nodes):
            return
        failures = sum(end.outcome.is_failure for end in ends)
        failed = f", {failures} failed" if failures else ""
        planned = counted(self.plan.summary.nodes, "node")
        total = f"{len(self._view.ended)} of {planned} finished, {self._view.failed_count} failed"
        yield Note(
            event=NotifyEvent.WAVE_DONE,
            level=Level.WARNING if failures else Level.INFO,
            title=f"wave {wave.index} of {wave.of}: {counted(len(ends), 'node')} finished{failed}",
            body=f"The rollout so far: {total}.",
            next=_STATUS_COMMAND,
        )


def _describe_command(event: PodBlocked) -> str:
    has_one_budget = len(event.budgets) == 1
    kind = "pdb" if has_one_budget else "pod"
    key = event.budgets[0] if has_one_budget else event.pod
    namespace, _, name = key.partition("/")
    return f"kubectl describe {kind} -n {namespace} {name}"


def _failure_note(result: NodeFinished) -> Note:
    lines = [f"Phase {result.phase}: {printable(result.message)}"]
    if result.hint:
        lines.append(f"Hint: {printable(result.hint)}")
    if result.left_cordoned:
        lines.append("It was left cordoned.")
    return Note(
        event=NotifyEvent.NODE_FAILED,
        level=Level.FAILURE,
        node=result.node,
        title=f"{printable(result.node)} failed: {result.outcome}",
        body="\n".join(lines),
        next=f"kubectl describe node {result.node}",
    )


def _rescue_note(event: NodeRescued) -> Note:
    result = "failed" if event.problem else "succeeded"
    end = printable(rescue_text(event.problem, event.output))
    return Note(
        event=NotifyEvent.RESCUED,
        level=Level.WARNING,
        node=event.node,
        title=f"{printable(event.node)} did not come back: reboot.rescue {result}",
        body=f"{end}.\nrollout waits for the host again.",
        next=_STATUS_COMMAND,
    )


def _held_version_note(event: VersionHeld) -> Note:
    return Note(
        event=NotifyEvent.VERSION_HELD,
        level=Level.WARNING,
        title=f"version {printable(event.version)} is held",
        body=f"{printable(event.message)}.",
        next=f"rollout release {shell_word(event.version)}",
    )


def missed_deadline_note(missed: MissedDeadline, slowest_wave: str, command: str) -> Note:
    lines = [f"{printable(str(missed))}."]
    if slowest_wave:
        lines.append(f"{printable(capitalize(slowest_wave))}.")
    return Note(
        event=NotifyEvent.DEADLINE,
        level=Level.WARNING,
        title=f"operate misses the deadline {printable(missed.by)}",
        body="\n".join(lines),
        next=command,
    )


def error_note(error: BaseException) -> Note:
    is_interrupted = isinstance(error, InterruptedRunError | KeyboardInterrupt)
    state = RolloutState.INTERRUPTED if is_interrupted else RolloutState.FAILED
    message = error.message if isinstance(error, RolloutError) else type(error).__name__
    return Note(
        event=NotifyEvent.FINISHED,
        level=_LEVEL_OF_STATE[state],
        state=state,
        title=f"rollout {state}",
        body=f"{printable(message)}.",
        next=_STATUS_COMMAND,
    )


def _has_only_nodes_for_later(result: RunResult) -> bool:
    if result.failed or result.not_done or not result.not_started:
        return False
    return all(entry.is_for_later for entry in result.not_started)


_LEVEL_OF_STATE = {
    RolloutState.COMPLETED: Level.SUCCESS,
    RolloutState.FAILED: Level.FAILURE,
    RolloutState.INTERRUPTED: Level.WARNING,
}


def _finish_note(result: RunResult, state: RolloutState, *, unattended: bool) -> Note:
    level = _LEVEL_OF_STATE[state]
    if unattended and state is RolloutState.INTERRUPTED:
        level = Level.INFO
    has_nodes = result.succeeded or result.failed or result.not_done or result.not_started
    counts = f": {result_counts(result)}" if has_nodes else ""
    return Note(
        event=NotifyEvent.FINISHED,
        level=level,
        state=state,
        title=f"rollout {state}{counts}",
        body="\n".join(_finish_lines(result)),
        next=next_step(result, unattended=unattended),
    )


def _finish_lines(result: RunResult) -> Iterator[str]:
    messages = [entry.message for entry in result.not_started]
    messages += [f"{entry.node} {entry.message}" for entry in result.succeeded if entry.message]
    if messages:
        yield f"{printable(messages[0])}."
    if result.failed:
        yield f"Failed: {shortened([failure.node for failure in result.failed])}."
    if result.not_done:
        yield f"Not done: {shortened([entry.node for entry in result.not_done])}."
    if result.left_out:
        yield f"Left out: {reason_counts(result.left_out)}."
