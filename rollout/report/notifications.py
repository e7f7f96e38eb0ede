"""From a run's events to what those are sent who do not watch it."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime

from rollout.errors import InterruptedRunError, LockedError, RolloutError
from rollout.model.memory import Slip
from rollout.model.notification import Level, Note, NotifyEvent, RolloutState
from rollout.model.plan import RolloutPlan
from rollout.model.progress import (
    NodeFinished,
    PlanReady,
    PodBlocked,
    RunFinished,
    RunResult,
    StepEvent,
    VersionHeld,
)
from rollout.model.text import counted, printable, shell_word, shortened
from rollout.model.timestamps import elapsed, timestamp
from rollout.report.run_view import RunView
from rollout.report.sentences import pod_with_owner, reason_counts, result_counts, why_held
from rollout.report.summary import next_step

_WATCH = "rollout status --run"


@dataclass(slots=True)
class Noteworthy:
    """What of a run's events is worth a notification. Not safe for several threads.

    `held_after` is in seconds. `cluster` is what the cluster is to be called; empty: its server's
    address. `unattended`: what is left for another time, the next pass takes up. `has_begun`: there
    is a plan under way.
    """

    plan: RolloutPlan
    cluster: str
    held_after: float
    resumed: bool = False
    unattended: bool = False
    has_begun: bool = False
    _view: RunView = field(default_factory=RunView)
    _held: set[tuple[str, str]] = field(default_factory=set)
    _is_over: bool = False

    def take(self, event: StepEvent, *, stopped: bool = False) -> Iterator[Note]:
        """Yield the notifications that an event leads to; `stopped`: somebody has asked for the run's end."""
        for note in self._notes(event, stopped=stopped):
            yield self._stamped(note, event.at)

    def broken_off(self, error: BaseException, at: datetime) -> Iterator[Note]:
        """End the run without its last event, by an error.

        Of a rollout that is under way its own process tells; an unattended pass that had no time to
        begin is no news.
        """
        no_news = (LockedError, InterruptedRunError) if self.unattended else (LockedError,)
        if not self._is_over and not isinstance(error, no_news):
            self._is_over = True
            yield self._stamped(error_note(error), at)

    def _stamped(self, note: Note, at: datetime) -> Note:
        identity = self.plan.cluster
        cluster = self.cluster or identity.server
        return replace(
            note, at=timestamp(at), cluster=cluster, server=identity.server, run=self.plan.plan_id
        )

    def _notes(self, event: StepEvent, *, stopped: bool) -> Iterator[Note]:
        self._view.take(event)
        match event:
            case PlanReady() if self.plan.waves:
                self.has_begun = True
                yield self._started()
            case PodBlocked():
                yield from self._blocked(event)
            case NodeFinished():
                if event.outcome.is_failure:
                    yield _failure_note(event)
                yield from self._wave_done(event)
            case VersionHeld():
                yield Note(
                    event=NotifyEvent.VERSION_HELD,
                    level=Level.WARNING,
                    title=f"version {printable(event.version)} is held",
                    body=f"{printable(event.message)}.",
                    next=f"rollout release {shell_word(event.version)}",
                )
            case RunFinished():
                self._is_over = True
                yield self._finished(event.result, stopped=stopped)
            case _:
                return

    def _started(self) -> Note:
        nodes = counted(self.plan.summary.nodes, "node")
        waves = counted(self.plan.summary.waves, "wave")
        staged = sorted({node.staged_version for node in self.plan.nodes if node.staged_version})
        versions = f" to {shortened(staged)}" if staged else ""
        seconds = self.plan.estimate.seconds
        return Note(
            event=NotifyEvent.STARTED,
            title=f"rollout {'resumed' if self.resumed else 'started'}: {nodes}{versions}",
            body=f"{nodes} in {waves}{f', about {elapsed(seconds)}' if seconds else ''}.",
            next=_WATCH,
        )

    def _finished(self, result: RunResult, *, stopped: bool) -> Note:
        state = RolloutState.COMPLETED if result.complete else RolloutState.FAILED
        if (self.unattended and _is_for_later(result)) or (stopped and result.not_started):
            state = RolloutState.INTERRUPTED
        return _finish_note(result, state, unattended=self.unattended)

    def _blocked(self, event: PodBlocked) -> Iterator[Note]:
        """Once for all that one budget, webhook or policy holds on a node."""
        key = (event.node, event.holder or event.pod)
        held = (event.at - event.since).total_seconds()
        if held < self.held_after or key in self._held:
            return
        self._held.add(key)
        by = printable(event.held_by)
        left = elapsed(max(0.0, event.seconds_left))
        yield Note(
            event=NotifyEvent.HELD,
            level=Level.WARNING,
            node=event.node,
            title=f"{printable(event.node)} is held by {by} for {elapsed(held)}",
            body=(
                f"Pod {pod_with_owner(event)} cannot be evicted: {why_held(event)}.\nThe drain fails in"
                f" {left}."
            ),
            next=_look_at(event),
        )

    def _wave_done(self, last: NodeFinished) -> Iterator[Note]:
        """Tell with the last of them that all nodes of the wave have ended."""
        wave = self._view.waves[-1] if self._view.waves else None
        if wave is None or last.node not in wave.nodes:
            return
        ends = [end for name in wave.nodes if (end := self._view.nodes[name].end)]
        if len(ends) < len(wave.nodes):
            return
        failures = sum(end.outcome.is_failure for end in ends)
        failed = f", {failures} failed" if failures else ""
        planned = counted(self.plan.summary.nodes, "node")
        yield Note(
            event=NotifyEvent.WAVE_DONE,
            level=Level.WARNING if failures else Level.INFO,
            title=f"wave {wave.index} of {wave.of}: {counted(len(ends), 'node')} ended{failed}",
            body=(
                f"Of the rollout: {len(self._view.ended)} of {planned} ended, {self._view.failed}"
                " failed."
            ),
            next=_WATCH,
        )


