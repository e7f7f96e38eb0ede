"""`rollout history`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli.options.general import GeneralOptions
from rollout.cli.options.run import JournalOptions

if TYPE_CHECKING:
    from rollout.report.history import RunHistory

RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="Show this run as a timeline; the first letters of its id are enough.", show_default=False
    ),
]


def history(journal: JournalOptions, general: GeneralOptions, run: RunArgument = "") -> None:
    """List the runs that were written down on this machine, or tell one as a timeline.

    \b
    Examples:
      rollout history
      rollout history 3f9a
      rollout history 3f9a -v
    """
    from rollout.cli.terminal import show, show_bytes, show_lines
    from rollout.model.json_text import json_document
    from rollout.report.timeline import history_text, timeline_text

    histories = _histories(journal.journal)
    chosen = _chosen(histories, run) if run else None
    if general.as_json:
        show_bytes(json_document(chosen or histories))
    elif chosen:
        show_lines(timeline_text(chosen, details=bool(general.verbose)))
    else:
        show(history_text(histories, width=general.width))


def _histories(file: Path | None) -> "list[RunHistory]":
    """Of one journal, or of all that are kept here, in the order in which they began."""
    from rollout.adapters.journal import is_being_written, journals, read_journal
    from rollout.cli.stages.journal import runs_directory
    from rollout.errors import InputError
    from rollout.report.history import replay, with_state

    paths = (file,) if file else journals(runs_directory())
    try:
        replayed = [with_state(replay(read_journal(path)), is_being_written=is_being_written(path)) for path in paths]
    except OSError as error:
        raise InputError(f"cannot read the journal {error.filename}: {error.strerror}") from error
    if file and not any(entry.run for entry in replayed):
        raise InputError(f"no run is recorded in {file}", hint="Is it a journal? `apply --journal FILE` writes one.")
    return sorted((entry for entry in replayed if entry.run), key=lambda entry: entry.started_at)


def _chosen(histories: "list[RunHistory]", run: str) -> "RunHistory":
    from rollout.errors import InputError
    from rollout.model.text import shortened

    matching = [entry for entry in histories if entry.run.startswith(run)]
    if len(matching) != 1:
        names = shortened([entry.run for entry in histories]) or "none"
        raise InputError(f"{len(matching)} runs begin with {run!r}", hint=f"Recorded here: {names}")
    return matching[0]
