"""The timeline's geometry: where bars, marks and ticks stand, in percent of its width. Nothing here draws.

A long stretch in which no node is in flight is drawn short: a run that waited a day for its window stays readable.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

from rollout.model.progress import Outcome
from rollout.model.text import counted, elapsed
from rollout.report.runs.model import PART_OF, Hold, NodeReport, RunReport, Stretch
from rollout.report.runs.tables import said_outcome

MOST_ROWS = 60
# Of the whole: from which part on a pause is cut short, and to how much.
_LONG, _SHORT = 0.2, 0.03
_LEAST = 0.25
_MINUTE, _HOUR, _DAY, _WEEK = 60, 3600, 86400, 604800
_STEPS = (
    *(1, 2, 5, 10, 15, 30, _MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY, _WEEK, 2 * _WEEK, 8 * _WEEK),
)
_TICKS = 5


@dataclass(frozen=True, slots=True)
class Bar:
    """Something that lasts: from `x` on, `width` long, both in percent."""

    x: float
    width: float
    kind: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A time on the axis."""

    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Row:
    """A node on the timeline."""

    label: str
    remark: str
    took: str
    bars: tuple[Bar, ...]
    holds: tuple[Bar, ...] = ()
    mark: float | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """The rows of a wave."""

    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """Rows on one axis. `shades` are open windows, `cuts` pauses that are drawn short."""

    title: str
    span: str
    ticks: tuple[Tick, ...]
    shades: tuple[Bar, ...]
    cuts: tuple[Bar, ...]
    sections: tuple[Section, ...]


