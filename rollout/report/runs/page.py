"""A run as a page."""

from collections.abc import Iterator

from rollout.report.rule_words import written_rules
from rollout.report.runs import tables
from rollout.report.runs.chart import Bar, Timeline, timeline
from rollout.report.runs.model import Ending, Part, RunReport
from rollout.report.runs.rendering import rendered
from rollout.report.runs.tables import PART_NAMES, Table

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
        timeline=drawn,
        chart_legend=tuple(_legend(report)),
        cut=_is_cut(drawn),
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


def _is_cut(drawn: Timeline) -> bool:
    first = drawn.overview or next(iter(drawn.charts), None)
    return bool(first and first.cuts)
