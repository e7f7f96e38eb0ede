"""Where a run's time went: its nodes' phases, the windows, and what passed while no node was in flight."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

import msgspec

from rollout.errors import UsageError
from rollout.model.gates import WindowPolicy
from rollout.planning.eligibility.schedule import Schedule
from rollout.report.runs.model import PART_OF, NodeReport, Part, PartReport, PhaseReport, Stretch


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