class Scale:
    """Where a moment stands, in percent."""

    def __init__(self, whole: Stretch, pauses: Iterable[Stretch] = ()) -> None:
        total = max(whole.seconds, 0.001)
        long = tuple(pause for pause in pauses if pause.seconds > _LONG * total)
        # where nothing but pauses is left there is nothing to cut them short for
        self.cuts = long if sum(pause.seconds for pause in long) < whole.seconds else ()
        drawn = total - sum(cut.seconds for cut in self.cuts)
        self._rate = 100 * (1 - _SHORT * len(self.cuts)) / drawn
        self.whole, self._moments, self._places = whole, [whole.begin], [0.0]
        for cut in self.cuts:
            begin = self._places[-1] + (cut.begin - self._moments[-1]).total_seconds() * self._rate
            self._moments += [cut.begin, cut.end]
            self._places += [begin, begin + 100 * _SHORT]

    def at(self, moment: datetime) -> float:
        """Its place."""
        inside = min(max(moment, self.whole.begin), self.whole.end)
        known = bisect_right(self._moments, inside) - 1
        if known % 2:
            begin, end = self._moments[known : known + 2]
            return self._places[known] + 100 * _SHORT * (inside - begin) / (end - begin)
        return self._places[known] + (inside - self._moments[known]).total_seconds() * self._rate

    def bar(self, stretch: Stretch, kind: str) -> Bar:
        """A stretch as a bar that can be seen."""
        begin, end = self.at(stretch.begin), self.at(stretch.end)
        return Bar(round(begin, 2), round(max(_LEAST, end - begin), 2), kind)

    def ticks(self) -> tuple[Tick, ...]:
        """Round times, a few of them; none within a pause that is cut short."""
        seconds = self.whole.seconds - sum(cut.seconds for cut in self.cuts)
        step = _round_step(seconds)
        return tuple(
            _apart(Tick(round(self.at(at), 2), f"{at.astimezone():{self._form(step)}}") for at in self._round(step))
        )

    def _form(self, step: int) -> str:
        """Times of the day, with the day where there are several; dates of what takes weeks."""
        if self.whole.seconds > _WEEK:
            return "%m-%d"
        return "%H:%M:%S" if step < _MINUTE else "%H:%M" if self.whole.seconds < _DAY else "%a %H:%M"

    def _round(self, step: int) -> Iterator[datetime]:
        for first, last in self._drawn():
            local = first.astimezone()
            midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
            at = midnight + timedelta(seconds=step * -(-(local - midnight).total_seconds() // step))
            while at < last:
                yield at
                at += timedelta(seconds=step)

    def _drawn(self) -> Iterator[tuple[datetime, datetime]]:
        edges = [self.whole.begin, *(edge for cut in self.cuts for edge in (cut.begin, cut.end)), self.whole.end]
        return ((edges[place], edges[place + 1]) for place in range(0, len(edges), 2))


def _round_step(seconds: float) -> int:
    """From one tick to the next, where so many seconds are to have a few."""
    return next((step for step in _STEPS if seconds / step <= _TICKS), _STEPS[-1])


def _apart(ticks: Iterable[Tick]) -> Iterator[Tick]:
    """Labels that do not lie on one another."""
    last = -100.0
    for tick in ticks:
        if tick.x - last >= 100 / (2 * _TICKS) and tick.x < 100 - 100 / (2 * _TICKS):
            last = tick.x
            yield tick


def timeline(report: RunReport) -> Chart:
    """A row a node, by wave; of many, those that failed and those that took longest."""
    begun = [node for node in report.nodes if node.phases]
    longest = sorted(begun, key=lambda node: (node.outcome in ("", Outcome.SUCCEEDED), -node.seconds))[:MOST_ROWS]
    names = {node.node for node in longest}
    shown = [node for node in begun if node.node in names]
    whole = Stretch(report.begun_at, report.heard_at)
    scale = Scale(whole, _pauses(whole, begun))
    holds: dict[str, list[Hold]] = {}
    for hold in report.holds:
        holds.setdefault(hold.event.node, []).append(hold)
    inside = (Stretch(max(item.begin, whole.begin), min(item.end, whole.end)) for item in report.openings)
    number = counted(len(begun), "node")
    return Chart(
        title=number if len(shown) == len(begun) else f"{len(shown)} of {number}, failed or longest",
        span=f"{whole.begin.astimezone():%H:%M:%S} to {whole.end.astimezone():%H:%M:%S}, {elapsed(whole.seconds)}",
        ticks=scale.ticks(),
        shades=tuple(scale.bar(item, "window") for item in inside if item.begin < item.end),
        cuts=tuple(scale.bar(cut, "cut") for cut in scale.cuts),
        sections=tuple(
            Section(_wave_title(report, wave), tuple(_row(scale, node, holds.get(node.node, ())) for node in nodes))
            for wave, nodes in groupby(shown, key=lambda node: node.wave)
        ),
    )


def _pauses(whole: Stretch, nodes: Iterable[NodeReport]) -> Iterator[Stretch]:
    """When no node was in flight."""
    idle_since = whole.begin
    for phase in sorted((phase for node in nodes for phase in node.phases), key=lambda phase: phase.begin):
        if phase.begin > idle_since:
            yield Stretch(idle_since, phase.begin)
        idle_since = max(idle_since, phase.end)
    if whole.end > idle_since:
        yield Stretch(idle_since, whole.end)


def _wave_title(report: RunReport, wave: int) -> str:
    if not wave:
        return "No wave"
    started = report.waves[wave - 1]
    word = "Part" if started.in_flight is not None else "Wave"
    return f"{word} {started.index} of {started.of}"


def _row(scale: Scale, node: NodeReport, holds: Sequence[Hold]) -> Row:
    is_bad = bool(node.outcome) and node.outcome != Outcome.SUCCEEDED
    parts = ((PART_OF[phase.phase].value, Stretch(phase.begin, phase.end)) for phase in node.phases)
    held = (("held", Stretch(hold.event.since, max(hold.event.since, hold.until))) for hold in holds)
    return Row(
        label=node.node,
        remark="" if node.outcome == Outcome.SUCCEEDED else said_outcome(node),
        took=elapsed(node.seconds),
        bars=tuple(scale.bar(stretch, part) for part, stretch in _joined(parts)),
        holds=tuple(scale.bar(stretch, kind) for kind, stretch in _joined(held)),
        mark=round(scale.at(node.phases[-1].end), 2) if is_bad else None,
    )


def _joined(stretches: Iterable[tuple[str, Stretch]]) -> Iterator[tuple[str, Stretch]]:
    """Those of one kind that follow one another, or overlap, in one; none goes on over an interruption."""
    last: tuple[str, Stretch] | None = None
    for kind, stretch in stretches:
        if last and last[0] == kind and stretch.begin <= last[1].end:
            last = (kind, Stretch(last[1].begin, max(last[1].end, stretch.end)))
            continue
        if last:
            yield last
        last = (kind, stretch)
    if last:
        yield last
