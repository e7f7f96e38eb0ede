"""What events add up to, as samples of each metric. Pure: time comes with the events."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import accumulate

from rollout.model.plan import RolloutPlan
from rollout.model.progress import (
    NodeFinished,
    NodeResult,
    NodeStep,
    Outcome,
    Phase,
    PlanReady,
    PodBlocked,
    PodReleased,
    RunFinished,
    StepEvent,
    VersionHeld,
    WaveStarted,
)
from rollout.report.metrics import families as of

Labels = tuple[str, ...]
Samples = Mapping[Labels, float]


class PassResult(StrEnum):
    """How a pass ended: the words of its exit code; or skipped, where an operating process was not to do anything."""

    OK = "ok"
    ERROR = "error"
    PARTIAL = "partial"
    STALE = "stale"
    BLOCKED = "blocked"
    DECLINED = "declined"
    INTERRUPTED = "interrupted"
    SKIPPED = "skipped"


# Not begun, or given back because somebody wished so: no failure of the node's.
NO_FAILURES = (Outcome.SUCCEEDED, Outcome.SKIPPED, Outcome.ABORTED)
_NOT_IN_FLIGHT = (Phase.PENDING, Phase.DONE, Phase.FAILED)
_BUT_DONE = tuple(phase for phase in Phase if phase is not Phase.DONE)
# Budgets come and go with namespaces; what is above shares one series.
_MOST_BUDGETS = 100
OTHER_BUDGETS = "(others)"


@dataclass(slots=True)
class Histogram:
    """Durations by upper bound; `counts` has one more, for what exceeds all bounds."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.counts = self.counts or [0] * (len(self.bounds) + 1)
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    @property
    def cumulative(self) -> list[tuple[str, float]]:
        """How many were no longer than each bound."""
        bounds = [*map(str, self.bounds), "+Inf"]
        return list(zip(bounds, accumulate(self.counts or [0] * len(bounds)), strict=True))


