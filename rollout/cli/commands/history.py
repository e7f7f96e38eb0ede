"""`rollout history` and `rollout report`: what runs were, by their journals."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli.flags import CLUSTER, takes
from rollout.cli.settings.reading import Given
from rollout.cli.terminal import say, show_bytes
from rollout.errors import InputError
from rollout.model.plan import FORMAT_VERSION
from rollout.model.text import printable

if TYPE_CHECKING:
    from rollout.report.history import RunHistory
    from rollout.report.runs.model import RunReport

RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="Show this run as a timeline: the first letters of its id, or a journal's path.",
        show_default=False,
    ),
]

AllClustersOption = Annotated[
    bool, typer.Option("--all-clusters", help="Runs on any cluster; default: those on the context's, by its address")
]


@takes(*CLUSTER)
def history(settings: Given, run: RunArgument = "", all_clusters: AllClustersOption = False) -> None:
    """List the runs on this cluster that were written down on this machine, or tell one as a timeline.

    The cluster is told by its address in the kubeconfig; it is not asked. A run that is named may be of any cluster.

    \b
    Examples:
      rollout history
      rollout history --all-clusters
      rollout history 3f9a
      rollout history 3f9a -v
    """
    from rollout.adapters.journal import is_being_written
    from rollout.cli.stages.recorded import recorded_run
    from rollout.report.history import HistoryReport, history_text, replay, timeline_text, with_state

    output, file = settings.output, settings.output.journal
    if not run:
        histories = _histories(file, settings, everywhere=all_clusters)
        document = HistoryReport(FORMAT_VERSION, tuple(histories))
        output.show(document, lambda: history_text(histories, width=output.width))
        return
    recorded = recorded_run(run, file, settings.cluster, everywhere=True)
    chosen = with_state(replay(recorded.records), is_being_written=bool(is_being_written(recorded.file)))
    document = HistoryReport(FORMAT_VERSION, (chosen,))
    output.show(document, lambda: timeline_text(chosen, details=bool(output.verbose)), is_prose=True)


def _histories(file: Path | None, settings: Given, *, everywhere: bool) -> "list[RunHistory]":
    """Of one journal, or of those that are kept here, in the order in which they began."""
    from rollout.adapters.journal import is_being_written, read_journal
    from rollout.report.history import replay, with_state

    paths = (file,) if file else _on_cluster(settings, everywhere=everywhere)
    try:
        replayed = [
            with_state(replay(read_journal(path)), is_being_written=bool(is_being_written(path))) for path in paths
        ]
    except OSError as error:
        raise InputError(f"cannot read the journal {error.filename}: {error.strerror}") from error
    if file and not any(entry.run for entry in replayed):
        raise InputError(f"no run is recorded in {file}", hint="Is it a journal? --set output.journal=FILE writes one.")
    return sorted((entry for entry in replayed if entry.run), key=lambda entry: entry.started_at)


def _on_cluster(settings: Given, *, everywhere: bool) -> tuple[Path, ...]:
    """Those of the cluster at hand; which one that is, and that there are others, is said."""
    from rollout.cli.stages.recorded import kept_runs

    kept = kept_runs(settings.cluster, everywhere=everywhere)
    if kept.where:
        say(f"Runs on {kept.where}" + (f"; left out: {kept.elsewhere} (--all-clusters)." if kept.others else "."))
    return kept.own


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

ReportedRunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="The run's id, of which the first letters are enough, a journal's path, or - for a pod's log on stdin. "
        "Default: the last run on the context's cluster.",
        show_default=False,
    ),
]
OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Write .html, .md or .json; default: Markdown to stdout")
]


@takes(*CLUSTER)
def report(
    settings: Given,
    run: ReportedRunArgument = "",
    out: OutOption = None,
    all_clusters: AllClustersOption = False,
) -> None:
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
    from rollout.report.runs.report import report_of

    ending = _ENDINGS.get(out.suffix.lower(), ReportFormat.MARKDOWN) if out else ReportFormat.MARKDOWN
    chosen = ReportFormat.JSON if settings.output.as_json else ending
    check_target(out)
    run_read = recorded_run(run, settings.output.journal, settings.cluster, everywhere=all_clusters)
    written = _written(report_of(run_read.records, origin=run_read.origin, unreadable=run_read.unreadable), chosen)
    if out is None:
        show_bytes(written)
        return
    write_whole(out, written)
    say(f"Written to {printable(str(out))}.")


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
