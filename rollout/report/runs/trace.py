"""What a journal's records trace: phases by node, waves, held evictions, failures; and where the time went."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

import msgspec

from rollout.errors import UsageError
from rollout.model.gates import WindowPolicy
from rollout.model.progress import (
    NodeStep,
    Notice,
    Outcome,
    Phase,
    PodBlocked,
    PodReleased,
    VersionHeld,
    WaveSettling,
    WaveStarted,
)
from rollout.planning.schedule import Schedule
from rollout.report.lines import AnyLine, NodeFinishedLine, PlanLine, RunRecord, SummaryLine, ToldNode, ToldPlan
from rollout.report.runs.model import (
    PART_OF,
    CommandReport,
    HoldReport,
    NodeReport,
    NoticeReport,
    Part,
    PartReport,
    PhaseReport,
    Stretch,
    WaveReport,
)

_NO_FAILURES = (Outcome.SUCCEEDED, Outcome.SKIPPED)


@dataclass(slots=True)
class Trace:
    """The records of one run, taken in one after another."""

    begun_at: datetime | None = None
    heard_at: datetime | None = None
    commands: list[CommandReport] = field(default_factory=list)
    plans: list[ToldPlan] = field(default_factory=list)
    planned: dict[str, ToldNode] = field(default_factory=dict)
    waves: list[WaveReport] = field(default_factory=list)
    wave_of: dict[str, int] = field(default_factory=dict)
    phases: dict[str, list[PhaseReport]] = field(default_factory=dict)
    finished: dict[str, NodeFinishedLine] = field(default_factory=dict)
    failures: list[NodeFinishedLine] = field(default_factory=list)
    holds: dict[tuple[str, str, datetime], HoldReport] = field(default_factory=dict)
    notices: list[NoticeReport] = field(default_factory=list)
    interruptions: list[Stretch] = field(default_factory=list)
    misunderstood: int = 0
    _open: dict[str, tuple[Phase, datetime]] = field(default_factory=dict)
    _held: dict[str, set[tuple[str, str, datetime]]] = field(default_factory=dict)
    _settles: bool = False

    def close(self) -> None:
        """The journal ends here: so does what has not ended in it."""
        if self.heard_at:
            self._interrupt(self.heard_at)

    def hear(self, entry: AnyLine | None) -> None:
        """Take in one record."""
        if entry is None:
            self.misunderstood += 1
            return
        if isinstance(entry, RunRecord):
            self._run(entry)
        self.begun_at = self.begun_at or entry.at
        # clocks are set back now and then: nothing ends before it begins
        self.heard_at = max(entry.at, self.heard_at or entry.at)
        self._take(entry)

    def _take(self, entry: AnyLine) -> None:
        match entry:
            case PlanLine():
                self._plan(entry.document)
            case WaveStarted() | WaveSettling() | SummaryLine():
                self._wave(entry)
            case NodeStep():
                self._step(entry)
            case PodBlocked() | PodReleased():
                self._hold(entry)
            case NodeFinishedLine():
                self._finish(entry)
            case VersionHeld() | Notice():
                self.notices.append(NoticeReport(entry.at, entry.message))
            case _:
                pass

    def _run(self, entry: RunRecord) -> None:
        self.commands.append(CommandReport(entry.command, entry.by, entry.version, entry.format_version, entry.at))
        if self.heard_at and entry.at > self.heard_at:
            self._interrupt(self.heard_at)
            self.interruptions.append(Stretch(self.heard_at, entry.at))

    def _interrupt(self, at: datetime) -> None:
        """No process goes on with what is open."""
        for node in list(self._open):
            self._leave(node, at)
        for node in list(self._held):
            self._let_go(node, at)
        self._settle(at)

    def _plan(self, plan: ToldPlan) -> None:
        self.plans.append(plan)
        for wave in plan.waves:
            for node in wave.nodes:
                self.planned.setdefault(node.name, node)

    def _wave(self, entry: WaveStarted | WaveSettling | SummaryLine) -> None:
        if isinstance(entry, WaveSettling):
            self._wait(entry)
            return
        self._settle(entry.at)
        if isinstance(entry, SummaryLine):
            return
        estimates = {wave.index: wave.estimate.seconds for wave in self.plans[-1].waves} if self.plans else {}
        self.waves.append(
            WaveReport(
                *(entry.index, entry.waves, entry.nodes, entry.because, entry.in_flight, entry.at, entry.at),
                settle_seconds=0.0,
                waited_for=(),
                estimate_seconds=estimates.get(entry.index) or None,
            )
        )
        self.wave_of.update(dict.fromkeys(entry.nodes, len(self.waves)))

    def _settle(self, at: datetime) -> None:
        """The wave that had its last end has settled by now."""
        if self._settles:
            wave = self.waves[-1]
            self.waves[-1] = replace(wave, settle_seconds=max(0.0, round((at - wave.ended_at).total_seconds(), 3)))
            self._settles = False

    def _wait(self, entry: WaveSettling) -> None:
        if self.waves and entry.waiting_for not in self.waves[-1].waited_for:
            self.waves[-1] = replace(self.waves[-1], waited_for=(*self.waves[-1].waited_for, entry.waiting_for))

    def _step(self, entry: NodeStep) -> None:
        self.phases.setdefault(entry.node, [])
        phase, _since = self._open.get(entry.node, (None, None))
        if phase is entry.phase:
            return
        self._leave(entry.node, entry.at)
        if entry.phase in PART_OF:
            self._open[entry.node] = (entry.phase, entry.at)
            # a node that is taken on again has not ended yet
            self.finished.pop(entry.node, None)

    def _leave(self, node: str, at: datetime) -> None:
        if opened := self._open.pop(node, None):
            phase, since = opened
            self.phases[node].append(PhaseReport(phase, since, max(since, at)))

    def _finish(self, entry: NodeFinishedLine) -> None:
        self._leave(entry.node, entry.at)
        self._let_go(entry.node, entry.at)
        self.finished[entry.node] = entry
        if entry.outcome not in _NO_FAILURES:
            self.failures.append(entry)
        if self.waves and entry.node in self.waves[-1].nodes:
            self.waves[-1] = replace(self.waves[-1], ended_at=max(entry.at, self.waves[-1].begun_at))
            self._settles = True

    def _hold(self, entry: PodBlocked | PodReleased) -> None:
        key = (entry.node, entry.pod, entry.since)
        if isinstance(entry, PodReleased):
            if held := self.holds.get(key):
                self.holds[key] = replace(held, until=entry.at, released=True)
            self._held.get(entry.node, set()).discard(key)
            return
        self._held.setdefault(entry.node, set()).add(key)
        self.holds[key] = HoldReport(
            *(entry.node, entry.pod, entry.owner, entry.budget, entry.message, entry.needs, entry.has),
            since=entry.since,
            until=entry.at,
            released=False,
        )

    def _let_go(self, node: str, at: datetime) -> None:
        for key in self._held.pop(node, set()):
            self.holds[key] = replace(self.holds[key], until=at)


def traced(entries: Iterable[AnyLine | None]) -> Trace:
    """The whole of a journal."""
    trace = Trace()
    for entry in entries:
        trace.hear(entry)
    trace.close()
    return trace


def parts_of(phases: Iterable[PhaseReport]) -> Mapping[Part, float]:
    """Seconds by part."""
    parts: dict[Part, float] = {}
    for phase in phases:
        part = PART_OF[phase.phase]
        parts[part] = round(parts.get(part, 0.0) + (phase.end - phase.begin).total_seconds(), 3)
    return parts


# What is longer than any rollout has clocks that lie.
_LONGEST = timedelta(days=400)


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a run in which the same goes on: what its nodes do, and how many each; or what happens meanwhile."""

    stretch: Stretch
    doing: Mapping[Part, int]
    idle: Part | None = None


