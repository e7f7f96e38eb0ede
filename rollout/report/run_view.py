"""A run as its events tell it: the one fold of them, which board, logs, history and reports read.

It takes the engine's events as they come, and the lines of journals, which are the same types. What
a journal tells of several processes is one run; what was open when one of them ended has ended with
it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from msgspec import UNSET, UnsetType

from rollout.model.plan import RolloutPlan
from rollout.model.progress import (
    Activity,
    NodeFinished,
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
from rollout.report.lines import (
    AbortedRecord,
    AnyLine,
    JournalHeader,
    PlanLine,
    SummaryLine,
    ToldPlan,
)
from rollout.report.runs.model import PART_OF, BlockedEviction, PhaseReport, Stretch, WaveReport


@dataclass(slots=True, eq=False)
class NodeView:
    """A node's way so far. `phase` is the one it is in, None where it is not under way.

    `since` is when that began; `begun`, with the node, and `entered` are the same by a monotonic
    clock. `wave` is its place among the view's, from 1; `has_moved_pods`: some had to leave it.
    `held` are evictions by pod, `heard` when they were last told of, by a monotonic clock. `end` is
    None again where it was taken on anew.
    """

    name: str
    wave: int = 0
    phase: Phase | None = None
    detail: str = ""
    activity: Activity | UnsetType = UNSET
    since: datetime | None = None
    begun: float = 0.0
    entered: float = 0.0
    phases: list[PhaseReport] = field(default_factory=list)
    held: dict[str, BlockedEviction] = field(default_factory=dict)
    heard: dict[str, float] = field(default_factory=dict)
    has_moved_pods: bool = False
    version_staged: str = ""
    end: NodeFinished | None = None

    def enter(self, event: NodeStep, heard: float) -> None:
        """Go on to a phase, or stay in it."""
        if self.phase is not event.phase:
            if self.phase is None:
                self.begun = heard
            self.leave(event.at)
            self.phase = event.phase
            self.since = event.at
            self.entered = heard
            if event.phase in PART_OF:
                self.end = None
        self.detail = event.detail
        self.activity = event.activity
        self.version_staged = event.version_staged or self.version_staged
        self.has_moved_pods |= event.phase is Phase.DRAINING and bool(event.detail)

    def leave(self, at: datetime) -> None:
        """Be under way no more, with nothing held."""
        if self.phase and self.since and self.phase in PART_OF:
            # clocks are set back now and then: nothing ends before it begins
            self.phases.append(PhaseReport(self.phase, self.since, max(self.since, at)))
        self.phase = None
        self.let_go(at)

    def let_go(self, at: datetime) -> None:
        """Have nothing of it held any more."""
        for hold in self.held.values():
            hold.until = at
        self.held.clear()


@dataclass(slots=True)
class RunView:
    """What a run's events add up to. Not safe for several threads: whoever holds it has a lock of its own.

    `told_at` is the monotonic reading at which its last plan was told, None before that; `settling`
    what is waited for right now. `summary` is that of its last command, None where that has not
    ended, and `aborted` who undid it since. `evictions` are of all commands. `pod_endings` are how
    many seconds pods took to end, by owner. `misunderstood` counts records.
    """

    begun_at: datetime | None = None
    heard_at: datetime | None = None
    commands: list[JournalHeader | AbortedRecord] = field(default_factory=list)
    plans: list[ToldPlan | RolloutPlan] = field(default_factory=list)
    told_at: float | None = None
    waves: list[WaveReport] = field(default_factory=list)
    settling: WaveSettling | None = None
    nodes: dict[str, NodeView] = field(default_factory=dict)
    failures: list[NodeFinished] = field(default_factory=list)
    holds: list[BlockedEviction] = field(default_factory=list)
    releases: list[PodReleased] = field(default_factory=list)
    evicted: list[PodsEvicted] = field(default_factory=list)
    pod_endings: dict[str, list[float]] = field(default_factory=dict)
    notices: list[Notice | VersionHeld] = field(default_factory=list)
    interruptions: list[Stretch] = field(default_factory=list)
    summary: SummaryLine | None = None
    aborted: AbortedRecord | None = None
    evictions: int = 0
    misunderstood: int = 0
    _settles: bool = False
    _earlier_waves: int = 0

    @property
    def records(self) -> Sequence[JournalHeader]:
        """The processes that have worked on it."""
        return [entry for entry in self.commands if isinstance(entry, JournalHeader)]

    @property
    def planned(self) -> int:
        """How many nodes its last plan has."""
        return self.plans[-1].summary.nodes if self.plans else 0

    @property
    def in_flight(self) -> Sequence[NodeView]:
        """The nodes that are under way."""
        return [node for node in self.nodes.values() if node.phase]

    @property
    def ended(self) -> Sequence[NodeFinished]:
        """The ends of those that have ended."""
        return [node.end for node in self.nodes.values() if node.end]

    @property
    def failed(self) -> int:
        """How many of these have failed."""
        return sum(end.outcome.is_failure for end in self.ended)

    def take(  # noqa: C901, PLR0912 - one case a type of event
        self, event: StepEvent | AnyLine | None, heard: float = 0.0
    ) -> None:
        """Take one event, heard at a monotonic reading; None is a record that is not understood."""
        if event is None:
            self.misunderstood += 1
            return
        if isinstance(event, JournalHeader):
            self._begin(event)
        self.begun_at = self.begun_at or event.at
        self.heard_at = max(event.at, self.heard_at or event.at)
        match event:
            case PlanReady() | PlanLine():
                self.plans.append(event.plan if isinstance(event, PlanReady) else event.document)
                self.told_at = heard
            case WaveStarted():
                self._wave(event)
            case WaveSettling():
                self._settling(event)
            case NodeStep():
                # a node that goes on says that whatever had to settle before it has settled
                self.settling = None
                self._node(event.node).enter(event, heard)
                for owner, seconds in (event.endings or {}).items():
                    self.pod_endings.setdefault(owner, []).append(seconds)
            case PodBlocked() | PodReleased():
                self._hold(event, heard)
            case PodsEvicted():
                self.evicted.append(event)
            case NodeFinished():
                self._finish(event, heard)
            case VersionHeld() | Notice():
                self.notices.append(event)
            case RunFinished() | SummaryLine() | AbortedRecord():
                self._end(event)
            case _:
                return

    def let_go(self, at: datetime) -> None:
        """Have nothing held any more."""
        for node in self.nodes.values():
            node.let_go(at)

    def close(self) -> None:
        """End the journal here: so does what has not ended in it."""
        if self.heard_at:
            self._interrupt(self.heard_at)

    def _begin(self, event: JournalHeader) -> None:
        self.commands.append(event)
        self.summary = self.aborted = None
        if self.heard_at and event.at > self.heard_at:
            self._interrupt(self.heard_at)
            self.interruptions.append(Stretch(self.heard_at, event.at))

    def _interrupt(self, at: datetime) -> None:
        """No process goes on with what is open."""
        for node in self.nodes.values():
            node.leave(at)
        self._settled(at)

    def _end(self, event: RunFinished | SummaryLine | AbortedRecord) -> None:
        self._interrupt(event.at)
        if isinstance(event, AbortedRecord):
            self.commands.append(event)
            self.aborted = event
            self._give_back(event)
        elif isinstance(event, SummaryLine):
            self.summary = event
            self.evictions += event.evictions

    def _give_back(self, event: AbortedRecord) -> None:
        """End the nodes that were in progress when the rollout was aborted. Failed nodes keep their end."""
        versions = event.versions or {}
        for name in event.reverted:
            node = self._node(name)
            if node.end is None and node.phases:
                phase = node.phases[-1].phase
                version = versions.get(name, "")
                node.end = NodeFinished(event.at, name, Outcome.ABORTED, phase, version=version)

    def _node(self, name: str) -> NodeView:
        return self.nodes.setdefault(name, NodeView(name))

    def _wave(self, event: WaveStarted) -> None:
        self._settled(event.at)
        estimates = (
            {wave.index: wave.estimate.seconds for wave in self.plans[-1].waves}
            if self.plans
            else {}
        )
        estimate = estimates.get(event.index) or None
        before = self._waves_before(event)
        self.waves.append(
            WaveReport(
                index=before + event.index,
                of=before + event.waves,
                nodes=event.nodes,
                because=event.because,
                in_flight=event.in_flight,
                begun_at=event.at,
                ended_at=event.at,
                estimate_seconds=estimate,
            )
        )
        for name in event.nodes:
            self._node(name).wave = len(self.waves)

    def _waves_before(self, event: WaveStarted) -> int:
        """Return how many waves earlier processes have finished. Each process counts its own waves from 1.

        A wave that continues with nodes of the last one keeps its number.
        """
        if event.index == 1 and self.waves:
            last = self.waves[-1]
            goes_on = not set(last.nodes).isdisjoint(event.nodes)
            self._earlier_waves = last.index - 1 if goes_on else last.index
        return self._earlier_waves

    def _settling(self, event: WaveSettling) -> None:
        self.settling = event
        if self.waves and event.waiting_for not in self.waves[-1].waited_for:
            self.waves[-1].waited_for.append(event.waiting_for)

    def _settled(self, at: datetime) -> None:
        """Have the wave that had its last end settled by now."""
        self.settling = None
        if self._settles:
            wave = self.waves[-1]
            wave.settle_seconds = max(0.0, round((at - wave.ended_at).total_seconds(), 3))
            self._settles = False

    def _finish(self, event: NodeFinished, heard: float) -> None:
        node = self._node(event.node)
        node.leave(event.at)
        node.end = event
        node.entered = heard
        if event.outcome.is_failure:
            self.failures.append(event)
        if self.waves and event.node in self.waves[-1].nodes:
            self.waves[-1].ended_at = max(event.at, self.waves[-1].begun_at)
            self._settles = True

    def _hold(self, event: PodBlocked | PodReleased, heard: float) -> None:
        node = self._node(event.node)
        held = node.held
        node.heard[event.pod] = heard
        hold = held.get(event.pod)
        if isinstance(event, PodReleased):
            self.releases.append(event)
            if hold:
                hold.until = event.at
                hold.released = True
                del held[event.pod]
        elif hold and hold.event.since == event.since:
            hold.event = event
            hold.until = event.at
        else:
            held[event.pod] = BlockedEviction(event, event.at)
            self.holds.append(held[event.pod])


def run_view(entries: Iterable[AnyLine | None]) -> RunView:
    """Fold the whole of a journal."""
    view = RunView()
    for entry in entries:
        view.take(entry)
    view.close()
    return view