@dataclass(slots=True)
class MetricsState:
    """A process's rollouts, one after another: what is of the latest, and what adds up. Not safe for several threads.

    Before the first plan `identity` is None, and little is known; nor are `held_versions` before they are told.
    `phases` are of planned nodes, each with when it came into it;
    `rebooting` is since when a host has been told to. `drains` and `reboots` are by pool.
    """

    identity: Labels | None = None
    reboot_required: dict[str, bool] = field(default_factory=dict)
    held_versions: frozenset[str] | None = None
    running: bool = False
    pools: dict[str, str] = field(default_factory=dict)
    phases: dict[str, tuple[Phase, datetime]] = field(default_factory=dict)
    rebooting: dict[str, datetime] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    excluded: Counter[Labels] = field(default_factory=Counter)
    wave: int = 0
    waves: int = 0
    held: dict[Labels, str] = field(default_factory=dict)
    holds: Counter[str] = field(default_factory=Counter)
    drains: dict[str, Histogram] = field(default_factory=dict)
    reboots: dict[str, Histogram] = field(default_factory=dict)
    failures: Counter[Labels] = field(default_factory=Counter)
    pass_began: datetime | None = None
    passes: Counter[PassResult] = field(default_factory=Counter)
    last_pass: tuple[PassResult, datetime] | None = None
    last_success: float | None = None

    def take(self, event: StepEvent) -> None:
        """Take one event."""
        match event:
            case PlanReady():
                self._plan(event.plan, event.at)
            case WaveStarted():
                self.wave, self.waves = event.index, event.waves
            case NodeStep():
                self._step(event.node, event.phase, event.at)
            case PodBlocked():
                self._blocked(event)
            case PodReleased():
                self.held.pop((event.node, event.pod), None)
            case NodeFinished():
                self._finished(event.result, event.at)
            case VersionHeld():
                self.held_versions = (self.held_versions or frozenset()) | {event.version}
            case RunFinished():
                self.running = False
                self.held.clear()
            case _:
                return

    def end_pass(self, result: PassResult, at: datetime) -> None:
        """A pass has ended, however: nothing is under way."""
        self.running = False
        self.pass_began = None
        self.held.clear()
        self.passes[result] += 1
        self.last_pass = (result, at)
        if result is PassResult.OK:
            self.last_success = at.timestamp()

    def _plan(self, plan: RolloutPlan, at: datetime) -> None:
        self.identity = (plan.cluster.server, plan.cluster.uid, plan.cluster.version)
        self.running, self.wave, self.waves = True, 0, len(plan.waves)
        beside = self._still_in_flight()
        self.pools = {name: self.pools.get(name, "") for name in beside} | {node.name: node.pool for node in plan.nodes}
        self.phases = {**beside, **dict.fromkeys((node.name for node in plan.nodes), (Phase.PENDING, at))}
        self.excluded = Counter((exclusion.reason.value, exclusion.pool) for exclusion in plan.excluded)
        self.reboot_required.update((node.name, True) for node in plan.nodes if node.staged)
        self.outcomes.clear()
        self.held.clear()

    def _still_in_flight(self) -> dict[str, tuple[Phase, datetime]]:
        """Nodes of other plans that are under way beside this one, as where hosts ask for their reboots.

        Of an operating process there are none: what an earlier pass has left, the new plan takes up.
        """
        if self.last_pass is not None:
            return {}
        return {name: state for name, state in self.phases.items() if state[0] not in _NOT_IN_FLIGHT}

    def _step(self, node: str, phase: Phase, at: datetime) -> None:
        before, since = self.phases.get(node, (None, at))
        if before is phase:
            return
        self.phases[node] = (phase, at)
        pool = self.pools.get(node, "")
        match before, phase:
            case Phase.DRAINING, Phase.DRAINED:
                self.drains.setdefault(pool, Histogram(of.DRAIN_BUCKETS)).observe(_seconds(since, at))
            case Phase.DRAINED, Phase.REBOOTING:
                self.rebooting[node] = at
            case _, Phase.READY if node in self.rebooting:
                seconds = _seconds(self.rebooting.pop(node), at)
                self.reboots.setdefault(pool, Histogram(of.REBOOT_BUCKETS)).observe(seconds)
            case _:
                return

    def _blocked(self, event: PodBlocked) -> None:
        budget = event.budget
        if budget not in self.holds and len(self.holds) >= _MOST_BUDGETS:
            budget = OTHER_BUDGETS
        if (event.node, event.pod) not in self.held:
            self.holds[budget] += 1
        self.held[event.node, event.pod] = budget

    def _finished(self, result: NodeResult, at: datetime) -> None:
        node, pool = result.node, self.pools.get(result.node, "")
        self.outcomes[node] = result.outcome
        self.phases[node] = (_last_phase(result), at)
        self.rebooting.pop(node, None)
        if result.succeeded:
            self.reboot_required[node] = False
        elif result.outcome not in NO_FAILURES:
            self.failures[result.phase.value, pool] += 1
        self.held = {key: budget for key, budget in self.held.items() if key[0] != node}

    def samples(self) -> Iterator[tuple[of.Family, Samples]]:
        """Every metric that is no histogram, with its samples by the values of its labels; none where not known."""
        yield of.REBOOT_REQUIRED, {(node,): required for node, required in sorted(self.reboot_required.items())}
        yield of.VERSION_HELD, {(version,): 1 for version in sorted(self.held_versions or ())}
        yield of.RUNNING, {(): self.running}
        yield of.PASS_START, {(): self.pass_began.timestamp() if self.pass_began else 0}
        yield of.PASSES, {(result,): self.passes[result] for result in PassResult}
        last, at = self.last_pass or (None, None)
        yield of.LAST_PASS, {(): at.timestamp()} if at else {}
        yield of.LAST_RESULT, {(result,): result is last for result in PassResult if last}
        yield of.LAST_SUCCESS, {} if self.last_success is None else {(): self.last_success}
        for family, samples in self._of_plan():
            yield family, samples if self.identity else {}

    def _of_plan(self) -> Iterator[tuple[of.Family, Samples]]:
        yield of.CLUSTER, {self.identity or (): 1}
        yield of.NODES, self._by_pool(Phase, {node: phase for node, (phase, _) in self.phases.items()})
        yield of.FINISHED, self._by_pool(Outcome, self.outcomes)
        yield of.EXCLUDED, self.excluded
        yield of.PHASE_START, dict(self._in_flight())
        yield of.WAVE, {(): self.wave}
        yield of.WAVES, {(): self.waves}
        yield of.HELD_EVICTIONS, Counter((budget,) for budget in self.held.values())
        yield of.HOLDS, {(budget,): count for budget, count in self.holds.items()}
        yield of.FAILURES, {(phase, pool): self.failures[phase, pool] for phase in _BUT_DONE for pool in self._pools}

    def histograms(self) -> Iterator[tuple[of.Family, Mapping[Labels, Histogram]]]:
        """The other metrics; one of no durations stands for a pool that has had none."""
        pools = self._pools if self.identity else []
        for family, bounds, durations in (
            (of.DRAIN, of.DRAIN_BUCKETS, self.drains),
            (of.REBOOT, of.REBOOT_BUCKETS, self.reboots),
        ):
            yield family, {(pool,): durations.get(pool) or Histogram(bounds) for pool in pools}

    @property
    def _pools(self) -> list[str]:
        """All that a plan has had; one without a name where there are none."""
        return sorted({*self.pools.values(), *self.drains, *self.reboots, *(pool for _, pool in self.failures)}) or [""]

    def _by_pool(self, words: Iterable[str], nodes: Mapping[str, str]) -> Samples:
        """How many nodes each word has, in each pool; zeros are said, for what is absent cannot be compared."""
        counts = Counter((word, self.pools.get(node, "")) for node, word in nodes.items())
        return {(word, pool): counts[word, pool] for word in words for pool in self._pools}

    def _in_flight(self) -> Iterator[tuple[Labels, float]]:
        for node, (phase, since) in self.phases.items():
            if phase not in _NOT_IN_FLIGHT:
                yield (node, phase), since.timestamp()


def _seconds(since: datetime, until: datetime) -> float:
    """How long it was; a clock that was set back makes nothing negative."""
    return max(0.0, (until - since).total_seconds())


def _last_phase(result: NodeResult) -> Phase:
    """Where a node stands that has ended: one that was given back untouched waits as before."""
    if result.succeeded:
        return Phase.DONE
    return Phase.PENDING if result.outcome in NO_FAILURES else Phase.FAILED
