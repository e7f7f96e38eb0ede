"""Telling observers: the engine itself never prints."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from msgspec import UNSET

from rollout.model.plan import RolloutPlan, Wave
from rollout.model.progress import (
    Activity,
    Edge,
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
class Reporter:
    """Stamps events with the time and tells each observer, in order. What is waited for is told once.

    An observer that fails is told nothing more, and the rollout goes on without it.
    """

    observers: Sequence[Observer]
    clock: Clock
    _waits: dict[str, object] = field(default_factory=dict)

    @property
    def now(self) -> datetime:
        """The time that an event made now would carry."""
        return self.clock.now()

    def plan(self, plan: RolloutPlan) -> None:
        """Tell of the plan that begins."""
        self.tell(PlanReady(self.now, plan))

    def wave(self, wave: Wave, waves: int) -> None:
        """Tell of a wave that begins."""
        names = tuple(node.name for node in wave.nodes)
        in_flight = wave.rolling.in_flight if wave.rolling else None
        self.tell(WaveStarted(self.now, wave.index, waves, names, wave.because, in_flight))

    def settling(self, index: int, waiting_for: str) -> None:
        """Tell what keeps the next wave waiting."""
        if self._is_new("", (index, waiting_for)):
            self.tell(WaveSettling(self.now, index, waiting_for))

    def step(
        self,
        node: str,
        phase: Phase,
        detail: str = "",
        endings: tuple[tuple[str, float], ...] = (),
        *,
        staged: str = "",
        edge: Edge | None = None,
        activity: Activity | None = None,
    ) -> None:
        """Report a node's progress. `staged` is the staged version if it is not the planned one.

        `edge` is the move by which the node has entered the phase.
        """
        if self._is_new(node, (phase, detail, endings)):
            told_endings = dict(endings) if endings else UNSET
            step = NodeStep(
                at=self.now,
                node=node,
                phase=phase,
                detail=detail,
                endings=told_endings,
                version_staged=staged or UNSET,
                edge=edge or UNSET,
                activity=activity or UNSET,
            )
            self.tell(step)

    def _is_new(self, about: str, wait: object) -> bool:
        was = self._waits.get(about)
        self._waits[about] = wait
        return was != wait

    def tell(self, event: StepEvent) -> None:
        """Tell the observers an event that carries its time."""
        for observer in self.observers:
            try:
                observer.notify(event)
            except Exception:  # noqa: BLE001 - whatever it is, the nodes come first
                self.observers = [other for other in self.observers if other is not observer]

    def node_finished(self, result: NodeResult) -> None:
        """Tell of a node's end."""
        self.tell(NodeFinished.of(self.now, result))

    def notice(self, message: str) -> None:
        """Something about the whole run."""
        self.tell(Notice(self.now, message))

    def finished(self, result: RunResult) -> None:
        """Tell of the end."""
        self.tell(RunFinished(self.now, result))


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
