import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from typing import Any

from prometheus_client import Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from rollout import __version__
from rollout.errors import ExitCode
from rollout.model.host import HostFacts, HostObservation, UpdateStanding
from rollout.model.memory import Memory
from rollout.model.progress import (
    NodeFinished,
    NodeRescued,
    NodeStep,
    Outcome,
    Phase,
    PlanReady,
    RunFinished,
    StepEvent,
    VersionHeld,
)
from rollout.model.timestamps import parse_timestamp
from rollout.model.update_checks import CheckState
from rollout.planning.eligibility.memory import why_held
from rollout.report.metric_families import Families, Family
from rollout.report.run_view import NodeView, RunView


class AttemptResult(StrEnum):
    """How an attempt ended: its exit code, or `SKIPPED` without work.

    An attempt is an apply, a rollback, a resume or a pass of operate. The metrics call each of them
    a pass.
    """

    OK = "ok"
    ERROR = "error"
    PARTIAL = "partial"
    STALE = "stale"
    BLOCKED = "blocked"
    DECLINED = "declined"
    INTERRUPTED = "interrupted"
    SKIPPED = "skipped"

    @classmethod
    def of(cls, code: ExitCode) -> "AttemptResult":
        name = code.name.lower()
        return cls(name) if name in set(cls) else cls.ERROR


_NOT_IN_FLIGHT = (Phase.PENDING, Phase.DONE, Phase.FAILED)


