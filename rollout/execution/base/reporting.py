"""Telling observers: the engine itself never prints."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from msgspec import UNSET

from rollout.model.plan import RolloutPlan, Wave
from rollout.model.progress import (
    NodeFinished,
    NodeResult,
    NodeStep,
    Notice,
    Phase,
    PlanReady,
    RunFinished,
    RunResult,
    StepEvent,
    WaveSettling,
    WaveStarted,
)
from rollout.ports import Clock, Observer

# Within these an outage is not told of again.
_QUIET_SECONDS = 30.0


@dataclass
class Observers:
    """Several observers as one, told in their order."""

    observers: Sequence[Observer]

    def notify(self, event: StepEvent) -> None:
        """Pass one event on to each."""
        for observer in self.observers:
            observer.notify(event)


@dataclass
class Unfailing:
    """Passes events on until the observer fails; from then on the run goes unwatched, and `failure` says why."""

    observer: Observer
    failure: Exception | None = None

    def notify(self, event: StepEvent) -> None:
        """Take one event."""
        if self.failure is not None:
            return
        try:
            self.observer.notify(event)
        except Exception as error:  # noqa: BLE001 - whatever it is, the nodes come first
            self.failure = error


@dataclass
class Reporter:
    """Stamps events with the time and hands them to the observer; what is waited for is told once, until it changes."""

    observer: Observer
    clock: Clock
    _waits: dict[str, object] = field(default_factory=dict)

    @property
    def now(self) -> datetime:
        """The time that an event made now would carry."""
        return self.clock.now()

    def plan(self, plan: RolloutPlan) -> None:
        """Tell of the plan that begins."""
        self.observer.notify(PlanReady(self.now, plan))

    def wave(self, wave: Wave, waves: int) -> None:
        """Tell of a wave that begins."""
        names = tuple(node.name for node in wave.nodes)
        in_flight = wave.rolling.in_flight if wave.rolling else None
        self.observer.notify(
            WaveStarted(self.now, wave.index, waves, names, wave.because, in_flight)
        )

    def settling(self, index: int, waiting_for: str) -> None:
        """Tell what keeps the next wave waiting."""
        if self._is_new("", (index, waiting_for)):
            self.observer.notify(WaveSettling(self.now, index, waiting_for))

    def step(
        self,
        node: str,
        phase: Phase,
        detail: str = "",
        endings: tuple[tuple[str, float], ...] = (),
        *,
        staged: str = "",
    ) -> None:
        """Report a node's progress. `staged` is the staged version if it is not the planned one."""
        if self._is_new(node, (phase, detail, endings)):
            told_endings = dict(endings) if endings else UNSET
            step = NodeStep(
                at=self.now,
                node=node,
                phase=phase,
                detail=detail,
                endings=told_endings,
                version_staged=staged or UNSET,
            )
            self.observer.notify(step)

    def _is_new(self, about: str, wait: object) -> bool:
        was = self._waits.get(about)
        self._waits[about] = wait
        return was != wait

    def tell(self, event: StepEvent) -> None:
        """Hand on an event that carries its time."""
        self.observer.notify(event)

    def node_finished(self, result: NodeResult) -> None:
        """Tell of a node's end."""
        self.observer.notify(NodeFinished.of(self.now, result))

    def notice(self, message: str) -> None:
        """Something about the whole run."""
        self.observer.notify(Notice(self.now, message))

    def finished(self, result: RunResult) -> None:
        """Tell of the end."""
        self.observer.notify(RunFinished(self.now, result))


@dataclass
class OutageNotice:
    """Tells of an API server that is away: once when it goes, not at every attempt."""

    report: Reporter
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _noticed_at: float = float("-inf")

    def __call__(self, error: BaseException) -> None:
        """Hear of one failed attempt."""
        now = self.report.now.timestamp()
        with self._turn:
            if now - self._noticed_at < _QUIET_SECONDS:
                return
            self._noticed_at = now
        self.report.notice(f"waiting for the API server: {error}")
