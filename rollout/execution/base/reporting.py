import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from msgspec import UNSET

from rollout.model.completion import AwaitedPod
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

# In seconds between reports of an outage.
_QUIET_SECONDS = 30.0
# In place of a node's name.
_ROLLOUT = ""

LongestTerminations = tuple[tuple[str, float], ...]
"""Owners of pods, each with the seconds that its slowest pod took to terminate."""


@dataclass
class Reporter:
    """Sends events to each observer in order. One that raises an error gets no more."""

    observers: Sequence[Observer]
    clock: Clock
    _last_reported: dict[str, object] = field(default_factory=dict)

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def plan(self, plan: RolloutPlan) -> None:
        self.tell(PlanReady(self.now, plan))

    def wave(self, wave: Wave, waves: int) -> None:
        names = tuple(node.name for node in wave.nodes)
        in_flight = wave.rolling.in_flight if wave.rolling else None
        self.tell(
            WaveStarted(
                self.now,
                index=wave.index,
                waves=waves,
                nodes=names,
                because=wave.because,
                in_flight=in_flight,
            )
        )

    def settling(self, index: int, waiting_for: str) -> None:
        if self._note_if_new(_ROLLOUT, (index, waiting_for)):
            self.tell(WaveSettling(self.now, index, waiting_for))

    def step(
        self,
        node: str,
        phase: Phase,
        detail: str = "",
        *,
        longest_terminations: LongestTerminations = (),
        unplanned_version: str = "",
        edge: Edge | None = None,
        activity: Activity | None = None,
        awaited: tuple[AwaitedPod, ...] = (),
    ) -> None:
        """Report what a node does, unless its last event says the same.

        `unplanned_version` is booted instead of the planned one.
        """
        if self._note_if_new(node, (phase, detail, longest_terminations)):
            step = NodeStep(
                at=self.now,
                node=node,
                phase=phase,
                detail=detail,
                endings=dict(longest_terminations) if longest_terminations else UNSET,
                version_staged=unplanned_version or UNSET,
                edge=edge or UNSET,
                activity=activity or UNSET,
                awaited=awaited or UNSET,
            )
            self.tell(step)

    def _note_if_new(self, node: str, report: object) -> bool:
        is_new = self._last_reported.get(node) != report
        self._last_reported[node] = report
        return is_new

    def tell(self, event: StepEvent) -> None:
        for observer in self.observers:
            try:
                observer.notify(event)
            except Exception:  # noqa: BLE001 - no defect of an observer may stop a node
                # Other threads iterate over the old list.
                self.observers = [other for other in self.observers if other is not observer]

    def node_finished(self, result: NodeResult) -> None:
        self.tell(NodeFinished.of(self.now, result))

    def notice(self, message: str) -> None:
        self.tell(Notice(self.now, message))

    def finished(self, result: RunResult) -> None:
        self.tell(RunFinished(self.now, result))


@dataclass
class OutageNotice:
    report: Reporter
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _noticed_at: float = float("-inf")

    def __call__(self, error: BaseException) -> None:
        now = self.report.now.timestamp()
        with self._mutex:
            if now - self._noticed_at < _QUIET_SECONDS:
                return
            self._noticed_at = now
        self.report.notice(f"waiting for the API server: {error}")
