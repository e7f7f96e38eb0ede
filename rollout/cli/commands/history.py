"""`rollout history`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli.flags import CLUSTER, takes
from rollout.cli.options.shared import AllClustersOption, JournalOption
from rollout.cli.settings.reading import Given

if TYPE_CHECKING:
    from rollout.report.history import RunHistory

RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="Show this run as a timeline; the first letters of its id are enough.", show_default=False
    ),
]


@takes(*CLUSTER)
def history(
    settings: Given, run: RunArgument = "", journal: JournalOption = None, all_clusters: AllClustersOption = False
) -> None:
    """List the runs on this cluster that were written down on this machine, or tell one as a timeline.

    The cluster is told by its address in the kubeconfig; it is not asked. A run that is named may be of any cluster.

    \b
    Examples:
      rollout history
      rollout history --all-clusters
      rollout history 3f9a
      rollout history 3f9a -v
    """
    from rollout.cli.terminal import show, show_bytes, show_lines
    from rollout.model.json_text import json_document
    from rollout.model.plan import FORMAT_VERSION
    from rollout.report.history import HistoryReport, history_text, timeline_text

    histories = _histories(journal or settings.output.journal, settings, named=bool(run), everywhere=all_clusters)
    chosen = _chosen(histories, run) if run else None
    if settings.output.as_json:
        show_bytes(json_document(HistoryReport(FORMAT_VERSION, (chosen,) if chosen else tuple(histories))))
    elif chosen:
        show_lines(timeline_text(chosen, details=bool(settings.output.verbose)))
    else:
        show(history_text(histories, width=settings.output.width))


def _histories(file: Path | None, settings: Given, *, named: bool, everywhere: bool) -> "list[RunHistory]":
    """Of one journal, or of those that are kept here, in the order in which they began; one is `named` among all."""
    from rollout.adapters.journal import is_being_written, journals, read_journal, runs_directory
    from rollout.errors import InputError
    from rollout.report.history import replay, with_state

    paths = (file,) if file else journals(runs_directory()) if named else _on_cluster(settings, everywhere=everywhere)
    try:
        replayed = [with_state(replay(read_journal(path)), is_being_written=is_being_written(path)) for path in paths]
    except OSError as error:
        raise InputError(f"cannot read the journal {error.filename}: {error.strerror}") from error
    if file and not any(entry.run for entry in replayed):
        raise InputError(f"no run is recorded in {file}", hint="Is it a journal? --set output.journal=FILE writes one.")
    return sorted((entry for entry in replayed if entry.run), key=lambda entry: entry.started_at)


def _on_cluster(settings: Given, *, everywhere: bool) -> "tuple[Path, ...]":
    """Those of the cluster at hand; which one that is, and that there are others, is said."""
    from rollout.cli.stages.recorded import kept_runs
    from rollout.cli.terminal import say

    kept = kept_runs(settings.cluster, everywhere=everywhere)
    if kept.where:
        say(f"Runs on {kept.where}" + (f"; left out: {kept.elsewhere} (--all-clusters)." if kept.others else "."))
    return kept.own


def _chosen(histories: "list[RunHistory]", run: str) -> "RunHistory":
    from rollout.errors import InputError
    from rollout.model.text import shortened

    matching = [entry for entry in histories if entry.run.startswith(run)]
    if len(matching) != 1:
        names = shortened([entry.run for entry in histories]) or "none"
        raise InputError(f"{len(matching)} runs begin with {run!r}", hint=f"Recorded here: {names}")
    return matching[0]
