"""How a run stands, from its events: who is in flight, in which phase, for how long."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from rollout.model.plan import RolloutPlan
from rollout.model.progress import NodeFinished, NodeStep, Phase, PlanReady, RunFinished, StepEvent, WaveStarted
from rollout.model.text import counted, elapsed, printable
from rollout.report.sentences import wave_title

_ORDER = {phase: place for place, phase in enumerate(Phase)}


@dataclass(frozen=True, slots=True)
class InFlight:
    """A node that has begun and not ended. `started` and `entered`, its phase, are monotonic readings."""

    node: str
    phase: Phase
    detail: str
    started: float
    entered: float


@dataclass(slots=True)
class RunState:
    """What a run's events add up to. Not safe for several threads: whoever holds it has a lock of its own.

    `began` is the monotonic reading at which its plan was told, None before that. `estimate` is how many seconds it
    takes from then on: as planned, and by the pace that it has shown once a node has ended; 0 where that is not known.
    """

    rows: dict[str, InFlight] = field(default_factory=dict)
    planned: int = 0
    began: float | None = None
    estimate: float = 0.0
    finished: int = 0
    failed: int = 0
    wave: str = ""
    shares: dict[str, float] = field(default_factory=dict)
    done: float = 0.0

    def take(self, event: StepEvent, now: float) -> None:
        """Take one event, heard at a monotonic reading."""
        match event:
            case PlanReady():
                self.planned, self.estimate = event.plan.summary.nodes, event.plan.estimate.seconds
                self.began, self.done, self.shares = now, 0.0, _shares(event.plan)
            case WaveStarted():
                self.wave = wave_title(event)
            case NodeStep():
                self._step(event, now)
            case NodeFinished():
                self.rows.pop(event.result.node, None)
                self.finished += 1
                self.failed += not event.result.succeeded
                self._correct(event.result.node, now)
            case RunFinished():
                self.rows.clear()
            case _:
                return

    def _correct(self, node: str, now: float) -> None:
        """Reckon anew how long all takes: a node's end is worth its share of what its wave was to take."""
        self.done += self.shares.pop(node, 0.0)
        whole = self.done + sum(self.shares.values())
        if self.began is not None and self.estimate and self.done:
            self.estimate = (now - self.began) * whole / self.done

    def _step(self, event: NodeStep, now: float) -> None:
        row = self.rows.get(event.node) or InFlight(event.node, event.phase, event.detail, now, now)
        entered = row.entered if row.phase is event.phase else now
        self.rows[event.node] = replace(row, phase=event.phase, detail=event.detail, entered=entered)

    def sentence(self, now: float) -> str:
        """The whole in one line."""
        failed = f", {self.failed} failed" if self.failed else ""
        flight = phases(self.rows.values())
        figures = f"{self.finished} of {counted(self.planned, 'node')} ended{failed}"
        longest = min(self.rows.values(), key=lambda row: row.entered, default=None)
        if longest is None:
            return figures
        detail = f", {printable(longest.detail)}" if longest.detail else ""
        since = elapsed(now - longest.entered)
        return f"{figures}; {flight}; {printable(longest.node)} is {longest.phase} for {since}{detail}"


def _shares(plan: RolloutPlan) -> dict[str, float]:
    return {node.name: wave.estimate.seconds / len(wave.nodes) for wave in plan.waves for node in wave.nodes}


def phases(rows: Iterable[InFlight]) -> str:
    """How many nodes are in which phase, in the order of phases."""
    counts = Counter(row.phase for row in rows)
    return ", ".join(f"{counts[phase]} {phase}" for phase in sorted(counts, key=_ORDER.__getitem__))