class Metrics(Collector):
    """Collects metrics of one cluster. Safe to use from many threads."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self._lock = threading.Lock()
        self._families = Families(cluster)
        self._metrics_of_earlier_process: Mapping[str, Metric] = {}
        self._is_skipped = False
        self._last_result: AttemptResult | None = None
        self._are_held_versions_known = False
        self._view = RunView()
        self._pools: dict[str, str] = {}
        self.has_plan = False
        self.change_count = 0
        self._families.cluster.build(__version__).set(1)
        self._families.run.running().set(0)
        self._families.attempts.start().set(0)
        for result in AttemptResult:
            self._families.attempts.ended(result)

    @contextmanager
    def _lock_to_change(self) -> Iterator[Families]:
        with self._lock:
            yield self._families
            self.change_count += 1

    def observe_hosts(
        self, observations: Mapping[str, HostObservation], *, keep_others: bool = False
    ) -> None:
        """Leave nodes out whose need is unknown."""
        with self._lock_to_change() as families:
            if not keep_others:
                families.cluster.reboot_required.clear()
            for node, observation in sorted(observations.items()):
                if isinstance(observation, HostFacts) and not observation.detection.unanswered:
                    families.cluster.reboot_required(node).set(observation.detection.needs_reboot)

    def observe_updates(self, update_standings: Mapping[str, UpdateStanding]) -> None:
        """Set when hosts last checked: 0 for never, nothing if unknown."""
        with self._lock_to_change() as families:
            families.cluster.last_check.clear()
            for node, standing in sorted(update_standings.items()):
                checked_at = parse_timestamp(standing.last_checked)
                has_never_checked = standing.checks is CheckState.STALE and checked_at is None
                if standing.checks.is_off or has_never_checked:
                    families.cluster.last_check(node).set(0)
                elif checked_at is not None:
                    families.cluster.last_check(node).set(checked_at.timestamp())
            behind = sum(standing.behind for standing in update_standings.values())
            families.cluster.hosts_behind().set(behind)

    def observe_memory(self, memory: Memory) -> None:
        if memory.why_unreadable:
            return
        with self._lock_to_change() as families:
            self._are_held_versions_known = True
            families.cluster.version_held.clear()
            for version in memory.versions:
                if why_held(memory, version):
                    families.cluster.version_held(version).set(1)

    def observe_lateness(self, seconds_late: float) -> None:
        """Infinite `seconds_late` means never."""
        with self._lock_to_change() as families:
            families.attempts.late().set(seconds_late)

    def begin_attempt(self, at: datetime) -> None:
        """Show an attempt that hangs. This does not count as a change."""
        with self._lock:
            self._families.attempts.start().set(at.timestamp())

    def skip_attempt(self) -> None:
        self._is_skipped = True

    def end_attempt(self, result: AttemptResult, at: datetime) -> None:
        with self._lock_to_change() as families:
            had_nothing_to_do = self._is_skipped and result is AttemptResult.OK
            self._is_skipped = False
            self._last_result = AttemptResult.SKIPPED if had_nothing_to_do else result
            self._view.release_pods(at)
            families.run.running().set(0)
            families.attempts.start().set(0)
            families.attempts.ended(self._last_result).inc()
            families.attempts.last_end().set(at.timestamp())
            for possible_result in AttemptResult:
                is_last = possible_result is self._last_result
                families.attempts.last_result(possible_result).set(is_last)
            if self._last_result is AttemptResult.OK:
                families.attempts.last_success().set(at.timestamp())

    def notify(self, event: StepEvent) -> None:
        with self._lock_to_change() as families:
            match event:
                case PlanReady():
                    self._start_rollout(event)
                case NodeStep():
                    self._move_node(event)
                case NodeFinished():
                    self._finish_node(event)
                case NodeRescued():
                    families.run.rescues(self._pools.get(event.node, "")).inc()
                case VersionHeld():
                    self._are_held_versions_known = True
                    families.cluster.version_held(event.version).set(1)
                case RunFinished():
                    # A FleetLock server's other plans may still have nodes in flight.
                    families.run.running().set(bool(self._view.in_flight))
                    self._view.release_pods(event.at)
                case _:
                    self._view.apply(event)

    def _start_rollout(self, event: PlanReady) -> None:
        families = self._families
        plan = event.plan
        self.has_plan = True
        planned_pools = {node.name: node.pool for node in plan.nodes}
        # Only `operate` has a last pass; its new plan takes up nodes in flight.
        in_flight = self._view.in_flight if self._last_result is None else ()
        other_nodes = {node.name: node for node in in_flight if node.name not in planned_pools}
        self._view = RunView(nodes=other_nodes)
        self._view.apply(event)
        other_pools = {name: self._pools.get(name, "") for name in other_nodes}
        self._pools = {**other_pools, **planned_pools}
        for family in (families.cluster.info, families.run.excluded):
            family.clear()
        families.cluster.info(plan.cluster.server, plan.cluster.uid, plan.cluster.version).set(1)
        families.run.running().set(1)
        self._expose_zero_counts()
        for node in plan.nodes:
            if node.staged:
                families.cluster.reboot_required(node.name).set(1)
        for exclusion in plan.excluded:
            families.run.excluded(exclusion.reason, exclusion.pool).inc()

    def _expose_zero_counts(self) -> None:
        """Their first event is then an increase."""
        families = self._families
        for pool in self._all_pools:
            for phase in Phase:
                if phase is not Phase.DONE:
                    families.run.failures(phase, pool)
            families.run.drain(pool)
            families.run.reboot(pool)
            families.run.rescues(pool)

    @property
    def _all_pools(self) -> Sequence[str]:
        """The empty name is for nodes without a pool."""
        return sorted(set(self._pools.values())) or [""]

    def _move_node(self, event: NodeStep) -> None:
        node = self._view.nodes.get(event.node)
        earlier_phase = node.phase if node else None
        self._view.apply(event)
        if event.phase is earlier_phase:
            return
        pool = self._pools.get(event.node, "")
        ended_phases = self._view.nodes[event.node].ended_phases
        if earlier_phase is Phase.DRAINING and event.phase is Phase.DRAINED:
            drain_begun = ended_phases[-1].begin
            self._families.run.drain(pool).observe(_seconds(drain_begun, event.at))
        begin_by_phase = {phase.phase: phase.begin for phase in ended_phases}
        # Another process may have drained the node.
        is_begin_known = Phase.REBOOTING in begin_by_phase and Phase.DRAINED in begin_by_phase
        if event.phase is Phase.READY and is_begin_known:
            reboot_begun = begin_by_phase[Phase.REBOOTING]
            self._families.run.reboot(pool).observe(_seconds(reboot_begun, event.at))

    def _finish_node(self, event: NodeFinished) -> None:
        self._view.apply(event)
        if event.succeeded:
            self._families.cluster.reboot_required(event.node).set(0)
        elif event.outcome.is_failure:
            self._families.run.failures(event.phase, self._pools.get(event.node, "")).inc()

    def _refresh_rollout(self) -> None:
        """Set zeros too, so that they can be compared."""
        families = self._families
        view = self._view
        if not view.plans:
            return
        for family in (
            families.run.nodes,
            families.run.finished,
            families.run.phase_start,
            families.run.held_evictions,
        ):
            family.clear()
        planned_waves = view.plans[-1].waves
        wave_count = planned_waves[-1].index if planned_waves else 0
        current_wave = 0
        if view.waves:
            # Unlike the plan, these count the waves of earlier processes too.
            wave_count = view.waves[-1].of
            current_wave = view.waves[-1].index
        families.run.wave().set(current_wave)
        families.run.waves().set(wave_count)
        for pool in self._all_pools:
            for phase in Phase:
                families.run.nodes(phase, pool).set(0)
            for outcome in Outcome:
                families.run.finished(outcome, pool).set(0)
        for name in {**self._pools, **view.nodes}:
            self._count_node(view.nodes.get(name) or NodeView(name), self._pools.get(name, ""))

    def _count_node(self, node: NodeView, pool: str) -> None:
        phase = _phase_of(node)
        self._families.run.nodes(phase, pool).inc()
        if node.end:
            self._families.run.finished(node.end.outcome, pool).inc()
        elif node.since and phase not in _NOT_IN_FLIGHT:
            self._families.run.phase_start(node.name, phase).set(node.since.timestamp())
        for eviction in node.blocked_evictions.values():
            self._families.run.held_evictions(eviction.event.budget).inc()

    @property
    def is_ready(self) -> bool:
        return self.change_count > 0 and self._last_result is not AttemptResult.ERROR

    def remember(self, text: str) -> None:
        """Use an earlier process's metrics until newer values are known.

        Raises `ValueError`, or another parser error.
        """
        earlier = {family.name: family for family in text_string_to_metric_families(text)}
        for family in earlier.values():
            family.samples = [
                sample for sample in family.samples if sample.labels.get("cluster") == self.cluster
            ]
        with self._lock:
            self._metrics_of_earlier_process = earlier

    def text(self) -> bytes:
        return generate_latest(self)

    def last_success(self) -> list[Metric]:
        with self._lock:
            metric = self._known_or_earlier(self._families.attempts.last_success)
        return [metric] if metric.samples else []

    def collect(self) -> list[Metric]:
        with self._lock:
            self._refresh_rollout()
            return [self._known_or_earlier(family) for family in self._families.all]

    def _known_or_earlier(self, family: Family[Any]) -> Metric:
        metric: Metric = next(iter(family.instrument.collect()))
        # A new plan does not change when the last success was.
        is_known = self.has_plan and family is not self._families.attempts.last_success
        if family is self._families.cluster.version_held:
            is_known = self._are_held_versions_known
        if metric.samples or is_known:
            return metric
        return self._metrics_of_earlier_process.get(metric.name, metric)


def _seconds(since: datetime, until: datetime) -> float:
    """Return 0 if a clock was set back in between."""
    return max(0.0, (until - since).total_seconds())


def _phase_of(node: NodeView) -> Phase:
    if node.phase:
        return node.phase
    if node.end and node.end.succeeded:
        return Phase.DONE
    if node.end and node.end.outcome.is_failure:
        return Phase.FAILED
    return Phase.PENDING
