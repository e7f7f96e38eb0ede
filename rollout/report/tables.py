"""A plan as text that is read at a glance: its waves, who is left out, what it comes to."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby

from rollout.model.plan import ExclusionKind, ExclusionReason, PlannedNode, RolloutPlan, TimeEstimate, Wave, kind_of
from rollout.model.progress import NotDone, RunResult, excluded_by_trouble
from rollout.model.text import NOTHING, counted, elapsed, or_nothing, printable, shell_word, shortened, version_step
from rollout.report.columns import Column, Row, table_text, wrapped
from rollout.report.findings import findings
from rollout.report.rules import rules_text
from rollout.report.sentences import extent
from rollout.report.summary import CANNOT_BE_REBOOTED, not_done_count, tallied

_LEFT_OUT_COLUMNS = (Column("LEFT OUT", wraps=True), Column("REASON"), Column("BECAUSE", note=True))


def plan_text(
    plan: RolloutPlan,
    *,
    zones: Mapping[str, str],
    width: int | None = None,
    now: datetime | None = None,
    signs: bool = False,
) -> str:
    """Waves, who is left out, what stands in the way, the rules as they stand `now`, and the sum of it.

    `zones` are by Node name; where none is known, the column is left out. Without `now` the rules are not told. With
    `signs` a glance is enough.
    """
    parts = [wrapped(_heading(plan), width)]
    parts += [_waves(plan, zones, width, signs=signs)] if plan.waves else []
    parts += [_left_out(plan, width, signs=signs)] if plan.excluded else []
    parts += findings(plan.blockers, plan.warnings, width)
    parts += [rules_text(plan.policy, now, width=width)] if now else []
    parts += [wrapped(plan_sum(plan), width)]
    return "\n\n".join(parts)


def blocked_text(plan: RolloutPlan) -> Sequence[str]:
    """The last line of a plan that apply refuses; none of any other."""
    if not plan.blockers:
        return ()
    nodes = {blocker.node for blocker in plan.blockers if blocker.node}
    count = f"{counted(len(nodes), 'node')}, " if nodes else ""
    return (f"BLOCKED: apply refuses, {count}see above",)


def _heading(plan: RolloutPlan) -> str:
    server = printable(plan.cluster.server)
    return f"Plan {printable(plan.plan_id)} for {server}, made {printable(plan.created_at)}"


def _waves(plan: RolloutPlan, zones: Mapping[str, str], width: int | None, *, signs: bool) -> str:
    columns, rows = wave_table(plan, zones, folded=width is not None)
    if signs:
        rows = [(f"~ {row[0]}" if row[0] else "", *row[1:]) for row in rows]
    if not zones:
        columns, rows = _without_zones(columns, rows)
    return table_text(columns, rows, width)


def _without_zones(columns: Sequence[Column], rows: Sequence[Row]) -> tuple[Sequence[Column], Sequence[Row]]:
    kept = [place for place, column in enumerate(columns) if column.title != "ZONE"]
    return [columns[place] for place in kept], [[row[place] for place in kept] for row in rows]


def left_out_rows(plan: RolloutPlan) -> tuple[Sequence[str], Sequence[tuple[str, ...]]]:
    """The headings, and a row for all nodes that are left out for the same reason: of most clusters most nodes."""
    alike: dict[tuple[str, str], list[str]] = {}
    for exclusion in plan.excluded:
        alike.setdefault((exclusion.reason, exclusion.message), []).append(exclusion.node)
    rows: list[tuple[str, ...]] = [
        (shortened(nodes), reason, printable(message)) for (reason, message), nodes in alike.items()
    ]
    return [column.title for column in _LEFT_OUT_COLUMNS], rows


def _left_out(plan: RolloutPlan, width: int | None, *, signs: bool) -> str:
    rows = left_out_rows(plan)[1]
    if signs:
        rows = [(row[0], f"{reason_sign(ExclusionReason(row[1]))}{row[1]}", *row[2:]) for row in rows]
    return table_text(_LEFT_OUT_COLUMNS, rows, width)


def reason_sign(reason: ExclusionReason) -> str:
    """Return the sign of a reason that an operator has to see to; empty for any other."""
    return "! " if kind_of(reason) is ExclusionKind.NOT_DONE else ""


def plan_sum(plan: RolloutPlan) -> str:
    """How much it is, who is left out, and how long it takes: one line or two."""
    summary = plan.summary
    missing = excluded_by_trouble(plan.excluded)
    if not summary.nodes:
        return _nobody(plan, missing)
    text = extent(plan)
    if summary.waves_lower_bound < summary.waves:
        text += f" (under these rules no plan has fewer than {summary.waves_lower_bound})"
    text = f"{text}; {_left_out_count(plan, missing)}."
    if summary.pods_to_move:
        text += f" {counted(summary.pods_to_move, 'pod')} to move, in about {summary.expected_evictions} evictions."
    if not plan.estimate.seconds:
        return text
    return f"{text}\nIt takes about {_duration(plan.estimate)}: {printable('; '.join(plan.estimate.basis))}."


def _duration(estimate: TimeEstimate) -> str:
    if not estimate.at_most:
        return elapsed(estimate.seconds)
    between = f"{elapsed(estimate.at_least)} to {elapsed(estimate.at_most)}"
    return f"{elapsed(estimate.seconds)} ({between}, by which of equal nodes the scheduler chooses)"


def _nobody(plan: RolloutPlan, missing: Sequence[NotDone]) -> str:
    """That there is nothing to do is said only where every node was judged."""
    left_out = RunResult((), excluded=plan.excluded).left_out
    parts = [not_done_count(missing, CANNOT_BE_REBOOTED)] if missing else []
    parts += [f"left out: {tallied(left_out)}"] if left_out else []
    head = "No node is planned" if missing else "Nothing to do: no node is planned"
    return f"{'; '.join([head, *parts])}."


def _left_out_count(plan: RolloutPlan, missing: Sequence[NotDone]) -> str:
    left_out = len(plan.excluded) - len(missing)
    parts = [not_done_count(missing, CANNOT_BE_REBOOTED)] if missing else []
    return ", ".join([*parts, f"{counted(left_out, 'node')} left out"] if left_out or not missing else parts)


def saved_note(path: str, *, blocked: bool = False) -> str:
    """What to do with a plan that was saved."""
    if blocked:
        return f"Saved to {printable(path)}. Apply refuses it while it is blocked."
    return f"Saved to {printable(path)}. To run exactly this: rollout apply {shell_word(path)}"


def page_note(path: str) -> str:
    """What a plan's page is for."""
    return f"Written to {printable(path)}, for people. To run exactly this plan, save it: --out FILE of another ending."


UNSAVED_NOTE = (
    "This plan is not saved: apply makes a new one, which may differ. Save it with --out FILE to run exactly this."
)


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
