from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from msgspec import UNSET, UnsetType

from rollout.model.plan import RolloutPlan
from rollout.model.progress import (
    Activity,
    NodeFinished,
    NodeRescued,
    NodeStep,
    Notice,
    Outcome,
    Phase,
    PlanReady,
    PodBlocked,
    PodReleased,
    PodsEvicted,
    RunFinished,
    StepEvent,
    VersionHeld,
    WaveSettling,
    WaveStarted,
)
from rollout.model.timestamps import Interval
from rollout.report.lines import (
    AbortedRecord,
    AnyLine,
    JournalHeader,
    PlanLine,
    RecordedPlan,
    SummaryLine,
)
from rollout.report.runs.model import PART_OF, BlockedEviction, PhaseReport, WaveReport


@dataclass(slots=True, eq=False)
class NodeView:
    """`monotonic` times and `now` are by the process's clock."""

    name: str
    # As in `NodeReport`.
    wave: int = 0
    # None before the node's start and after its end.
    phase: Phase | None = None
    detail: str = ""
    activity: Activity | UnsetType = UNSET
    since: datetime | None = None
    begun_monotonic: float = 0.0
    # Or when the node ended.
    phase_begun_monotonic: float = 0.0
    ended_phases: list[PhaseReport] = field(default_factory=list)
    # By pod: what is blocked now, and when it was last reported.
    blocked_evictions: dict[str, BlockedEviction] = field(default_factory=dict)
    block_reported_monotonic: dict[str, float] = field(default_factory=dict)
    has_evicted_pods: bool = False
    has_awaited_pods: bool = False
    version_staged: str = ""
    end: NodeFinished | None = None

    def apply_step(self, event: NodeStep, now: float) -> None:
        if self.phase is not event.phase:
            if self.phase is None:
                self.begun_monotonic = now
            self.leave_phase(event.at)
            self.phase = event.phase
            self.since = event.at
            self.phase_begun_monotonic = now
            if event.phase in PART_OF:
                # A node that had ended is taken up again.
                self.end = None
        self.detail = event.detail
        self.activity = event.activity
        self.version_staged = event.version_staged or self.version_staged
        # A drain has a detail only while it evicts or waits for pods to complete.
        is_busy_drain = event.phase is Phase.DRAINING and event.detail
        if is_busy_drain and event.activity is not Activity.COMPLETION:
            self.has_evicted_pods = True
        if event.awaited:
            self.has_awaited_pods = True

    def leave_phase(self, at: datetime) -> None:
        if self.phase and self.since and self.phase in PART_OF:
            # The clock may have been set back.
            self.ended_phases.append(PhaseReport(self.phase, self.since, max(self.since, at)))
        self.phase = None
        self.release_pods(at)

    def release_pods(self, at: datetime) -> None:
        for eviction in self.blocked_evictions.values():
            eviction.until = at
        self.blocked_evictions.clear()


