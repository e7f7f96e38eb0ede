"""Runs that are over, as journals tell them: a row each, or one as a timeline.

Times that people read are those of their own clock.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tabulate import tabulate

from rollout.model.progress import (
    NodeFinished,
    NodeStep,
    Phase,
    PodBlocked,
    PodReleased,
    WaveSettling,
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
from rollout.report.sentences import outcomes, sentence
from rollout.report.summary import findings_text


@dataclass(frozen=True, slots=True)
class HistoryReport:
    """The runs that are recorded."""

    format_version: str
    runs: tuple[RunReport, ...]


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
    """One run: what it was, then what its `records` tell in the words of a run's log; with `details` every word."""
    lines = [line for line in entries(records) if line is not None]
    head = [(f"  {name.lower()}", printable(value)) for name, value in facts(run) if name != "Run"]
    head_text = tabulate(head, tablefmt="plain", disable_numparse=True)
    rows = "\n".join(_rows(lines if details else _once(lines)))
    return f"Run {printable(run.run)}, {headline(run)}\n{head_text}\n\n{rows}"


def _once(lines: Iterable[AnyLine]) -> Iterator[AnyLine]:
    """What a reader wants first: no details, and nothing of a pod or a wave that was told already."""
    seen = set[tuple[str, str, str]]()
    for line in lines:
        match line:
            case NodeStep() if line.detail or line.phase in (Phase.PENDING, Phase.DONE):
                continue
            case PodBlocked() | PodReleased():
                key = (type(line).__name__, line.node, line.pod)
            case WaveSettling():
                key = ("", str(line.index), line.waiting_for)
            case _:
                yield line
                continue
        if key not in seen:
            yield line
        seen.add(key)


def _rows(lines: Iterable[AnyLine]) -> Iterator[str]:
    """Times of the day; where a day begins, its date; what belongs to a line stands below it."""
    day = ""
    for line in lines:
        at = line.at.astimezone()
        if day and day != f"{at:%a %Y-%m-%d}":
            yield f"{at:%a %Y-%m-%d}"
        day = f"{at:%a %Y-%m-%d}"
        first, *further = [*_told(line), ""]
        if first:
            yield f"{at:%H:%M:%S}  {printable(first)}"
        yield from (f"{'':12}{printable(text)}" for text in further if text)


def _told(line: AnyLine) -> Iterator[str]:
    """What a line says in words; nothing where it is nothing to tell."""
    match line:
        case RunRecord():
            yield f"{line.command} by {line.by}"
        case NodeFinished():
            yield sentence(line)
            yield from findings_text(line.findings)
            yield f"hint: {line.hint}" if line.hint else ""
        case AbortedRecord():
            groups = ((line.reverted, "given back"), (line.left, "left as they are"))
            given_back = "; ".join(f"{shortened(nodes)} {word}" for nodes, word in groups if nodes)
            yield ": ".join(filter(None, (f"aborted by {line.by}", given_back)))
        case SummaryLine():
            succeeded = str(len(line.succeeded)) if line.succeeded else ""
            counts = outcomes(succeeded, len(line.failed), len(line.not_done), len(line.not_started))
            yield ": ".join(filter(None, ("the end", counts)))
            yield from (f"{node} was not done: {why}" for node, why in line.why_not_done.items())
            yield from (f"{node} was left: {why}" for node, why in line.why_not_started.items())
        case PlanLine() | VersionLine() | DryRunLine():
            return
        case _:
            yield sentence(line)
