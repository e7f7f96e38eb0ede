from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import typer

from rollout.adapters import journal
from rollout.adapters.local_files import check_output_file, output_file, write_whole
from rollout.cli.flags import DOCUMENT, takes
from rollout.cli.options import argument, option
from rollout.cli.settings.reading import CommandSettings
from rollout.cli.settings.schema import OutputFormat
from rollout.cli.stages.journals import OR_PATH, STDIN, RecordedRun, read_recorded_run
from rollout.cli.suggestions import run_ids
from rollout.cli.terminal import say, show_document, yaml_document
from rollout.errors import ExitCode, InputError, UsageError
from rollout.model.plan import FORMAT_VERSION
from rollout.model.text import printable, shortened
from rollout.report.runs.model import RunReport

_RUN_OF_REPORT = (
    "ID of the run or a prefix of the ID, the path to its journal file (.jsonl), or - for a pod's"
    " log on stdin."
    " Default: the last run on the current cluster, or else the last run on any cluster."
)
_RUN_OF_HISTORY = (
    "Run to show as a timeline: its ID or a prefix of the ID, or the path to its journal file"
    " (.jsonl)."
)
_CHECK = (
    "Check that the run's phase transitions are valid and that it followed its safety rules; exit"
    " with 1 if a check fails"
)
_OUT = "Write the report to this .html, .md or .json file; default: Markdown to stdout"


@takes()
def history(
    settings: CommandSettings,
    run: str = argument("", _RUN_OF_HISTORY, "RUN", run_ids),
    check: bool = option(False, _CHECK),
) -> None:
    """List the runs recorded on this machine, for all clusters, or show one run as a timeline.

    \b
    Examples:
      rollout history
      rollout history 3f9a
      rollout history 3f9a -v
      rollout history 3f9a --check
    """
    from rollout.cli import wiring
    from rollout.report.history import HistoryReport, history_text, timeline_text

    output = settings.output
    # A journal in the settings has one run to show.
    names_run = bool(run or output.journal)
    if check:
        if not names_run:
            raise UsageError("--check needs a run", hint="Run: rollout history RUN --check")
        _check_run(run, settings)
        return
    if names_run:
        recorded = _read_run(run, settings)
        records = [record for _, record in recorded.records]
        text = partial(timeline_text, recorded.run, records, details=bool(output.verbose))
        output.show(HistoryReport(FORMAT_VERSION, (recorded.run,)), text, is_prose=True)
        return
    runs = sorted(_read_all_runs(), key=lambda entry: entry.begun_at)
    login = wiring.find_login(settings)
    current_api_server = login.server if login else ""
    text = partial(history_text, runs, width=output.width, current_api_server=current_api_server)
    output.show(HistoryReport(FORMAT_VERSION, runs), text)


def _check_run(run: str, settings: CommandSettings) -> None:
    from rollout.report.history import HistoryReport, JournalCheck, check_text
    from rollout.report.journal_check import check_journal

    recorded = _read_run(run, settings)
    checked = JournalCheck.of(
        check_journal(recorded.records), lines=len(recorded.records), damaged=recorded.damaged
    )
    settings.output.show(
        HistoryReport(FORMAT_VERSION, (recorded.run,), checked),
        partial(check_text, recorded.run, checked),
        is_prose=True,
    )
    if checked.violations:
        raise typer.Exit(ExitCode.ERROR)


def _read_all_runs() -> Iterator[RunReport]:
    for path in journal.list_journals():
        try:
            yield read_recorded_run(path).run
        except InputError as error:
            say(f"warning: {error.message}")


@takes(
    formats=DOCUMENT, defaults={"output.format": "from the file extension of --out, else Markdown"}
)
def report(
    settings: CommandSettings,
    run: str = argument("", _RUN_OF_REPORT, "RUN", run_ids),
    out: Path | None = option(None, _OUT, "FILE", parser=output_file),
) -> None:
    """Write a report on a run, with its failures and delays, and compare the run with its plan.

    HTML is a self-contained page, Markdown is for tickets and CI summaries, and JSON is for
    programs. The report is generated from the run's journal file. If the run is still in progress
    or was killed, the report ends where the journal ends.

    \b
    Examples:
      rollout report --out last-night.html
      rollout report 3f9a --out 3f9a.html
      rollout report >> "$GITHUB_STEP_SUMMARY"
      rollout report night.jsonl -o json
      kubectl -n node-rollout logs job/now | rollout report -
    """
    from rollout.model.json_text import json_document
    from rollout.report.markdown import run_markdown
    from rollout.report.runs.pages import run_page

    check_output_file(out)
    run_report = _read_run(run, settings).run
    suffix = out.suffix.lower() if out else ""
    if settings.output.as_json or suffix == ".json":
        content = json_document(run_report)
        if settings.output.format is OutputFormat.YAML:
            content = yaml_document(content)
    elif suffix in (".html", ".htm"):
        content = run_page(run_report).encode()
    else:
        content = run_markdown(run_report).encode()
    if out is None:
        show_document(content)
        return
    write_whole(out, content)
    say(f"Written to {printable(str(out))}.")


def _read_run(run: str, settings: CommandSettings) -> RecordedRun:
    """A journal in the settings replaces those on this machine.

    `run` is the journal's path, `-` for stdin, the beginning of the run's ID, or empty for the last
    run.
    """
    looks_like_path = "/" in run or run.endswith(journal.SUFFIX) or run == str(STDIN)
    if looks_like_path or Path(run).is_file():
        return read_recorded_run(Path(run))
    file = settings.output.journal
    if file is not None:
        return read_recorded_run(file, run)
    return read_recorded_run(_find_journal(run, settings))


def _find_journal(run: str, settings: CommandSettings) -> Path:
    paths = journal.list_journals()
    if not paths:
        folder = printable(str(journal.runs_directory()))
        raise InputError(f"no run is recorded in {folder}", hint=OR_PATH)
    if not run:
        return _choose_last_journal(paths, settings)
    matching = [path for path in paths if path.stem.startswith(run)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        names = shortened([path.stem for path in journal.latest_first(matching)])
        raise InputError(
            f'run "{printable(run)}" is ambiguous: {len(matching)} IDs begin with it',
            hint=f"Specify more characters. Candidates: {names}.",
        )
    hint = f"List the runs on this machine: rollout history. {OR_PATH}"
    raise InputError(f'run "{printable(run)}" not found', hint=hint)


def _choose_last_journal(paths: Sequence[Path], settings: CommandSettings) -> Path:
    from rollout.cli import wiring

    login = wiring.find_login(settings)
    api_server = login.server if login else ""
    latest = journal.latest_first(paths)
    for path in latest:
        if journal.is_same_api_server(api_server, journal.read_api_server(path)):
            say(f"The last run: {printable(path.stem)}.")
            return path
    path = latest[0]
    other_server = printable(journal.read_api_server(path).removeprefix("https://"))
    if api_server:
        here = printable(api_server.removeprefix("https://"))
        say(f"No run on {here}, the current cluster, is recorded here.")
    say(f"The last run, on {other_server or 'an unknown cluster'}: {printable(path.stem)}.")
    return path
