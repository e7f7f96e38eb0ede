"""A run and a plan as pages: one file each, that fetches nothing, runs nothing, and shows foreign text as text.

Whatever a template prints is escaped, and its control and direction characters are made visible; the page's own policy
forbids every source but its one style.
"""

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rollout.model.plan import RolloutPlan, Wave
from rollout.model.text import elapsed, printable
from rollout.report.plan_parts import blocked_line, left_out_rows, lists_of_findings, plan_sum, wave_rows
from rollout.report.rules import rules, written_rules
from rollout.report.runs import tables
from rollout.report.runs.chart import MOST_ROWS, Bar, Chart, Row, Section, Tick, round_step, timeline
from rollout.report.runs.model import Ending, Part, RunReport
from rollout.report.runs.tables import PART_NAMES, Table, clock, share


def rendered(template: str, title: str, **content: Any) -> str:
    """The page that a template makes of this."""
    loader = PackageLoader("rollout.report.runs", "templates")
    style = loader.get_source(environment := _environment(loader), "page.css")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    page = environment.get_template(template)
    return page.render(title=title, style=Markup(style), style_hash=f"sha256-{digest}", **content)  # noqa: S704 - ours


def _environment(loader: PackageLoader) -> Environment:
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_shown,
    )
    environment.filters.update(_FILTERS)
    return environment


def _shown(value: object) -> object:
    """Foreign text without what moves or hides other text; markup is the templates' own."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z]+", "-", title.lower()).strip("-")


def _whole(text: str) -> Markup:
    """Flags of which no line ends within one."""
    parts = text.split(", ") if text.startswith("--") else [text]
    shown = [printable(part) + ("," if part is not parts[-1] else "") for part in parts]
    return Markup(" ").join(Markup('<span class="whole">{}</span>').format(part) for part in shown)


_FILTERS: Mapping[str, Any] = {"anchor": _anchor, "clock": clock, "whole": _whole}


_NODE_PARTS = (Part.PREPARE, Part.DRAIN, Part.REBOOT, Part.READY, Part.GIVE_BACK)
_CLOSED = "closed"
_TONES = {Ending.COMPLETED: "good", Ending.INCOMPLETE: "bad", Ending.ABORTED: "warn", Ending.OPEN: "warn"}


def run_page(report: RunReport) -> str:
    """The page of a run: its timeline first, then what failed, and figures where they say something."""
    drawn = timeline(report)
    return rendered(
        "run.html.jinja",
        f"{tables.title(report)}: {tables.headline(report)}",
        report=report,
        heading=tables.title(report),
        headline=tables.headline(report),
        tone=_TONES[report.ending],
        facts=tuple(tables.facts(report)),
        failures=tables.failure_table(report),
        parts=tables.part_table(report),
        sum=tuple(_sum(report)),
        sum_legend=tuple((_kind(part.part), PART_NAMES[part.part]) for part in report.parts),
        charts=drawn,
        chart_legend=tuple(_legend(report)),
        cut=any(chart.cuts for chart in drawn),
        zone=_zone(report),
        tables=tuple(_figures(report)),
        rules=tuple(written_rules(report.policy or {})),
    )


def _figures(report: RunReport) -> Iterator[Table]:
    if report.holds:
        yield tables.hold_table(report)
    if len(report.waves) > 1:
        yield tables.wave_table(report)
    yield tables.node_table(report)


def _sum(report: RunReport) -> Iterator[Bar]:
    """The parts side by side."""
    place = 0.0
    for part in report.parts:
        width = tables.share(part.seconds, report.seconds)
        yield Bar(round(place, 2), round(width, 2), _kind(part.part))
        place += width


def _kind(part: Part) -> str:
    """Its colour; that of `window` is an open one's."""
    return _CLOSED if part is Part.WINDOW else part


def _legend(report: RunReport) -> Iterator[tuple[str, str]]:
    yield from ((part, PART_NAMES[part]) for part in _NODE_PARTS)
    if report.holds:
        yield "held", "an eviction was held"
    if report.failures:
        yield "failed", "failed"
    if report.openings:
        yield "window", "window open"


def _zone(report: RunReport) -> str:
    """The reader's timezone, by name and distance."""
    begun = report.begun_at.astimezone()
    return f"{begun:%Z} (UTC{begun.isoformat()[-6:]})"


_SOAK = "soak"
_ROWS = 30


def plan_page(plan: RolloutPlan, *, zones: Mapping[str, str], now: datetime) -> str:
    """The same as the text: waves, what stands in the way, who is left out, the rules as they stand `now`."""
    lines, blocked = plan_sum(plan).splitlines(), blocked_line(plan.blockers)
    return rendered(
        "plan.html.jinja",
        f"rollout plan {plan.plan_id}: {lines[0]}",
        plan=plan,
        headline=blocked or lines[0],
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
