"""From a run's events to what those are sent who do not watch it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from rollout.errors import InterruptedRunError, LockedError, RolloutError
from rollout.execution.gates.policy_gates import Later
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
    WaveStarted,
)
from rollout.model.text import counted, elapsed, printable, shell_word, shortened, timestamp
from rollout.report.run_view import RunView
from rollout.report.sentences import ended, owned_pod, why_held
from rollout.report.summary import next_step, tallied

WATCH = "rollout status --run"
_PARTS = 4


@dataclass(slots=True)
class Noteworthy:
    """What of a run's events is worth a notification. Not safe for several threads.

    `held_after` is in seconds. `cluster` is what the cluster is to be called; empty: its server's address.
    `unattended`: what is left for another time, the next pass takes up. `has_begun`: there is a plan under way.
    """

    plan: RolloutPlan
    cluster: str
    held_after: float
    resumed: bool = False
    unattended: bool = False
    has_begun: bool = False
    _view: RunView = field(default_factory=RunView)
    _told_ended: int = 0
    _held: set[tuple[str, str]] = field(default_factory=set)
    _is_over: bool = False

    def take(self, event: StepEvent, *, stopped: bool = False) -> Iterator[Note]:
        """The notifications that an event leads to; `stopped`: somebody has asked for the run's end."""
        for note in self._notes(event, stopped=stopped):
            yield self._stamped(note, event.at)

    def broken_off(self, error: BaseException, at: datetime) -> Iterator[Note]:
        """The run ends without its last event, by an error.

        Of a rollout that is under way its own process tells; an unattended pass that had no time to begin is no news.
        """
        no_news = (LockedError, InterruptedRunError) if self.unattended else (LockedError,)
        if not self._is_over and not isinstance(error, no_news):
            self._is_over = True
            yield self._stamped(ended_by(error), at)

    def _stamped(self, note: Note, at: datetime) -> Note:
        identity = self.plan.cluster
        cluster = self.cluster or identity.server
        return replace(note, at=timestamp(at), cluster=cluster, server=identity.server, run=self.plan.plan_id)

    def _notes(self, event: StepEvent, *, stopped: bool) -> Iterator[Note]:
        if isinstance(event, WaveStarted):
            yield from self._wave_done()
            self._told_ended = 0
        self._view.take(event)
        match event:
            case PlanReady() if self.plan.waves:
                self.has_begun = True
                yield self._started()
            case PodBlocked():
                yield from self._blocked(event)
            case NodeFinished():
                yield from self._node(event)
            case VersionHeld():
                yield _held_version(event)
            case RunFinished():
                self._is_over = True
                yield self._finished(event.result, stopped=stopped)
            case _:
                return

    def _started(self) -> Note:
        nodes, waves = counted(self.plan.summary.nodes, "node"), counted(self.plan.summary.waves, "wave")
        staged = sorted({node.staged_version for node in self.plan.nodes if node.staged_version})
        versions = f" to {shortened(staged)}" if staged else ""
        seconds = self.plan.estimate.seconds
        return Note(
            event=NotifyEvent.STARTED,
            title=f"rollout {'resumed' if self.resumed else 'started'}: {nodes}{versions}",
            body=f"{nodes} in {waves}{f', about {elapsed(seconds)}' if seconds else ''}.",
            next=WATCH,
        )

    def _finished(self, result: RunResult, *, stopped: bool) -> Note:
        later = self.unattended and _is_for_later(result)
        if later or (stopped and result.not_started):
            note = _finished(result, RolloutState.INTERRUPTED, unattended=self.unattended)
            return replace(note, level=Level.INFO) if self.unattended else note
        state = RolloutState.COMPLETED if result.complete else RolloutState.FAILED
        return _finished(result, state, unattended=self.unattended)

    def _blocked(self, event: PodBlocked) -> Iterator[Note]:
        """Once for all that one budget holds on a node."""
        key = (event.node, event.budget or event.pod)
        held = (event.at - event.since).total_seconds()
        if held < self.held_after or key in self._held:
            return
        self._held.add(key)
        by, left = printable(event.budget) or "the API server", elapsed(max(0.0, event.seconds_left))
        yield Note(
            event=NotifyEvent.HELD,
            level=Level.WARNING,
            node=event.node,
            title=f"{printable(event.node)} is held by {by} for {elapsed(held)}",
            body=f"Pod {owned_pod(event)} cannot be evicted: {why_held(event)}.\nThe drain fails in {left}.",
            next=_look_at(event),
        )

    def _node(self, result: NodeFinished) -> Iterator[Note]:
        if result.outcome.is_failure:
            yield _failed(result)
        if self._view.waves and result.node in self._view.waves[-1].nodes and self._has_come_far():
            yield from self._wave_done()

    def _has_come_far(self) -> bool:
        """Whether all nodes of the wave have ended; of nodes that follow one another, whether a further quarter has."""
        wave, ended = self._view.waves[-1], len(self._wave_ends())
        size = len(wave.nodes)
        is_further = ended * _PARTS // size > self._told_ended * _PARTS // size
        return ended == size or (wave.in_flight is not None and is_further)

    def _wave_ends(self) -> Sequence[NodeFinished]:
        nodes = self._view.waves[-1].nodes if self._view.waves else ()
        return [end for name in nodes if (end := self._view.nodes[name].end)]

    def _wave_done(self) -> Iterator[Note]:
        """How far the wave has come, unless that was told already."""
        ends = self._wave_ends()
        if len(ends) == self._told_ended:
            return
        self._told_ended = len(ends)
        wave, failures = self._view.waves[-1], sum(end.outcome.is_failure for end in ends)
        so_many = f"{len(ends)} of {counted(len(wave.nodes), 'node')} ended"
        failed = f", {failures} failed" if failures else ""
        planned = counted(self.plan.summary.nodes, "node")
        whole = f"{len(self._view.ended)} of {planned} ended, {self._view.failed} failed"
        yield Note(
            event=NotifyEvent.WAVE_DONE,
            level=Level.WARNING if failures else Level.INFO,
            title=f"wave {wave.index} of {wave.of}: {so_many}{failed}",
            body=f"Of the rollout: {whole}.",
            next=WATCH,
        )


