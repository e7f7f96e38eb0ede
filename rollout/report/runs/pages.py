"""A run as a page: one file that fetches nothing, runs nothing, and shows foreign text as text.

Whatever a template prints is escaped, and its control and direction characters are made visible; the page's own policy
forbids every source but its one style.
"""

import base64
import hashlib
import re
from collections.abc import Iterator
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rollout.model.text import printable
from rollout.report.runs import tables
from rollout.report.runs.chart import timeline
from rollout.report.runs.model import Ending, RunReport
from rollout.report.runs.tables import NODE_PARTS, Table, clock


def _shown(value: object) -> object:
    """Foreign text without what moves or hides other text; markup is the templates' own."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z]+", "-", title.lower()).strip("-")


def _rendered(**content: Any) -> str:
    loader = PackageLoader("rollout.report.runs", "templates")
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_shown,
    )
    environment.filters |= {"anchor": _anchor, "clock": clock}
    style = loader.get_source(environment, "page.css")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    page = environment.get_template("run.html.jinja")
    return page.render(style=Markup(style), style_hash=f"sha256-{digest}", **content)  # noqa: S704 - ours


_TONES = {Ending.COMPLETED: "good", Ending.INCOMPLETE: "bad", Ending.ABORTED: "warn"}


def run_page(report: RunReport) -> str:
    """Draw the page of a run: its timeline first, then what failed, and figures where they say something."""
    begun = report.begun_at.astimezone()
    return _rendered(
        title=f"{tables.title(report)}: {tables.headline(report)}",
        report=report,
        heading=tables.title(report),
        headline=tables.headline(report),
        tone=_TONES.get(report.ending, "warn"),
        facts=[*tables.facts(report)],
        failures=tables.failure_table(report),
        parts=tables.part_table(report),
        timeline=timeline(report),
        chart_legend=[*_legend(report)],
        zone=f"{begun:%Z} (UTC{begun.isoformat()[-6:]})",
        tables=[*_figures(report)],
    )


def _figures(report: RunReport) -> Iterator[Table]:
    if report.holds:
        yield tables.hold_table(report)
    if len(report.waves) > 1:
        yield tables.wave_table(report)
    yield tables.node_table(report)


def _legend(report: RunReport) -> Iterator[tuple[str, str]]:
    yield from ((part, part.heading) for part in NODE_PARTS)
    if report.holds:
        yield "held", "an eviction was held"
    if report.failures:
        yield "failed", "failed"
    if report.openings:
        yield "window", "window open"
