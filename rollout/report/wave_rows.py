"""The waves of a plan as rows of a table: a row a wave, or one for many in a row that are alike."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from rollout.model.plan import PlannedNode, RolloutPlan, Wave
from rollout.model.text import NOTHING, counted, elapsed, or_nothing, printable, version_step
from rollout.report.columns import Column, Row

_OF_NODES = (
    Column("NODES", wraps=True),
    Column("ZONE", leaves=1),
    Column("EVICT", leaves=4, right=True),
    Column("STAY", leaves=2, right=True),
    Column("VERSION"),
    Column("WHY", note=True),
)
_WAVE_COLUMNS = (Column("WAVE", right=True), Column("TAKES", leaves=3, right=True), *_OF_NODES)
_PART_COLUMNS = (Column("PART", right=True), Column("BEGINS", right=True), *_OF_NODES)
# Where pools differ: how long a wave takes, and with a plus when nodes begin that follow one another.
_MIXED_COLUMNS = (Column("PART", right=True), Column("TIME", right=True), *_OF_NODES)
_COUNTABLE = 8
# More waves than these are no rows to be read one by one; so many that are alike are one row then.
_MANY, _LEAST_ALIKE = 20, 3


def wave_rows(plan: RolloutPlan, zones: Mapping[str, str]) -> tuple[Sequence[str], Sequence[Row]]:
    """The headings, and a row a wave, or part of one; a cell may have several lines."""
    columns, rows = wave_table(plan, zones)
    return [column.title for column in columns], rows


def wave_table(
    plan: RolloutPlan, zones: Mapping[str, str], *, folded: bool = False
) -> tuple[Sequence[Column], Sequence[Row]]:
    """The columns and the rows; `folded`: of many waves, those that follow one another and are alike are one row.

    A row of many nodes then has their names in its note, for which there is more room than in a column.
    """
    groups = _alike(plan.waves) if folded and len(plan.waves) > _MANY else ((wave,) for wave in plan.waves)
    rows = [row for group in groups for row in _rows(group, zones, most=_MANY if folded else None)]
    kinds = {wave.rolling is not None for wave in plan.waves}
    return _MIXED_COLUMNS if len(kinds) > 1 else _PART_COLUMNS if True in kinds else _WAVE_COLUMNS, rows


def _alike(waves: Sequence[Wave]) -> Iterator[Sequence[Wave]]:
    """Waves that follow one another with the same reason, size and versions; alone where too few do."""
    for _, group in groupby(waves, key=_likeness):
        alike = tuple(group)
        yield from [alike] if len(alike) >= _LEAST_ALIKE else [(wave,) for wave in alike]


def _likeness(wave: Wave) -> tuple[object, ...]:
    own = wave.index if wave.rolling else 0
    return own, len(wave.nodes), wave.because, frozenset(map(_planned_version, wave.nodes))


def _rows(waves: Sequence[Wave], zones: Mapping[str, str], most: int | None) -> Iterable[tuple[str, ...]]:
    """Rows with the names of more than `most` nodes in their notes."""
    if len(waves) > 1:
        return [_row_of_many(waves, zones)]
    return _part_rows(waves[0], zones, most) if waves[0].rolling else [_wave_row(waves[0], zones, most)]


def _row_of_many(waves: Sequence[Wave], zones: Mapping[str, str]) -> tuple[str, ...]:
    """Their numbers, how long one of them takes, and last, where there is most room, their nodes in their order."""
    first, size = waves[0], len(waves[0].nodes)
    nodes = tuple(node for wave in waves for node in wave.nodes)
    *_, zone, evicted, staying, versions, why = _wave_row(replace(first, nodes=nodes), zones, most=0)
    seconds = [wave.estimate.seconds for wave in waves]
    takes = "-".join(dict.fromkeys((elapsed(min(seconds)), elapsed(max(seconds))))) if all(seconds) else NOTHING
    extent = f"{len(nodes)} nodes, {'one' if size == 1 else size} a wave"
    numbers = f"{first.index}-{waves[-1].index}"
    return numbers, takes, extent, zone, evicted, staying, versions, why


def _wave_row(wave: Wave, zones: Mapping[str, str], most: int | None) -> tuple[str, ...]:
    why, is_short = printable(wave.because), most is None or len(wave.nodes) <= most
    return (
        str(wave.index),
        elapsed(wave.estimate.seconds) if wave.estimate.seconds else NOTHING,
        _names(wave) if is_short else counted(len(wave.nodes), "node"),
        "\n".join(_distinct(or_nothing(zones.get(node.name, "")) for node in wave.nodes)),
        str(sum(node.evict for node in wave.nodes)),
        str(sum(node.leave for node in wave.nodes)),
        "\n".join(_distinct(_planned_version(node) for node in wave.nodes)),
        why if is_short else ": ".join(filter(None, (why, _listed(wave.nodes)))),
    )


def _part_rows(wave: Wave, zones: Mapping[str, str], most: int | None) -> Iterator[tuple[str, ...]]:
    """A row for the nodes that are likely to begin together, with when; why they follow one another, once."""
    begins = wave.rolling.begins if wave.rolling else {}
    for number, (at, nodes) in enumerate(groupby(wave.nodes, key=lambda node: begins.get(node.name, 0))):
        part = replace(wave, nodes=tuple(nodes), because="" if number else wave.because)
        index, _, *rest = _wave_row(part, zones, most)
        yield ("" if number else index, f"+{elapsed(at)}", *rest)


def _names(wave: Wave) -> str:
    """All of them, so that a plan can be searched for a node; how many, where they are too many to count."""
    names = _listed(wave.nodes)
    return f"{len(wave.nodes)} nodes: {names}" if len(wave.nodes) > _COUNTABLE else names


def _listed(nodes: Sequence[PlannedNode]) -> str:
    return ", ".join(printable(node.name) for node in nodes)


def _planned_version(node: PlannedNode) -> str:
    if not node.staged:
        return f"{or_nothing(node.running_version)} (reboot only)"
    return version_step(node.running_version, node.staged_version, node.detected_by)


def _distinct(values: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(values)
