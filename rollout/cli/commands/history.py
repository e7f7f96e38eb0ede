"""`rollout history` and `rollout report`: what runs were, by their journals: by id, by path, or the last."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.adapters.journal import (
    SUFFIX,
    Record,
    is_being_written,
    journals,
    read_journal,
    read_lines,
    read_log,
    runs_directory,
)
from rollout.cli.flags import takes
from rollout.cli.settings.reading import Given
from rollout.cli.terminal import say, show_bytes
from rollout.errors import InputError
from rollout.model.plan import FORMAT_VERSION
from rollout.model.text import printable, shortened

if TYPE_CHECKING:
    from rollout.report.runs.model import RunReport

_STDIN = Path("-")
_ELSEWHERE = "A path is taken, too: a file that `apply --set output.journal=FILE` wrote."

RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="Show this run as a timeline: the first letters of its id, or a journal's path.",
        show_default=False,
    ),
]


@takes()
def history(settings: Given, run: RunArgument = "") -> None:
    """List the runs that were written down on this machine, on whichever cluster, or tell one as a timeline.

    \b
    Examples:
      rollout history
      rollout history 3f9a
      rollout history 3f9a -v
    """
    from rollout.report.history import HistoryReport, history_text, timeline_text

    output, file = settings.output, settings.output.journal
    if not run:
        runs = sorted(_runs(file), key=lambda entry: entry.begun_at)
        output.show(HistoryReport(FORMAT_VERSION, tuple(runs)), lambda: history_text(runs, width=output.width))
        return
    recorded = recorded_run(run, file)
    chosen = _reported(recorded)
    text = partial(timeline_text, chosen, recorded.records, details=bool(output.verbose))
    output.show(HistoryReport(FORMAT_VERSION, (chosen,)), text, is_prose=True)


def _runs(file: Path | None) -> "Iterator[RunReport]":
    """Of one journal, or of those that are kept here; `InputError` where that one tells of none."""
    from rollout.report.runs.report import report_of

    for path in (file,) if file else journals(runs_directory()):
        try:
            report = report_of(read_journal(path), origin=str(path), is_being_written=is_being_written(path))
        except OSError as error:
            raise InputError(f"cannot read the journal {error.filename}: {error.strerror}") from error
        except InputError:
            if file:
                raise
        else:
            yield report


def _reported(recorded: "RecordedRun") -> "RunReport":
    from rollout.report.runs.report import report_of

    writing = is_being_written(recorded.file)
    return report_of(recorded.records, origin=recorded.origin, unreadable=recorded.unreadable, is_being_written=writing)


ReportedRunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="The run's id, of which the first letters are enough, a journal's path, or - for a pod's log on stdin. "
        "Default: the last run.",
        show_default=False,
    ),
]
OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Write .html, .md or .json; default: Markdown to stdout")
]


@takes()
def report(settings: Given, run: ReportedRunArgument = "", out: OutOption = None) -> None:
    """Report a run: what failed, what was held, where the time went, and what the plan had foreseen.

    HTML is one page for a browser, which fetches nothing; Markdown is for tickets and the summaries of jobs; JSON is
    for programs. All are made from the run's journal: a run that goes on, was cut off, or ran elsewhere is reported as
    far as its journal goes.

    \b
    Examples:
      rollout report --out last-night.html
      rollout report 3f9a --out 3f9a.html
      rollout report >> "$GITHUB_STEP_SUMMARY"
      rollout report night.jsonl -o json
      kubectl -n node-rollout logs job/now | rollout report -
    """
    from rollout.cli.files import check_target, write_whole

    ending = ".json" if settings.output.as_json else out.suffix.lower() if out else ""
    check_target(out)
    written = _written(_reported(recorded_run(run, settings.output.journal)), ending)
    if out is None:
        show_bytes(written)
        return
    write_whole(out, written)
    say(f"Written to {printable(str(out))}.")


def _written(report: "RunReport", ending: str) -> bytes:
    """Return it as JSON or HTML where this is how the file's name ends, else as Markdown."""
    if ending == ".json":
        from rollout.model.json_text import json_document

        return json_document(report)
    if ending in (".html", ".htm"):
        from rollout.report.runs.pages import run_page

        return run_page(report).encode()
    from rollout.report.markdown import run_markdown

    return run_markdown(report).encode()


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """The records of one run, how many lines beside them were no whole objects, and the file that they stand in.

    `origin` is what messages call it.
    """

    records: tuple[Record, ...]
    unreadable: int
    origin: str
    file: Path


def recorded_run(run: str, file: Path | None) -> RecordedRun:
    """Return the run of this id, of which the first letters are enough, or in this file; else the last.

    `file` is the journal to look into instead of those that are kept here, `-` a log on stdin with JSON lines in it.
    `InputError` where there is no such run.
    """
    if file is None and _is_path(run):
        file, run = Path(run), ""
    path = file or _kept(run)
    origin = "the log on stdin" if path == _STDIN else printable(str(path))
    try:
        lines = tuple(read_log(sys.stdin.buffer) if path == _STDIN else read_lines(path))
    except OSError as error:
        raise InputError(f"cannot read the journal {printable(str(path))}: {error.strerror}") from error
    records = _of_run(_by_run(record for record in lines if record is not None), run if file else "", origin)
    return RecordedRun(records, lines.count(None), origin, path)


def _is_path(run: str) -> bool:
    return "/" in run or run.endswith(SUFFIX) or run == str(_STDIN)


def _kept(run: str) -> Path:
    """Return the journal of a run that is kept here: the one of that id, or the one that was written last."""
    kept = journals(runs_directory())
    if not kept:
        raise InputError(f"no run is recorded in {printable(str(runs_directory()))}", hint=_ELSEWHERE)
    if not run:
        return _last(kept)
    matching = [path for path in kept if path.stem.startswith(run)]
    if len(matching) == 1:
        return matching[0]
    if not matching and Path(run).exists():
        return Path(run)
    names = shortened([path.stem for path in kept])
    raise InputError(f"{len(matching)} runs begin with {run!r}", hint=f"Recorded here: {names}. {_ELSEWHERE}")


def _last(kept: Sequence[Path]) -> Path:
    """Return the one that was written last; it is said which, for nobody has named it."""
    path = max(kept, key=lambda path: path.stat().st_mtime)
    say(f"The last run: {printable(path.stem)}.")
    return path


def _by_run(records: Iterable[Record]) -> Iterator[tuple[str, Sequence[Record]]]:
    """Yield runs that stand in one file, with their ids: each command of one begins with a record that names it.

    In the JSON lines of an operating process a pass without a run stands between two: its lines are of no run.
    """
    of_run: dict[str, list[Record]] = {}
    run = ""
    for record in records:
        if record.get("type") == "run":
            run = str(record.get("run", ""))
            # the one that was worked on last comes last
            of_run[run] = of_run.pop(run, [])
        elif record.get("type") == "version":
            run = ""
        of_run.setdefault(run, []).append(record)
    yield from of_run.items()


def _of_run(runs: Iterator[tuple[str, Sequence[Record]]], run: str, origin: str) -> tuple[Record, ...]:
    by_name = dict(runs)
    # what is of no run counts where there is no other
    matching = [records for name, records in by_name.items() if name.startswith(run) and (name or len(by_name) == 1)]
    if not matching:
        which = f" that begins with {run!r}" if run else ""
        raise InputError(f"no run{which} is recorded in {printable(origin)}", hint=_ELSEWHERE)
    return tuple(matching[-1])
