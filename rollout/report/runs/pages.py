"""Renders a run as an HTML page without scripts or links to other files.

All text is escaped, and the page's policy allows only its own style.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from msgspec import Struct

from rollout.model.progress import Outcome
from rollout.model.text import capitalize, counted, grouped, printable
from rollout.model.timestamps import Interval, elapsed
from rollout.report.runs import tables
from rollout.report.runs.model import (
    PART_OF,
    BlockedEviction,
    Ending,
    NodeReport,
    RunReport,
)
from rollout.report.runs.tables import NODE_PARTS, clock, outcome_text
from rollout.report.sentences import sentence, wave_title

MOST_ROWS = 60
# Browsers show as many rows without delay.
_MOST_EVICTIONS = 2000
# In percent.
_LEAST_VISIBLE_WIDTH = 0.25
_TICKS = 5
_HOUR = 3600
_DAY = 86400


_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src '{style}'; base-uri 'none'; form-action 'none'"
)


class Page(NamedTuple):
    html: str
    csp: str


class PastRun(NamedTuple):
    # Empty if the run has no page.
    run: str
    cells: Sequence[str]


class LivePageFrame(Struct, frozen=True):
    at: datetime
    # Empty if it was not read.
    status: Sequence[str]
    headings: Sequence[str]
    history: Sequence[PastRun]
    # Seconds until the browser reloads the page; 0 for never.
    refresh: int
    is_latest: bool


class Bar(NamedTuple):
    # In percent of the timeline.
    x: float
    width: float
    css_class: str


class Span(NamedTuple):
    css_class: str
    begin: datetime
    end: datetime


class TimelineRow(NamedTuple):
    label: str
    remark: str
    took: str
    bars: Sequence[Bar]
    # In percent.
    mark: float | None


class Chart(NamedTuple):
    title: str
    period: str
    # Positions in percent, and times.
    ticks: Sequence[tuple[float, str]]
    # Open windows.
    shades: Sequence[Bar]
    sections: Sequence[tuple[str, Sequence[TimelineRow]]]


def _failed_and_longest_first(node: NodeReport) -> tuple[bool, float]:
    return not node.has_failed, -node.seconds


def _most_important(nodes: Sequence[NodeReport]) -> Sequence[NodeReport]:
    """Keep the order of the nodes."""
    names = {node.name for node in sorted(nodes, key=_failed_and_longest_first)[:MOST_ROWS]}
    return [node for node in nodes if node.name in names]


def timeline(report: RunReport) -> Chart:
    started = [node for node in report.nodes if node.phases]
    visible = _most_important(started)
    phases = [phase for node in started for phase in node.phases]
    begin = min((phase.begin for phase in phases), default=report.begun_at)
    end = max((phase.end for phase in phases), default=report.heard_at)
    axis = Interval(begin, end)
    holds_by_node = grouped((hold.event.node, hold) for hold in report.holds)
    sections = list[tuple[str, Sequence[TimelineRow]]]()
    # Nodes are in the order of their waves.
    for position, nodes in groupby(visible, key=lambda node: node.wave):
        rows = [_timeline_row(axis, node, holds_by_node.get(node.name, ())) for node in nodes]
        sections.append((_wave_title(report, position), rows))
    windows = [Span("window", opening.begin, opening.end) for opening in report.openings]
    title = counted(len(started), "node")
    if len(visible) < len(started):
        title = f"{len(visible)} of {title}, failed or longest"
    return Chart(
        title=title,
        period=(
            f"{axis.begin.astimezone():%H:%M:%S} to {axis.end.astimezone():%H:%M:%S},"
            f" {elapsed(axis.seconds)}"
        ),
        ticks=[*_ticks(axis)],
        shades=[*_bars(axis, windows)],
        sections=sections,
    )


def _ticks(axis: Interval) -> Iterator[tuple[float, str]]:
    time_format = "%a %H:%M"
    if axis.seconds < _HOUR:
        time_format = "%H:%M:%S"
    elif axis.seconds < _DAY:
        time_format = "%H:%M"
    for number in range(_TICKS):
        at = axis.begin + (axis.end - axis.begin) * number / _TICKS
        yield 100 * number / _TICKS, f"{at.astimezone():{time_format}}"


def _bars(axis: Interval, spans: Iterable[Span]) -> Iterator[Bar]:
    """Widen short spans to be seen."""
    one_percent = timedelta(seconds=max(axis.seconds, 0.001) / 100)
    for span in spans:
        begin = max(span.begin, axis.begin)
        end = min(span.end, axis.end)
        if begin <= end:
            yield Bar(
                round((begin - axis.begin) / one_percent, 2),
                round(max(_LEAST_VISIBLE_WIDTH, (end - begin) / one_percent), 2),
                span.css_class,
            )


def _wave_title(report: RunReport, position: int) -> str:
    wave = report.wave_at(position)
    if wave is None:
        return "No wave"
    return capitalize(wave_title(wave.index, wave.of, wave.in_flight))


def _timeline_row(
    axis: Interval, node: NodeReport, holds: Sequence[BlockedEviction]
) -> TimelineRow:
    spans = [Span(PART_OF[phase.phase].value, phase.begin, phase.end) for phase in node.phases]
    spans += [Span("held", hold.event.since, hold.until) for hold in holds]
    bars = [*_bars(axis, spans)]
    end_of_bars = max((bar.x + bar.width for bar in bars), default=0.0)
    return TimelineRow(
        label=node.name,
        remark="" if node.outcome == Outcome.SUCCEEDED else outcome_text(node),
        took=elapsed(node.seconds),
        bars=bars,
        mark=end_of_bars if node.has_failed else None,
    )


def _escape_control_characters(value: object) -> object:
    is_our_markup = isinstance(value, Markup)
    if is_our_markup or not isinstance(value, str):
        return value
    return printable(value)


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z]+", "-", title.lower()).strip("-")


def _render(template: str, **content: Any) -> Page:
    loader = PackageLoader("rollout.report.runs", "templates")
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_escape_control_characters,
    )
    environment.filters |= {"anchor": _anchor, "clock": clock, "sentence": sentence}
    style = loader.get_source(environment, "page.css")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    page = environment.get_template(template)
    css = Markup(style)  # noqa: S704 - our own style sheet
    csp = _CONTENT_SECURITY_POLICY.format(style=f"sha256-{digest}")
    return Page(page.render(style=css, policy=Markup(csp), **content), csp)  # noqa: S704


_TONE_OF_ENDING = {Ending.COMPLETED: "good", Ending.INCOMPLETE: "bad", Ending.ABORTED: "warn"}


def run_page(report: RunReport) -> str:
    return _render("run.html.jinja", **_report_variables(report)).html


def live_page(report: RunReport | None, frame: LivePageFrame) -> Page:
    content: Mapping[str, Any]
    if report is not None:
        content = _report_variables(report)
    elif frame.history:
        content = {"title": "The latest run is listed in the history below", "report": None}
    else:
        content = {"title": "No rollout is recorded on this machine", "report": None}
    return _render("live.html.jinja", frame=frame, **content)


def _report_variables(report: RunReport) -> Mapping[str, Any]:
    begun = report.begun_at.astimezone()
    return {
        "title": f"{tables.title(report)}: {tables.headline(report)}",
        "report": report,
        "gaps": report.gaps,
        "heading": tables.title(report),
        "headline": tables.headline(report),
        "tone": _TONE_OF_ENDING.get(report.ending, "warn"),
        "facts": [*tables.facts(report)],
        "failures": tables.failure_table(report),
        "parts": tables.part_table(report),
        "timeline": timeline(report),
        "chart_legend": [*_legend(report)],
        "zone": f"{begun:%Z} (UTC{_utc_offset(begun)})",
        "tables": [
            *tables.figure_tables(report),
            tables.node_table(report),
            *_eviction_tables(report),
        ],
    }


def _utc_offset(moment: datetime) -> str:
    """The format `%:z` needs Python 3.12."""
    return moment.isoformat()[-len("+02:00") :]


def _eviction_tables(report: RunReport) -> Iterator[tables.ReportTable]:
    if report.evicted:
        yield tables.eviction_table(report, _MOST_EVICTIONS)


def _legend(report: RunReport) -> Iterator[tuple[str, str]]:
    yield from ((part, part.heading) for part in NODE_PARTS)
    if report.holds:
        yield "held", "an eviction was blocked"
    if report.failures:
        yield "failed", "failed"
    if report.openings:
        yield "window", "window open"
