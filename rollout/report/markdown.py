"""Foreign text becomes code, so that it is never a link, HTML or a mention."""

import re
from collections.abc import Iterator, Mapping

from tabulate import tabulate

from rollout.model.plan import RolloutPlan
from rollout.model.text import NOTHING, joined, printable
from rollout.report.plan_screen import blocked_line, plan_text
from rollout.report.runs import tables
from rollout.report.runs.model import RunReport
from rollout.report.runs.tables import ReportTable

_BACKTICKS = re.compile("`+")
# GitHub links longer numbers as commits.
_FIGURE = re.compile(r"\d{1,6}(?:[:hms]\d{0,2}){0,3}(?: %| of \d{1,6}|, \d{1,6} failed)?")


def plan_markdown(plan: RolloutPlan, *, zone_by_node: Mapping[str, str]) -> str:
    text = plan_text(plan, zone_by_node=zone_by_node, why_blocked=blocked_line(plan.blockers))
    fence = "`" * max(3, 1 + _longest_backticks(text))
    origin = (
        f"Plan {code(plan.plan_id)} for {code(plan.cluster.server)}, made {code(plan.created_at)}"
    )
    return f"## Rollout plan\n\n{fence}text\n{text}\n{fence}\n\n{origin}\n"


def _longest_backticks(text: str) -> int:
    return max(map(len, _BACKTICKS.findall(text)), default=0)


def _cell(text: str) -> str:
    """| ends a cell even within code."""
    return _value(", ".join(text.splitlines())).replace("|", r"\|")


def _value(text: str) -> str:
    return text if _FIGURE.fullmatch(text) else code(text)


def code(text: str) -> str:
    line = printable(text).strip()
    if line in ("", NOTHING):
        return line
    marks = "`" * (1 + _longest_backticks(line))
    # Markdown takes a backtick at an edge for a mark, and drops a space there.
    padding = " " if line[0] == "`" or line[-1] == "`" else ""
    return f"{marks}{padding}{line}{padding}{marks}"


# A job's summary may have 1 MiB, a ticket 64 KiB.
_MOST_ROWS = 25
_MOST_EVICTIONS = 250


def run_markdown(report: RunReport) -> str:
    return "\n\n".join(_run_blocks(report)) + "\n"


def _run_blocks(report: RunReport) -> Iterator[str]:
    yield f"## {code(tables.title(report))}: {tables.headline(report)}"
    yield from (f"> {gap}" for gap in report.gaps)
    failures = tables.failure_table(report)
    if failures.rows:
        yield from _section(failures)
    yield "\n".join(f"- {name}: {_value(value)}" for name, value in tables.facts(report))
    for table in (tables.part_table(report), *tables.figure_tables(report)):
        yield from _section(table)
    if report.evicted:
        yield from _section(tables.eviction_table(report, _MOST_EVICTIONS), _MOST_EVICTIONS)


def _section(table: ReportTable, most_rows: int = _MOST_ROWS) -> Iterator[str]:
    yield f"### {table.title}"
    rows = [map(_cell, row) for row in table.rows[:most_rows]]
    yield tabulate(rows, headers=table.headings, tablefmt="github", disable_numparse=True)
    hidden_count = len(table.rows) - most_rows
    note = table.note
    if hidden_count > 0:
        note = joined(" ", note, f"{hidden_count} more rows are in the HTML page and in the JSON.")
    if note:
        yield note
