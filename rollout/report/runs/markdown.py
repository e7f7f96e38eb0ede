"""A run as Markdown, for the summary of a job and for tickets: what went wrong first, then where the time went."""

from collections.abc import Iterator

from rollout.report.markdown import code, table
from rollout.report.runs import tables
from rollout.report.runs.model import RunReport
from rollout.report.runs.tables import Table

# A job's summary may have 1 MiB, a ticket 64 KiB.
_MOST_ROWS = 25


def run_markdown(report: RunReport) -> str:
    """A short report: no row a node. Foreign text stands in spans of code alone."""
    return "\n\n".join(_parts(report)) + "\n"


def _parts(report: RunReport) -> Iterator[str]:
    yield f"## {code(tables.title(report))}: {tables.headline(report)}"
    yield from (f"> {gap}" for gap in report.gaps)
    failures = tables.failure_table(report)
    if failures.rows:
        yield from _section(failures)
    yield "\n".join(f"- {name}: {code(value)}" for name, value in tables.facts(report))
    yield from _section(tables.part_table(report))
    if len(report.waves) > 1:
        yield from _section(tables.wave_table(report))
    if report.holds:
        yield from _section(tables.hold_table(report))


def _section(part: Table) -> Iterator[str]:
    yield f"### {part.title}"
    yield table(part.headings, part.rows[:_MOST_ROWS], own=part.own)
    left = len(part.rows) - _MOST_ROWS
    notes = (part.note, f"{left} more rows stand in the page and in the JSON." if left > 0 else "")
    if any(notes):
        yield " ".join(filter(None, notes))
