"""A plan as a page, for whoever is to review it."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from rollout.model.plan import RolloutPlan, Wave
from rollout.model.text import elapsed
from rollout.report.findings import lists_of_findings
from rollout.report.rules import rules
from rollout.report.runs.chart import MOST_ROWS, Bar, Chart, Row, Section, Tick, round_step
from rollout.report.runs.model import Part
from rollout.report.runs.rendering import rendered
from rollout.report.runs.tables import PART_NAMES, Table, share
from rollout.report.tables import blocked_text, left_out_rows, plan_sum
from rollout.report.wave_rows import wave_rows

_SOAK = "soak"
_ROWS = 30


def plan_page(plan: RolloutPlan, *, zones: Mapping[str, str], now: datetime) -> str:
    """The same as the text: waves, what stands in the way, who is left out, the rules as they stand `now`."""
    lines, blocked = plan_sum(plan).splitlines(), blocked_text(plan)
    return rendered(
        "plan.html.jinja",
        f"rollout plan {plan.plan_id}: {lines[0]}",
        plan=plan,
        headline=blocked[0].replace("above", "below") if blocked else lines[0],
        tone="bad" if blocked else "good",
        facts=tuple(_facts(plan, lines)),
        findings=[(heading, list(texts)) for heading, texts in lists_of_findings(plan.blockers, plan.warnings)],
        waves=_table("Waves", wave_rows(plan, zones)) if plan.waves else None,
        forecast=_forecast(plan) if plan.estimate.seconds else None,
        chart_legend=(
            (Part.DRAIN, PART_NAMES[Part.DRAIN]),
            (Part.REBOOT, "Reboot and Ready"),
            ("settle", "Settle, soak"),
        ),
        left_out=_table("Left out", left_out_rows(plan)) if plan.excluded else None,
        rules=tuple(rules(plan.policy, now)),
    )


def _facts(plan: RolloutPlan, lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    yield "Cluster", plan.cluster.server.removeprefix("https://")
    yield "Made", plan.created_at
    yield "Extent", lines[0]
    yield from (("Time", line) for line in lines[1:])


def _table(title: str, rows: tuple[Sequence[str], Sequence[Sequence[str]]]) -> Table:
    headings, cells = rows
    shown = tuple(tuple(", ".join(cell.splitlines()) for cell in row) for row in cells)
    return Table(title, tuple(heading.capitalize() for heading in headings), shown)


def _forecast(plan: RolloutPlan) -> Chart:
    whole = max(plan.estimate.seconds, sum(wave.estimate.seconds for wave in plan.waves))
    # of many waves a row would show a sliver: so many side by side share one
    size = 1 if len(plan.waves) <= MOST_ROWS else -(-len(plan.waves) // _ROWS)
    rows, begin = [], 0
    for first in range(0, len(plan.waves), size):
        waves = plan.waves[first : first + size]
        rows.append(_row(waves, begin, whole))
        begin += _seconds(waves)
    step = round_step(whole)
    ticks = (Tick(round(share(at, whole), 2), elapsed(at)) for at in range(0, whole - step // 2, step))
    return Chart("Waves", f"about {elapsed(whole)}", tuple(ticks), (), (), (Section("", tuple(rows)),))


def _row(waves: Sequence[Wave], begin: int, whole: int) -> Row:
    word = "Part" if waves[0].rolling else "Wave"
    starts = (begin + _seconds(waves[:at]) for at in range(len(waves)))
    bars = [bar for wave, start in zip(waves, starts, strict=True) for bar in _bars(wave, start, whole)]
    which = f"{word} {waves[0].index}" if len(waves) == 1 else f"{word}s {waves[0].index} to {waves[-1].index}"
    label = f"{which} ({sum(len(wave.nodes) for wave in waves)})"
    return Row(label, "", elapsed(_seconds(waves)), tuple(bars))


def _seconds(waves: Sequence[Wave]) -> int:
    return sum(wave.estimate.seconds for wave in waves)


def _bars(wave: Wave, begin: int, whole: int) -> Iterator[Bar]:
    """What goes where; nodes that follow one another do all of it at once."""
    estimate = wave.estimate
    sections = ((Part.DRAIN, estimate.drain), (Part.REBOOT, estimate.reboot), (_SOAK, estimate.settle + estimate.soak))
    for kind, seconds in ((Part.REBOOT, estimate.seconds),) if wave.rolling else sections:
        if seconds:
            yield Bar(round(share(begin, whole), 2), round(share(seconds, whole), 2), kind)
        begin += seconds
