"""Runs that are over, as journals tell them: a row each, or one as a timeline.

Times that people read are those of their own clock.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from tabulate import tabulate

from rollout.model.progress import (
    NodeFinished,
    NodeStep,
    Notice,
    Phase,
    PodBlocked,
    PodReleased,
    VersionHeld,
    WaveSettling,
    WaveStarted,
)
from rollout.model.text import NOTHING, counted, elapsed, or_nothing, printable, shortened
from rollout.report.columns import Column, Row, table_text
from rollout.report.lines import (
    AbortedRecord,
    AnyLine,
    DryRunLine,
    PlanLine,
    Record,
    RunRecord,
    SummaryLine,
    VersionLine,
    entries,
)
from rollout.report.runs.model import RunReport
from rollout.report.runs.tables import ended, facts, headline
from rollout.report.sentences import outcomes, what_happened
from rollout.report.summary import findings_text


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened: when, to which node (empty: to the run), and what.

    `further` are lines that belong to it; `detail` tells what only a close reader wants, `repeats` what is told again
    and again for as long as it lasts.
    """

    at: datetime
    node: str
    what: str
    further: tuple[str, ...] = ()
    detail: bool = False
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class HistoryReport:
    """The runs that are recorded."""

    format_version: str
    runs: tuple[RunReport, ...]


def _moment(line: AnyLine) -> Moment | None:  # noqa: PLR0911 - one return a type of line
    """What a line says in words; None where it is nothing to tell."""
    at = line.at
    match line:
        case RunRecord():
            return Moment(at, "", f"{line.command} by {line.by}")
        case NodeStep():
            is_detail = bool(line.detail) or line.phase in (Phase.PENDING, Phase.DONE)
            return Moment(at, line.node, what_happened(line), detail=is_detail)
        case PodBlocked():
            return Moment(at, line.node, f"{line.pod} is held back by {line.budget}", repeats=True)
        case NodeFinished():
            hints = (f"hint: {line.hint}",) if line.hint else ()
            return Moment(at, line.node, what_happened(line), (*findings_text(line.findings), *hints))
        case WaveSettling() | PodReleased():
            node = line.node if isinstance(line, PodReleased) else ""
            return Moment(at, node, what_happened(line), repeats=True)
        case WaveStarted() | VersionHeld() | Notice():
            return Moment(at, "", what_happened(line))
        case AbortedRecord():
            groups = ((line.reverted, "given back"), (line.left, "left as they are"))
            given_back = "; ".join(f"{shortened(nodes)} {word}" for nodes, word in groups if nodes)
            return Moment(at, "", _joined(f"aborted by {line.by}", given_back))
        case SummaryLine():
            return _end(at, line)
        case PlanLine() | VersionLine() | DryRunLine():
            return None
        case _:
            assert_never(line)


def _end(at: datetime, line: SummaryLine) -> Moment:
    succeeded = str(len(line.succeeded)) if line.succeeded else ""
    counts = outcomes(succeeded, len(line.failed), len(line.not_done), len(line.not_started))
    not_done = (f"{node} was not done: {why}" for node, why in line.why_not_done.items())
    left = (f"{node} was left: {why}" for node, why in line.why_not_started.items())
    return Moment(at, "", _joined("the end", counts), (*not_done, *left))


def _joined(what: str, further: str) -> str:
    return f"{what}: {further}" if further else what


_COLUMNS = (
    Column("RUN"),
    Column("STARTED"),
    Column("TOOK", leaves=3),
    Column("BY"),
    Column("COMMANDS", leaves=2, wraps=True),
    Column("NODES", leaves=4),
    Column("SUCCEEDED"),
    Column("FAILED"),
    Column("CLUSTER", leaves=1),
    Column("END", note=True),
)
_ALWAYS = ("RUN", "STARTED", "TOOK", "NODES", "END")


def history_text(runs: Sequence[RunReport], *, width: int | None = None) -> str:
    """One row a run. `width` in columns; None for no limit, and every column."""
    if not runs:
        return "No run is recorded here."
    rows = [_row(run) for run in runs]
    titles = [*_ALWAYS, *_telling(rows)] if width else [column.title for column in _COLUMNS]
    shown = [at for at, column in enumerate(_COLUMNS) if column.title in titles]
    return table_text([_COLUMNS[at] for at in shown], [[row[at] for at in shown] for row in rows], width)


def _telling(rows: Sequence[Row]) -> Iterator[str]:
    """The columns that tell one of these runs from another, or from an ordinary one."""
    values = {column.title: {row[at] for row in rows} for at, column in enumerate(_COLUMNS)}
    if values["COMMANDS"] != {"apply"}:
        yield "COMMANDS"
    if len(values["CLUSTER"]) > 1:
        yield "CLUSTER"


def _row(run: RunReport) -> tuple[str, ...]:
    left = len(run.not_started) + len(run.not_done)
    counts = [f"{run.failed} failed"] if run.failed else []
    counts += [f"{counted(left, 'node')} left"] if left else []
    return (
        printable(run.run),
        f"{run.begun_at.astimezone():%Y-%m-%d %H:%M}",
        elapsed(run.seconds),
        or_nothing(run.commands[0].by if run.commands else ""),
        printable(", ".join(entry.command for entry in run.commands)),
        str(len(run.nodes)) if run.nodes else NOTHING,
        str(run.succeeded),
        str(run.failed),
        or_nothing(run.cluster_name or run.cluster.removeprefix("https://")),
        ", ".join((ended(run), *counts)),
    )


def timeline_text(run: RunReport, records: Iterable[Record], *, details: bool = False) -> str:
    """One run: what it was, then a line a moment of its `records`; with `details` every word of it."""
    moments = [moment for line in entries(records) if line is not None and (moment := _moment(line))]
    head = [(f"  {name.lower()}", printable(value)) for name, value in facts(run) if name != "Run"]
    rows = list(_rows(moments if details else _once(moments)))
    head_text, rows_text = (tabulate(cells, tablefmt="plain", disable_numparse=True) for cells in (head, rows))
    return f"Run {printable(run.run)}, {headline(run)}\n{head_text}\n\n{rows_text}"


def _once(moments: Iterable[Moment]) -> Iterator[Moment]:
    """What a reader wants first: no details, and nothing of a node that was told of it already."""
    seen: set[tuple[str, str]] = set()
    for moment in moments:
        key = (moment.node, moment.what)
        if moment.detail or (moment.repeats and key in seen):
            continue
        seen.add(key)
        yield moment


def _rows(moments: Iterable[Moment]) -> Iterator[tuple[str, str, str]]:
    """Times of the day; where a day begins, its date; what belongs to a moment stands below it."""
    day = ""
    for moment in moments:
        at = moment.at.astimezone()
        today = f"{at:%a %Y-%m-%d}"
        if today != day and day:
            yield (today, "", "")
        day = today
        yield (f"{at:%H:%M:%S}", printable(moment.node), printable(moment.what))
        yield from (("", "", f"  {printable(line)}") for line in moment.further)
