"""A run as Markdown, for the summary of a job and for tickets: what went wrong first, then where the time went."""

from collections.abc import Iterator

from rollout.model.text import counted
from rollout.report.markdown import code, table
from rollout.report.runs import tables
from rollout.report.runs.model import FailureReport, RunReport
from rollout.report.runs.tables import Table

# A job's summary may have 1 MiB, a ticket 64 KiB.
_MOST_FAILURES, _MOST_ROWS = 20, 25


def run_markdown(report: RunReport) -> str:
    """A short report: no row a node. Foreign text stands in spans of code alone."""
    return "\n\n".join(_parts(report)) + "\n"


def _parts(report: RunReport) -> Iterator[str]:
    yield f"## Rollout {code(report.run)}: {tables.headline(report)}"
    yield from (f"> {gap}" for gap in report.gaps)
    yield table(("", ""), list(tables.facts(report)))
    yield from _failures(report)
    absences = tables.absences(report)
    if absences.rows:
        yield from _section(absences)
    yield from _section(tables.part_table(report))
    yield from _section(tables.forecast_table(report))
    if report.waves:
        yield from _section(tables.wave_table(report))
    if report.holds:
        yield from _section(tables.budget_table(report))
    yield from _section(tables.slowest_table(report))
    yield from _section(tables.version_table(report))


def _failures(report: RunReport) -> Iterator[str]:
    if not report.failures:
        return
    yield "### Failures"
    yield "\n".join(line for failure in report.failures[:_MOST_FAILURES] for line in _failure(failure))
    if (left := len(report.failures) - _MOST_FAILURES) > 0:
        yield f"{left} more stand in the page and in the JSON."


def _failure(failure: FailureReport) -> Iterator[str]:
    remark = " (it succeeded later)" if failure.recovered else ""
    remark += " (left cordoned)" if failure.left_cordoned else ""
    ending = f"{code(failure.outcome)} in phase {code(failure.phase)}"
    yield f"- {code(failure.node)} {ending}: {code(failure.message)}{remark}"
    yield from (f"  - {code(line)}" for line in failure.seen)
    if failure.hint:
        yield f"  - hint: {code(failure.hint)}"


def _section(part: Table) -> Iterator[str]:
    yield f"### {part.title}"
    yield table(part.headings, part.rows[:_MOST_ROWS])
    if (left := len(part.rows) - _MOST_ROWS) > 0:
        yield f"{counted(left, 'more row')} in the page and in the JSON."
    if part.note:
        yield code(part.note)
