"""`rollout report`."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli.flags import CLUSTER, takes
from rollout.cli.options.shared import AllClustersOption, JournalOption
from rollout.cli.settings.reading import Given

if TYPE_CHECKING:
    from rollout.report.runs.model import RunReport


class ReportFormat(StrEnum):
    """What a report is written as."""

    HTML = "html"
    MARKDOWN = "markdown"
    JSON = "json"


_ENDINGS = {
    ".html": ReportFormat.HTML,
    ".htm": ReportFormat.HTML,
    ".md": ReportFormat.MARKDOWN,
    ".markdown": ReportFormat.MARKDOWN,
    ".json": ReportFormat.JSON,
}

RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="The run's id, of which the first letters are enough, a journal's path, or - for a pod's log on stdin. "
        "Default: the last run on the context's cluster.",
        show_default=False,
    ),
]
FormatOption = Annotated[
    ReportFormat | None,
    typer.Option("--format", help="What to write; default: what the ending of --out says, else markdown"),
]
OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Write to this file; default: standard output")
]


@takes(*CLUSTER)
def report(
    settings: Given,
    run: RunArgument = "",
    format: FormatOption = None,  # noqa: A002 - the flag's name
    out: OutOption = None,
    journal: JournalOption = None,
    all_clusters: AllClustersOption = False,
) -> None:
    """Report a run: what failed, what was held, where the time went, and what the plan had foreseen.

    html is one page for a browser, which fetches nothing; markdown is for tickets and the summaries of jobs; json is
    for programs. All are made from the run's journal: a run that goes on, was cut off, or ran elsewhere is reported as
    far as its journal goes.

    \b
    Examples:
      rollout report --out last-night.html
      rollout report 3f9a --out 3f9a.html
      rollout report >> "$GITHUB_STEP_SUMMARY"
      rollout report night.jsonl --format json
      kubectl -n node-rollout logs job/now | rollout report -
    """
    from rollout.cli.files import check_target, write_whole
    from rollout.cli.stages.recorded import recorded_run
    from rollout.cli.terminal import say, show_bytes
    from rollout.model.text import printable
    from rollout.report.runs.report import report_of

    chosen = _format(format, out, as_json=settings.output.as_json)
    check_target(out)
    run_read = recorded_run(run, journal or settings.output.journal, settings.cluster, everywhere=all_clusters)
    written = _written(report_of(run_read.records, origin=run_read.origin, unreadable=run_read.unreadable), chosen)
    if out is None:
        show_bytes(written)
        return
    write_whole(out, written)
    say(f"Written to {printable(str(out))}.")


def _format(chosen: ReportFormat | None, out: Path | None, *, as_json: bool) -> ReportFormat:
    """What was asked for; `UsageError` where that is two things."""
    from rollout.errors import UsageError

    if as_json and chosen not in (None, ReportFormat.JSON):
        raise UsageError(f"--format {chosen} and -o json contradict each other", hint="Drop one of the two flags.")
    if chosen or as_json:
        return chosen or ReportFormat.JSON
    return _ENDINGS.get(out.suffix.lower(), ReportFormat.MARKDOWN) if out else ReportFormat.MARKDOWN


def _written(report: "RunReport", chosen: ReportFormat) -> bytes:
    match chosen:
        case ReportFormat.HTML:
            from rollout.report.runs.pages import run_page

            return run_page(report).encode()
        case ReportFormat.MARKDOWN:
            from rollout.report.markdown import run_markdown

            return run_markdown(report).encode()
        case ReportFormat.JSON:
            from rollout.model.json_text import json_document

            return json_document(report)