def _look_at(event: PodBlocked) -> str:
    """Return the command that shows what holds the pod: its budget, where it is one alone."""
    is_one = bool(event.budget) and "," not in event.budget
    namespace, _, name = (event.budget if is_one else event.pod).partition("/")
    return f"kubectl describe {'pdb' if is_one else 'pod'} -n {namespace} {name}"


def _failure_note(result: NodeFinished) -> Note:
    lines = [f"Phase {result.phase}: {printable(result.message)}"]
    lines += [f"Hint: {printable(result.hint)}"] if result.hint else []
    lines += ["It was left cordoned."] if result.left_cordoned else []
    return Note(
        event=NotifyEvent.NODE_FAILED,
        level=Level.FAILURE,
        node=result.node,
        title=f"{printable(result.node)} failed: {result.outcome}",
        body="\n".join(lines),
        next=f"kubectl describe node {result.node}",
    )


def slip_note(slip: Slip, obstacle: str, command: str) -> Note:
    """Tell of a date that will be missed, with what takes longest."""
    longest = f"\nLongest: {printable(obstacle)}." if obstacle else ""
    return Note(
        event=NotifyEvent.DEADLINE,
        level=Level.WARNING,
        title=f"not done by {printable(slip.by)}",
        body=f"{printable(str(slip))}.{longest}",
        next=command,
    )


def error_note(error: BaseException) -> Note:
    """Tell of the end of a run by an error; of one that nobody expected only its type is told."""
    stopped = isinstance(error, InterruptedRunError | KeyboardInterrupt)
    state = RolloutState.INTERRUPTED if stopped else RolloutState.FAILED
    message = error.message if isinstance(error, RolloutError) else type(error).__name__
    return replace(
        _finish_note(RunResult(()), state, unattended=False),
        body=f"{printable(message)}.",
        next=_WATCH,
    )


def _is_for_later(result: RunResult) -> bool:
    """Whether what is left is so for reasons that pass by themselves."""
    passing = all(node.is_for_later for node in result.not_started)
    return bool(result.not_started) and passing and not (result.failed or result.not_done)


_LEVELS = {
    RolloutState.COMPLETED: Level.SUCCESS,
    RolloutState.FAILED: Level.FAILURE,
    RolloutState.INTERRUPTED: Level.WARNING,
}


def _finish_note(result: RunResult, state: RolloutState, *, unattended: bool) -> Note:
    has_ended = result.succeeded or result.failed or result.not_done or result.not_started
    # why nodes were not begun; then what is odd about those that have succeeded
    messages = [node.message for node in result.not_started]
    messages += [f"{node.node} {node.message}" for node in result.succeeded if node.message]
    lines = [f"{printable(message)}." for message in messages[:1]]
    for word, nodes in (("Failed", result.failed), ("Not done", result.not_done)):
        lines += [f"{word}: {shortened([node.node for node in nodes])}."] if nodes else []
    lines += [f"Left out: {reason_counts(result.left_out)}."] if result.left_out else []
    return Note(
        event=NotifyEvent.FINISHED,
        level=Level.INFO if unattended and state is RolloutState.INTERRUPTED else _LEVELS[state],
        state=state,
        title=f"rollout {state}" + (f": {result_counts(result)}" if has_ended else ""),
        body="\n".join(lines),
        next=next_step(result, unattended=unattended),
    )
