"""`rollout history` and `rollout report`: what runs were, by their journals."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli.flags import takes
from rollout.cli.settings.reading import Given
from rollout.cli.terminal import say, show_bytes
from rollout.errors import InputError
from rollout.model.plan import FORMAT_VERSION
from rollout.model.text import printable

if TYPE_CHECKING:
    from rollout.cli.stages.recorded import RecordedRun
    from rollout.report.runs.model import RunReport

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
    from rollout.cli.stages.recorded import recorded_run
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
    from rollout.adapters.journal import is_being_written, journals, read_journal, runs_directory
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
    from rollout.adapters.journal import is_being_written
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
    from rollout.cli.stages.recorded import recorded_run

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
