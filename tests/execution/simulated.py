"""The real dispatcher of a wave in simulated time: nodes that take as long as they are told to, and a cluster that
settles from each after a while."""

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Self

import pytest
from msgspec.structs import replace

from rollout.adapters.clock import SystemClock
from rollout.execution.base.deadline import GracefulStop, PatientApi
from rollout.execution.base.gate_ports import NodePlaybooks, Rescue
from rollout.execution.base.reporting import Reporter
from rollout.execution.gates import OPEN, GateAnswer
from rollout.execution.node.context import NodeContext
from rollout.execution.record.record import Health
from rollout.execution.rollout import waves
from rollout.execution.rollout.health_monitor import NodeBaseline
from rollout.execution.rollout.ledger import Ledger
from rollout.execution.rollout.waves import Room, StopRule, WaveRunner, WaveState
from rollout.model.cluster import Node
from rollout.model.finding import ControllerMoving, Finding
from rollout.model.plan import PlannedNode, Rolling, Wave
from rollout.model.policy import Policy
from rollout.model.progress import NodeResult, Outcome, Phase, StepEvent
from rollout.planning.eligibility.away import AwayLimit
from rollout.planning.eligibility.memory import NodeEnd
from rollout.ports import Event

LONGEST = 10_000_000.0


@dataclass
class OpenEngine:
    """An engine that refuses nothing, and remembers nothing."""

    stop: GracefulStop = field(default_factory=GracefulStop)
    playbooks: NodePlaybooks | None = None
    rescue: Rescue | None = None
    most: int = 1

    def run_gate_command(self, context: NodeContext) -> None:
        pass

    def is_window_closed(self, planned: PlannedNode) -> bool:
        return False

    def find_busy_controller(self, name: str, nodes: Iterable[Node]) -> ControllerMoving | None:
        return None

    def why_not_to_cordon(self, planned: PlannedNode) -> Finding | None:
        return None

    def away_limit_of(self, nodes: Collection[Node]) -> AwayLimit:
        return AwayLimit(self.most)

    def set_phase_conditions(self, name: str, phase: Phase) -> None:
        pass

    def objection_to_version(self, planned: PlannedNode, version: str | None) -> Finding | None:
        return None

    def remember(self, planned: PlannedNode, end: NodeEnd) -> None:
        pass


class SetClock(SystemClock):
    """Passes when a test says so, and while it is slept on; nobody asks what time of day it is."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def now(self) -> datetime:
        raise AssertionError("clocks of two machines are never compared")


class SimulatedClock(SetClock):
    """One with a time of day."""

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)


class PassingClock(SimulatedClock):
    """One that passes while something is waited for, too."""

    def wait(self, event: Event, seconds: float) -> bool:
        self.sleep(seconds)
        return event.wait(0)


class SimulatedStop(GracefulStop, kw_only=True):
    """Waiting lets simulated time pass."""

    world: "World"

    def wait(self, seconds: float) -> bool:
        self.world.pass_time(seconds)
        return self.is_due


@dataclass
class World(AbstractContextManager["World"]):
    """Nodes that are away for so many seconds, settle in so many, and end with these outcomes; else they succeed.

    It stands in for the threads of nodes, and for what measures health. `away` are those that
    others have away at a second; `pools` are the limits of pools.
    """

    seconds: Mapping[str, float]
    settling: Mapping[str, float] = field(default_factory=dict)
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)
    away: Callable[[float], Collection[str]] = lambda _second: ()
    pools: AwayLimit = field(default_factory=partial(AwayLimit, 0))
    ledger: Ledger = field(default_factory=Ledger)
    ask_gates: Callable[[PlannedNode], GateAnswer] = lambda _node: OPEN
    idle: Callable[["World"], None] = lambda _world: None
    clock: SimulatedClock = field(default_factory=SimulatedClock)
    begun: dict[str, float] = field(default_factory=dict)
    ended_at: dict[str, float] = field(default_factory=dict)
    most_in_flight: int = 0
    notices: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._under_way: list[tuple[float, str]] = []
        self.cluster = PatientApi(None, self.clock)  # type: ignore[arg-type]
        self.report = Reporter((self,), self.clock)
        self.stop = SimulatedStop(world=self)

    def notify(self, event: StepEvent) -> None:
        pass

    def pass_time(self, seconds: float) -> None:
        assert self.clock.seconds < LONGEST, "it does not end"
        self.idle(self)
        self.clock.seconds += seconds

    # The threads of nodes

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(name for _, name in self._under_way)

    def start(self, node: PlannedNode) -> None:
        self.begun[node.name] = self.clock.seconds
        heapq.heappush(self._under_way, (self.clock.seconds + self.seconds[node.name], node.name))
        self.most_in_flight = max(self.most_in_flight, len(self._under_way))

    def wait_for_results(self, seconds: float | None) -> Sequence[NodeResult]:
        first = self._under_way[0][0] - self.clock.seconds
        self.pass_time(max(0.0, first if seconds is None else min(first, seconds)))
        results = []
        while self._under_way and self._under_way[0][0] <= self.clock.seconds:
            _, name = heapq.heappop(self._under_way)
            self.ended_at[name] = self.clock.seconds
            outcome = self.outcomes.get(name, Outcome.SUCCEEDED)
            results.append(
                NodeResult(
                    name, outcome, Phase.DONE, 1.0, left_cordoned=outcome is Outcome.NOT_BACK
                )
            )
        return results

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    # HealthMonitor

    def measure(
        self, nodes: Sequence[str], _in_flight: Mapping[str, NodeBaseline]
    ) -> Mapping[str, NodeBaseline]:
        return {node: NodeBaseline(Health({}, frozenset()), {node: 1}) for node in nodes}

    def read_readiness(self) -> Self:
        return self

    def find_missing(
        self,
        before: NodeBaseline,
        _expected: frozenset[str],
        _in_flight: Mapping[str, NodeBaseline],
    ) -> str:
        (name,) = before.pods
        return (
            ""
            if self.clock.seconds >= self.ended_at[name] + self.settling.get(name, 0)
            else f"{name} settles"
        )

    # The run

    @property
    def makespan(self) -> float:
        return max(self.ended_at.values())

    def run(self, rules: Rolling | None = None, *, limit: int, failures: int = 1) -> None:
        nodes = tuple(PlannedNode(name, "", "", "", "", 0, 0) for name in self.seconds)
        wave = Wave(1, nodes, "", rolling=rules)
        state = WaveState(wave, self, self.ledger, lambda _health: None)  # type: ignore[arg-type]
        runner = WaveRunner(
            run_and_report=lambda _node: NodeResult("", Outcome.FAILED, Phase.FAILED, 0),
            read_room=lambda: Room(
                replace(self.pools, most=limit),
                frozenset({*self.away(self.clock.seconds), *self.ledger.left_cordoned}),
            ),
            clock=self.clock,
            stop_rule=StopRule(self.stop, self.ledger, failures),
            settle_timeout=float(self.policy.settle_timeout),
            ledger=self.ledger,
            notice=self.notices.append,
            ask_gates=self.ask_gates,
        )
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(waves, "NodeThreads", lambda *_: self)
            runner.run(state)