def pieces(
    whole: Stretch, nodes: Sequence[NodeReport], openings: Sequence[Stretch] | None, interruptions: Sequence[Stretch]
) -> Iterator[Piece]:
    """The run cut at every moment at which anything changes, in its order; `openings` is None without windows."""
    changes: dict[datetime, Counter[Part]] = {whole.begin: Counter(), whole.end: Counter()}
    for phase in (phase for node in nodes for phase in node.phases):
        changes.setdefault(phase.begin, Counter())[PART_OF[phase.phase]] += 1
        changes.setdefault(phase.end, Counter())[PART_OF[phase.phase]] -= 1
    for edge in (edge for stretch in (*(openings or ()), *interruptions) for edge in (stretch.begin, stretch.end)):
        changes.setdefault(edge, Counter())
    moments = sorted(moment for moment in changes if whole.begin <= moment <= whole.end)
    doing, has_worked = Counter[Part](), False
    for begin, end in pairwise(moments):
        doing.update(changes[begin])
        active = {part: count for part, count in doing.items() if count > 0}
        idle = None if active else _idle(begin, openings, interruptions, has_worked=has_worked)
        has_worked = bool(active) or (has_worked and idle is not Part.INTERRUPTED)
        yield Piece(Stretch(begin, end), active, idle)


def _idle(
    at: datetime, openings: Sequence[Stretch] | None, interruptions: Sequence[Stretch], *, has_worked: bool
) -> Part:
    """What goes on while no node is in flight."""
    if any(stretch.begin <= at < stretch.end for stretch in interruptions):
        return Part.INTERRUPTED
    if openings is not None and not any(stretch.begin <= at < stretch.end for stretch in openings):
        return Part.WINDOW
    return Part.SETTLE if has_worked else Part.PREPARE


def part_reports(cut: Iterable[Piece], nodes: Sequence[NodeReport]) -> tuple[PartReport, ...]:
    """Each part that took any time, in the order of a node's way."""
    whole: dict[Part, float] = defaultdict(float)
    for piece in cut:
        seconds, together = piece.stretch.seconds, sum(piece.doing.values())
        for part, count in piece.doing.items():
            whole[part] += seconds * count / together
        if piece.idle:
            whole[piece.idle] += seconds
    return tuple(_part_report(part, round(whole[part], 3), nodes) for part in Part if whole[part])


def _part_report(part: Part, seconds: float, nodes: Sequence[NodeReport]) -> PartReport:
    took = [(node.parts[part], node.node) for node in nodes if part in node.parts]
    if not took:
        return PartReport(part, seconds)
    longest, slowest = max(took, key=lambda pair: pair[0])
    return PartReport(part, seconds, round(median(seconds for seconds, _node in took), 3), longest, slowest)


def openings_in(windows: object, whole: Stretch) -> tuple[Stretch, ...] | None:
    """When these windows, as a policy writes them, were open in the run; None where there are none to be read."""
    try:
        schedule = Schedule.of(msgspec.convert(windows, WindowPolicy))
    except (UsageError, msgspec.ValidationError):
        return None
    if not schedule or whole.end - whole.begin > _LONGEST:
        return None
    openings = schedule.openings(whole.begin, whole.end)
    clipped = (Stretch(max(item.begin, whole.begin), min(item.end, whole.end)) for item in openings)
    return tuple(stretch for stretch in clipped if stretch.begin < stretch.end)
