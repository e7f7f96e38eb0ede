"""`rollout history`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli.options.general import GeneralOptions
from rollout.cli.options.run import JournalOptions

if TYPE_CHECKING:
    from rollout.report.history import RunHistory

RunArgument = Annotated[
    str, typer.Argument(metavar="[RUN]", help="Tell this run as a timeline; its first letters do.", show_default=False)
]


def history(journal: JournalOptions, general: GeneralOptions, run: RunArgument = "") -> None:
    """List the runs that were written down on this machine, or tell one as a timeline.

    \b
    Examples:
      rollout history
      rollout history 3f9a
      rollout history 3f9a -v
    """
    from rollout.cli.terminal import show, show_bytes
    from rollout.model.json_text import json_document
    from rollout.report.timeline import history_text, timeline_text

    found = _histories(journal.journal)
    one = _chosen(found, run) if run else None
    if general.as_json:
        show_bytes(json_document(one or found))
    else:
        show(timeline_text(one, details=general.verbose) if one else history_text(found))


def _histories(file: Path | None) -> "list[RunHistory]":
    """Of one journal, or of all that are kept here, in the order in which they began."""
    from rollout.adapters.journal import journals, read_journal
    from rollout.cli.stages.journal import runs_directory
    from rollout.errors import InputError
    from rollout.report.history import replay

    paths = (file,) if file else journals(runs_directory())
    try:
        told = [replay(read_journal(path)) for path in paths]
    except OSError as error:
        raise InputError(f"cannot read the journal {error.filename}: {error.strerror}") from error
    if file and not any(each.run for each in told):
        raise InputError(
            f"no run is written down in {file}", hint="Is it a journal? `apply --journal FILE` writes one."
        )
    return sorted((each for each in told if each.run), key=lambda each: each.started_at)


def _chosen(found: "list[RunHistory]", run: str) -> "RunHistory":
    from rollout.errors import InputError
    from rollout.model.text import shortened

    matching = [each for each in found if each.run.startswith(run)]
    if len(matching) != 1:
        known = shortened([each.run for each in found]) or "none"
        raise InputError(f"{len(matching)} runs begin with {run!r}", hint=f"Written down here: {known}")
    return matching[0]