@dataclass(slots=True)
class RunView:
    """The state of a run, from its events or journal. Not thread-safe.

    After its last node, a wave settles until evicted pods are available elsewhere.
    """

    begun_at: datetime | None = None
    last_at: datetime | None = None
    commands: list[JournalHeader | AbortedRecord] = field(default_factory=list)
    plans: list[RecordedPlan | RolloutPlan] = field(default_factory=list)
    planned_monotonic: float | None = None
    waves: list[WaveReport] = field(default_factory=list)
    settling: WaveSettling | None = None
    nodes: dict[str, NodeView] = field(default_factory=dict)
    failures: list[NodeFinished] = field(default_factory=list)
    # Also those that have ended.
    blocked_evictions: list[BlockedEviction] = field(default_factory=list)
    releases: list[PodReleased] = field(default_factory=list)
    evicted: list[PodsEvicted] = field(default_factory=list)
    # Seconds that pods took to terminate, by owner.
    pod_endings: dict[str, list[float]] = field(default_factory=dict)
    notices: list[Notice | VersionHeld | NodeRescued] = field(default_factory=list)
    interruptions: list[Interval] = field(default_factory=list)
    # None until the last command ends.
    summary: SummaryLine | None = None
    aborted: AbortedRecord | None = None
    eviction_count: int = 0
    unknown_record_count: int = 0
    # Since a node of the last wave has ended.
    _awaits_settling: bool = False
    # Finished by earlier processes.
    _earlier_waves: int = 0

    @property
    def headers(self) -> Sequence[JournalHeader]:
        return [entry for entry in self.commands if isinstance(entry, JournalHeader)]

    @property
    def planned_count(self) -> int:
        return self.plans[-1].summary.nodes if self.plans else 0

    @property
    def in_flight(self) -> Sequence[NodeView]:
        return [node for node in self.nodes.values() if node.phase]

    @property
    def ended(self) -> Sequence[NodeFinished]:
        return [node.end for node in self.nodes.values() if node.end]

    @property
    def failed_count(self) -> int:
        return sum(end.outcome.is_failure for end in self.ended)

    def apply(  # noqa: C901, PLR0912 - one case a type of event
        self, event: StepEvent | AnyLine | None, now: float = 0.0
    ) -> None:
        """Ignore None, a record that is not understood; `now` is monotonic."""
        if event is None:
            self.unknown_record_count += 1
            return
        if isinstance(event, JournalHeader):
            # Before this event, `last_at` is the end of the process before.
            self._begin_command(event)
        self.begun_at = self.begun_at or event.at
        self.last_at = max(event.at, self.last_at or event.at)
        match event:
            case PlanReady():
                self.plans.append(event.plan)
                self.planned_monotonic = now
            case PlanLine():
                self.plans.append(event.document)
                self.planned_monotonic = now
            case WaveStarted():
                self._start_wave(event)
            case WaveSettling():
                self._start_settling(event)
            case NodeStep():
                # A node continues only after the cluster has settled.
                self.settling = None
                self._get_or_add_node(event.node).apply_step(event, now)
                for owner, seconds in (event.endings or {}).items():
                    self.pod_endings.setdefault(owner, []).append(seconds)
            case PodBlocked():
                self._block_eviction(event, now)
            case PodReleased():
                self._release_pod(event)
            case PodsEvicted():
                self.evicted.append(event)
            case NodeFinished():
                self._finish_node(event, now)
            case VersionHeld() | Notice() | NodeRescued():
                self.notices.append(event)
            case RunFinished() | SummaryLine() | AbortedRecord():
                self._end_command(event)
            case _:
                return

    def release_pods(self, at: datetime) -> None:
        for node in self.nodes.values():
            node.release_pods(at)

    def close(self) -> None:
        if self.last_at:
            self._end_activities(self.last_at)

    def _begin_command(self, event: JournalHeader) -> None:
        """Count the time since the last process as an interruption."""
        self.commands.append(event)
        self.summary = None
        self.aborted = None
        if self.last_at and event.at > self.last_at:
            self._end_activities(self.last_at)
            self.interruptions.append(Interval(self.last_at, event.at))

    def _end_activities(self, at: datetime) -> None:
        for node in self.nodes.values():
            node.leave_phase(at)
        self._end_settling(at)

    def _end_command(self, event: RunFinished | SummaryLine | AbortedRecord) -> None:
        self._end_activities(event.at)
        if isinstance(event, AbortedRecord):
            self.commands.append(event)
            self.aborted = event
            self._end_returned_nodes(event)
        elif isinstance(event, SummaryLine):
            self.summary = event
            self.eviction_count += event.evictions

    def _end_returned_nodes(self, event: AbortedRecord) -> None:
        versions = event.versions or {}
        for name in event.reverted:
            node = self._get_or_add_node(name)
            if node.end is None and node.ended_phases:
                phase = node.ended_phases[-1].phase
                version = versions.get(name, "")
                node.end = NodeFinished(event.at, name, Outcome.ABORTED, phase, version=version)

    def _get_or_add_node(self, name: str) -> NodeView:
        return self.nodes.setdefault(name, NodeView(name))

    def _start_wave(self, event: WaveStarted) -> None:
        self._end_settling(event.at)
        earlier_waves = self._count_earlier_waves(event)
        self.waves.append(
            WaveReport(
                index=earlier_waves + event.index,
                of=earlier_waves + event.waves,
                nodes=event.nodes,
                because=event.because,
                in_flight=event.in_flight,
                begun_at=event.at,
                ended_at=event.at,
                estimate_seconds=self._planned_wave_seconds(event.index),
            )
        )
        for name in event.nodes:
            self._get_or_add_node(name).wave = len(self.waves)

    def _planned_wave_seconds(self, index: int) -> int | None:
        waves = self.plans[-1].waves if self.plans else ()
        estimates = {wave.index: wave.estimate.seconds for wave in waves}
        return estimates.get(index) or None

    def _count_earlier_waves(self, event: WaveStarted) -> int:
        is_first_of_process = event.index == 1
        if is_first_of_process and self.waves:
            last = self.waves[-1]
            # Each process counts its waves from 1. A wave that continues nodes of the last one
            # keeps its number.
            continues_last = not set(last.nodes).isdisjoint(event.nodes)
            self._earlier_waves = last.index - 1 if continues_last else last.index
        return self._earlier_waves

    def _start_settling(self, event: WaveSettling) -> None:
        self.settling = event
        if self.waves and event.waiting_for not in self.waves[-1].waited_for:
            self.waves[-1].waited_for.append(event.waiting_for)

    def _end_settling(self, at: datetime) -> None:
        self.settling = None
        if self._awaits_settling:
            wave = self.waves[-1]
            wave.settle_seconds = max(0.0, round((at - wave.ended_at).total_seconds(), 3))
            self._awaits_settling = False

    def _finish_node(self, event: NodeFinished, now: float) -> None:
        node = self._get_or_add_node(event.node)
        node.leave_phase(event.at)
        node.end = event
        node.phase_begun_monotonic = now
        if event.outcome.is_failure:
            self.failures.append(event)
        last_wave = self.waves[-1] if self.waves else None
        if last_wave and event.node in last_wave.nodes:
            last_wave.ended_at = max(event.at, last_wave.begun_at)
            self._awaits_settling = True

    def _block_eviction(self, event: PodBlocked, now: float) -> None:
        node = self._get_or_add_node(event.node)
        node.block_reported_monotonic[event.pod] = now
        eviction = node.blocked_evictions.get(event.pod)
        if eviction and eviction.event.since == event.since:
            eviction.event = event
            eviction.until = event.at
            return
        eviction = BlockedEviction(event, event.at)
        node.blocked_evictions[event.pod] = eviction
        self.blocked_evictions.append(eviction)

    def _release_pod(self, event: PodReleased) -> None:
        self.releases.append(event)
        eviction = self._get_or_add_node(event.node).blocked_evictions.pop(event.pod, None)
        if eviction:
            eviction.until = event.at
            eviction.released = True


def run_view(lines: Iterable[AnyLine | None]) -> RunView:
    view = RunView()
    for line in lines:
        view.apply(line)
    view.close()
    return view
