from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from tabulate import tabulate

from rollout.model.progress import NodeFinished, PodsEvicted
from rollout.model.text import NOTHING, counted, joined, or_dash, printable, shortened
from rollout.model.timestamps import elapsed
from rollout.report.columns import Column, Row, table_text
from rollout.report.journal_check import CheckedJournal, Rule, violation_text
from rollout.report.lines import (
    AbortedRecord,
    AnyLine,
    DryRunLine,
    JournalHeader,
    PlanLine,
    Record,
    SummaryLine,
    VersionLine,
    parse_records,
)
from rollout.report.plain import LogFilter
from rollout.report.runs.model import RunReport
from rollout.report.runs.tables import ending_text, facts, headline
from rollout.report.sentences import diagnosis_text, eviction_text, outcome_counts, sentence


class RuleViolation(Struct, frozen=True):
    """A rule that a journal violates, and the line."""

    line: int
    rule: Rule
    node: str
    message: str


class JournalCheck(Struct, frozen=True):
    """The result of `--check` for a journal."""

    lines: int
    damaged: int
    processes: int
    nodes: int
    moves: int
    most_in_flight: int
    limit: int | None
    violations: Sequence[RuleViolation]

    @classmethod
    def of(cls, checked: CheckedJournal, *, lines: int, damaged: int) -> "JournalCheck":
        return cls(
            lines=lines,
            damaged=damaged,
            processes=checked.processes,
            nodes=checked.nodes,
            moves=checked.moves,
            most_in_flight=checked.most_in_flight,
            limit=checked.limit,
            violations=tuple(
                RuleViolation(found.line, found.rule, found.node, violation_text(found))
                for found in checked.violations
            ),
        )


class HistoryReport(Struct, frozen=True):
    """The recorded runs."""

    format_version: str
    runs: Sequence[RunReport]
    check: JournalCheck | None = None


_INDENT = " " * 12
COLUMNS = (
    Column("RUN"),
    Column("STARTED"),
    Column("TOOK", drop_order=3),
    Column("COMMANDS", drop_order=2, wraps=True),
    Column("NODES", drop_order=4, right=True),
    Column("CLUSTER", drop_order=1),
    Column("END", wraps=True),
)


def history_text(
    runs: Sequence[RunReport], *, width: int | None = None, current_api_server: str = ""
) -> str:
    if not runs:
        return "No run is recorded here."
    is_wide = width is None
    clusters = {run.cluster.rstrip("/") for run in runs}
    is_other_cluster = bool(current_api_server) and clusters != {current_api_server.rstrip("/")}
    shows_cluster = is_wide or is_other_cluster or len(clusters) > 1
    rows = [history_row(run, shows_cluster=shows_cluster) for run in runs]
    return table_text(COLUMNS, rows, width)


def history_row(run: RunReport, *, shows_cluster: bool) -> Row:
    left_count = len(run.not_started) + len(run.not_done)
    counts = []
    if run.failed:
        counts.append(f"{run.failed} failed")
    if left_count:
        counts.append(f"{counted(left_count, 'node')} left")
    commands = [entry.command for entry in run.commands]
    cluster = or_dash(run.cluster_name or run.cluster.removeprefix("https://"))
    return (
        printable(run.run),
        f"{run.begun_at.astimezone():%Y-%m-%d %H:%M}",
        elapsed(run.seconds),
        printable(", ".join(commands)),
        str(len(run.nodes)) if run.nodes else NOTHING,
        cluster if shows_cluster else "",
        ", ".join((ending_text(run), *counts)),
    )


def timeline_text(run: RunReport, records: Iterable[Record], *, details: bool) -> str:
    fact_rows = [
        (f"  {name.lower()}", printable(value)) for name, value in facts(run) if name != "Run"
    ]
    head = tabulate(fact_rows, tablefmt="plain", disable_numparse=True)
    rows = "\n".join(_timeline_rows(_timeline_lines(records, details=details)))
    return f"Run {printable(run.run)}, {headline(run)}\n{head}\n\n{rows}"


def _timeline_lines(records: Iterable[Record], *, details: bool) -> Iterator[AnyLine]:
    """Without `details`, leave out what a log would not show."""
    log_filter = LogFilter()
    for line in parse_records(records):
        if line is None:
            # A newer version may have written the record.
            continue
        is_in_log = log_filter.admit(line, line.at.timestamp())
        if is_in_log or details:
            yield line


def check_text(run: RunReport, check: JournalCheck) -> str:
    limit = "an unknown limit" if check.limit is None else f"limit {check.limit}"
    verified = (
        f"Checked {counted(check.lines, 'line')} of run {printable(run.run)}:"
        f" {counted(check.moves, 'move')} of {counted(check.nodes, 'node')},"
        f" at most {check.most_in_flight} in flight ({limit})."
    )
    damaged = f"Not checked: {counted(check.damaged, 'damaged line')}." if check.damaged else ""
    violations = [f"line {violation.line}: {violation.message}" for violation in check.violations]
    count = counted(len(violations), "violation") if violations else "No violations"
    result = f"{count} of the transition table and the safety rules."
    return joined("\n", verified, damaged, *violations, result)


def _timeline_rows(lines: Iterable[AnyLine]) -> Iterator[str]:
    last_day = ""
    for line in lines:
        at = line.at.astimezone()
        day = f"{at:%a %Y-%m-%d}"
        # The lines above the timeline name the first day.
        if last_day not in ("", day):
            yield day
        last_day = day
        prefix = f"{at:%H:%M:%S}  "
        for text in filter(None, _timeline_sentences(line)):
            yield f"{prefix}{printable(text)}"
            prefix = _INDENT


def _timeline_sentences(line: AnyLine) -> Iterator[str]:
    match line:
        case JournalHeader():
            yield f"{line.command} by {line.by}"
        case PodsEvicted():
            yield f"{line.node}: {counted(len(line.pods), 'pod')} evicted"
            yield from map(eviction_text, line.pods)
        case NodeFinished():
            yield sentence(line)
            yield from diagnosis_text(line.diagnosis)
            yield f"hint: {line.hint}" if line.hint else ""
        case AbortedRecord():
            returned = f"returned to service: {shortened(line.reverted)}" if line.reverted else ""
            left = f"left unchanged: {shortened(line.left)}" if line.left else ""
            yield joined(": ", f"aborted by {line.by}", joined("; ", returned, left))
        case SummaryLine():
            aborted = line.aborted
            counts = outcome_counts(
                str(len(line.succeeded)),
                failed=len(line.failed),
                not_rebootable=len(line.not_done),
                aborted=len(aborted),
                not_started=len(line.not_started) - len(aborted),
            )
            yield f"ended: {counts}"
            for node, reason in line.why_not_done.items():
                yield f"{node} could not be rebooted: {reason}"
            for node, reason in line.why_not_started.items():
                state = "aborted" if node in aborted else "not started"
                yield f"{node} was {state}: {reason}"
            for node, reason in line.why_skipped.items():
                yield f"{node} was skipped: {reason}"
        case PlanLine() | VersionLine() | DryRunLine():
            return
        case _:
            yield sentence(line)
