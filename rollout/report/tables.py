"""A plan whole, every wave with every column and everybody who is left out: for `-o wide`, pages and Markdown."""

import re
from collections.abc import Iterable, Mapping, Sequence

from rollout.model.plan import PlannedNode, RolloutPlan, TimeEstimate, Wave
from rollout.model.progress import NotDone, RunResult, excluded_by_trouble
from rollout.model.text import NOTHING, counted, elapsed, or_nothing, printable, shortened, version_step
from rollout.report.columns import Column, Row, table_text
from rollout.report.sentences import extent
from rollout.report.summary import CANNOT_BE_REBOOTED, not_done_count, tallied

_LEFT_OUT_COLUMNS = (Column("LEFT OUT", wraps=True), Column("REASON"), Column("BECAUSE", note=True))
_ASSUMED = re.compile(r"a reboot takes (\d+)m \(assumed\)")
_RECORDED = re.compile(r"a reboot takes (\w+), ")
_MINUTE, _HOUR = 60, 3600


def wide_table(plan: RolloutPlan, zones: Mapping[str, str]) -> str:
    """Every wave; where no zone is known, the column is left out."""
    kept = [place for place, column in enumerate(_WAVE_COLUMNS) if zones or column.title != "ZONE"]
    rows = wave_rows(plan, zones)[1]
    return table_text([_WAVE_COLUMNS[place] for place in kept], [[row[place] for place in kept] for row in rows])


def left_out_rows(plan: RolloutPlan) -> tuple[Sequence[str], Sequence[tuple[str, ...]]]:
    """The headings, and a row for all nodes that are left out for the same reason: of most clusters most nodes."""
    alike: dict[tuple[str, str], list[str]] = {}
    for exclusion in plan.excluded:
        alike.setdefault((exclusion.reason, exclusion.message), []).append(exclusion.node)
    rows: list[tuple[str, ...]] = [
        (shortened(nodes), reason, printable(message)) for (reason, message), nodes in alike.items()
    ]
    return [column.title for column in _LEFT_OUT_COLUMNS], rows


def left_out_text(plan: RolloutPlan) -> str:
    """The same as a table, below an empty line and above another."""
    return f"\n{table_text(_LEFT_OUT_COLUMNS, left_out_rows(plan)[1])}\n"


def plan_sum(plan: RolloutPlan) -> str:
    """How much it is, who is left out, and how long it takes: one line or two."""
    if not plan.summary.nodes:
        return nobody(plan)
    lines = (f"{extent(plan)}; {_left_out_count(plan, excluded_by_trouble(plan.excluded))}.", estimate_text(plan))
    return "\n".join(filter(None, lines))


def estimate_text(plan: RolloutPlan) -> str:
    """How long it takes, why that may be wrong, and how many pods move: in one line."""
    parts = []
    if plan.estimate.seconds:
        doubts = "; ".join(filter(None, (_between(plan.estimate), _assumption(plan.estimate))))
        parts.append(f"About {_in_words(plan.estimate.seconds)}{f' ({doubts})' if doubts else ''}.")
    if pods := plan.summary.pods_to_move:
        parts.append(f"{counted(pods, 'pod')} move{'s' if pods == 1 else ''}.")
    return " ".join(parts)


def _between(estimate: TimeEstimate) -> str:
    if not estimate.at_most:
        return ""
    return f"{_in_words(estimate.at_least)} to {_in_words(estimate.at_most)}, by where the scheduler puts pods"


def usual_reboot(estimate: TimeEstimate) -> str:
    """How long a reboot took in past runs; empty where none is recorded."""
    known = next(filter(None, map(_RECORDED.match, estimate.basis)), None)
    return known[1] if known else ""


def _assumption(estimate: TimeEstimate) -> str:
    assumed = next(filter(None, map(_ASSUMED.fullmatch, estimate.basis)), None)
    return f"no history yet: {assumed[1]} min a reboot assumed" if assumed else ""


def roughly(seconds: float) -> str:
    """A stretch of time that nobody knows better: `45s`, `26m`, `1h02m`."""
    return f"{round(seconds / _MINUTE)}m" if _MINUTE <= seconds < _HOUR else elapsed(seconds)


def _in_words(seconds: float) -> str:
    return f"{roughly(seconds)}in".replace("min", " min") if _MINUTE <= seconds < _HOUR else roughly(seconds)


def nobody(plan: RolloutPlan) -> str:
    """That there is nothing to do is said only where every node was judged."""
    missing, left_out = excluded_by_trouble(plan.excluded), RunResult((), excluded=plan.excluded).left_out
    parts = [not_done_count(missing, CANNOT_BE_REBOOTED)] if missing else []
    parts += [f"left out: {tallied(left_out)}"] if left_out else []
    head = "No node is planned" if missing else "Nothing to do: no node is planned"
    return f"{'; '.join([head, *parts])}."


def _left_out_count(plan: RolloutPlan, missing: Sequence[NotDone]) -> str:
    left_out = len(plan.excluded) - len(missing)
    parts = [not_done_count(missing, CANNOT_BE_REBOOTED)] if missing else []
    return ", ".join([*parts, f"{counted(left_out, 'node')} left out"] if left_out or not missing else parts)


_WAVE_COLUMNS = (
    Column("WAVE", right=True),
    Column("TAKES", leaves=3, right=True),
    Column("NODES", wraps=True),
    Column("ZONE", leaves=1),
    Column("EVICT", leaves=4, right=True),
    Column("STAY", leaves=2, right=True),
    Column("VERSION"),
    Column("WHY", note=True),
)
_COUNTABLE = 8


def wave_rows(plan: RolloutPlan, zones: Mapping[str, str]) -> tuple[Sequence[str], Sequence[Row]]:
    """The headings, and a row a wave; a cell may have several lines."""
    return [column.title for column in _WAVE_COLUMNS], [_wave_row(wave, zones) for wave in plan.waves]


def _wave_row(wave: Wave, zones: Mapping[str, str]) -> tuple[str, ...]:
    return (
        str(wave.index),
        elapsed(wave.estimate.seconds) if wave.estimate.seconds else NOTHING,
        _names(wave),
        "\n".join(_distinct(or_nothing(zones.get(node.name, "")) for node in wave.nodes)),
        str(sum(node.evict for node in wave.nodes)),
        str(sum(node.leave for node in wave.nodes)),
        "\n".join(_distinct(planned_version(node) for node in wave.nodes)),
        printable(wave.because),
    )


def _names(wave: Wave) -> str:
    """All of them, so that a plan can be searched for a node, with when those begin that follow one another."""
    begins = wave.rolling.begins if wave.rolling else {}
    later = {name: f" (+{elapsed(seconds)})" for name, seconds in begins.items() if seconds}
    names = ", ".join(f"{printable(node.name)}{later.get(node.name, '')}" for node in wave.nodes)
    return f"{len(wave.nodes)} nodes: {names}" if len(wave.nodes) > _COUNTABLE else names


def planned_version(node: PlannedNode) -> str:
    """From which version to which; or that it is only rebooted."""
    if not node.staged:
        return f"{or_nothing(node.running_version)} (reboot only)"
    return version_step(node.running_version, node.staged_version, node.detected_by)


def _distinct(values: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(values)