def _look_at(event: PodBlocked) -> str:
    """The command that shows what holds the pod."""
    namespace, _, name = (event.budget or event.pod).partition("/")
    if not event.budget or "," in event.budget:
        namespace, _, name = event.pod.partition("/")
        return f"kubectl describe pod -n {namespace} {name}"
    return f"kubectl describe pdb -n {namespace} {name}"


def _held_version(event: VersionHeld) -> Note:
    return Note(
        event=NotifyEvent.VERSION_HELD,
        level=Level.WARNING,
        title=f"version {printable(event.version)} is held",
        body=f"{printable(event.message)}.",
        next=f"rollout release {shell_word(event.version)}",
    )


def _failed(result: NodeFinished) -> Note:
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


def slipped(slip: Slip, obstacle: str, command: str) -> Note:
    """A date that will be missed, with what takes longest."""
    longest = f"\nLongest: {printable(obstacle)}." if obstacle else ""
    return Note(
        event=NotifyEvent.DEADLINE,
        level=Level.WARNING,
        title=f"not done by {printable(slip.by)}",
        body=f"{printable(str(slip))}.{longest}",
        next=command,
    )


def ended_by(error: BaseException) -> Note:
    """The end of a run by an error; of one that nobody expected only its type is told."""
    stopped = isinstance(error, InterruptedRunError | KeyboardInterrupt)
    state = RolloutState.INTERRUPTED if stopped else RolloutState.FAILED
    message = error.message if isinstance(error, RolloutError) else type(error).__name__
    return replace(_finished(RunResult(()), state, unattended=False), body=f"{printable(message)}.", next=WATCH)


def _is_for_later(result: RunResult) -> bool:
    """Whether what is left is so for reasons that pass by themselves."""
    passing = all(isinstance(node.message, Later) for node in result.not_started)
    return bool(result.not_started) and passing and not (result.failed or result.not_done)


_LEVELS = {
    RolloutState.COMPLETED: Level.SUCCESS,
    RolloutState.FAILED: Level.FAILURE,
    RolloutState.INTERRUPTED: Level.WARNING,
}


def _finished(result: RunResult, state: RolloutState, *, unattended: bool) -> Note:
    has_ended = result.succeeded or result.failed or result.not_done or result.not_started
    message = next(_messages(result), "")
    lines = [f"{printable(message)}."] if message else []
    lines += [f"Failed: {shortened([node.node for node in result.failed])}."] if result.failed else []
    lines += [f"Not done: {shortened([node.node for node in result.not_done])}."] if result.not_done else []
    lines += [f"Left out: {tallied(result.left_out)}."] if result.left_out else []
    return Note(
        event=NotifyEvent.FINISHED,
        level=_LEVELS[state],
        state=state,
        title=f"rollout {state}" + (f": {ended(result)}" if has_ended else ""),
        body="\n".join(lines),
        next=next_step(result, operating=unattended),
    )


def _messages(result: RunResult) -> Iterator[str]:
    """Why nodes were not begun; then what is odd about those that have succeeded."""
    yield from (str(node.message) for node in result.not_started)
    yield from (f"{node.node} {node.message}" for node in result.succeeded if node.message)
