"""`rollout history` and `rollout report`: show runs from their journals."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import typer

from rollout.adapters import journal
from rollout.adapters.journal import Record
from rollout.adapters.local_files import check_target, output_file, write_whole
from rollout.cli.flags import takes
from rollout.cli.options import argument, option
from rollout.cli.settings.reading import Given
from rollout.cli.settings.schema import OutputFormat
from rollout.cli.suggestions import run_ids
from rollout.cli.terminal import say, show_document, yaml_document
from rollout.errors import ExitCode, InputError, UsageError
from rollout.model.plan import FORMAT_VERSION
from rollout.model.text import printable, shortened
from rollout.report.runs.model import RunReport

# The number of a line in a journal, from 1, and its record.
NumberedRecord = tuple[int, Record]
_STDIN = Path("-")
_WHICH = "ID of the run or its first letters, the path of a journal"
_RUN = "Show this run as a timeline: its ID or first letters, or the path of a journal."
_CHECK = "Check the run against the transition table and the safety rules; exit 1 if it fails"
_OUT = "Write the report to this .html, .md or .json file; default: Markdown to stdout"
_OR_PATH = "A path works, too: a file that `apply --set output.journal=FILE` wrote."


@takes()
def history(
    settings: Given,
    run: str = argument("", _RUN, "RUN", run_ids),
    check: bool = option(False, _CHECK),
) -> None:
    """List the runs of all clusters recorded on this machine, or show one as a timeline.

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
    if check:
        _check(run, settings)
        return
    if run or output.journal:
        recorded = _read_run(run, settings)
        records = [record for _, record in recorded.records]
        text = partial(timeline_text, recorded.run, records, details=bool(output.verbose))
        output.show(HistoryReport(FORMAT_VERSION, (recorded.run,)), text, is_prose=True)
        return
    runs = sorted(_runs_here(), key=lambda entry: entry.begun_at)
    login = wiring.login(settings)
    here = login.server if login else ""
    text = partial(history_text, runs, width=output.width, here=here)
    output.show(HistoryReport(FORMAT_VERSION, runs), text)


def _check(run: str, settings: Given) -> None:
    """Check one run; exit 1 if it breaks a rule."""
    from rollout.report.history import HistoryReport, JournalCheck, check_text
    from rollout.report.journal_check import check_journal

    if not (run or settings.output.journal):
        raise UsageError("--check needs a run", hint="rollout history RUN --check")
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


def _runs_here() -> Iterator[RunReport]:
    """Yield the runs recorded on this machine; warn of journals that cannot be read."""
    for path in journal.journals():
        try:
            yield _read_journal(path).run
        except InputError as error:
            say(f"warning: {error.message}")


@takes()
def report(
    settings: Given,
    run: str = argument(
        "", f"{_WHICH}, or - for a pod's log on stdin. Default: the last run.", "RUN", run_ids
    ),
    out: Path | None = option(None, _OUT, "FILE", parser=output_file),
) -> None:
    """Report on a run: its failures, delays and times, and how it compares with the plan.

    HTML is a self-contained page, Markdown is for tickets and job summaries, and JSON is for
    programs. The report comes from the journal of the run. If the run has not ended or was cut off,
    the report ends where the journal ends.

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

    check_target(out)
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


@dataclass(frozen=True, slots=True)
class _RecordedRun:
    """A run with its records. `damaged` lines of its journal could not be read."""

    run: RunReport
    records: Sequence[NumberedRecord]
    damaged: int


def _read_run(run: str, settings: Given) -> _RecordedRun:
    """Return the run of this path, of this ID or its first letters, or else the last run.

    The path `-` is a log with JSON lines on stdin. A journal in the settings is searched instead of
    those on this machine. `InputError` if there is no such run.
    """
    is_path = "/" in run or run.endswith(journal.SUFFIX) or run == str(_STDIN)
    if is_path or Path(run).is_file():
        return _read_journal(Path(run))
    file = settings.output.journal
    if file is not None:
        return _read_journal(file, run)
    return _read_journal(_find_journal(run, settings))


def _read_journal(path: Path, run: str = "") -> _RecordedRun:
    from rollout.report.runs.report import report_of

    origin = "the log on stdin" if path == _STDIN else printable(str(path))
    try:
        is_log = path == _STDIN
        lines = tuple(journal.read_log(sys.stdin.buffer) if is_log else journal.read_lines(path))
    except OSError as error:
        raise InputError(f"cannot read the journal {origin}: {error.strerror}") from error
    numbered = [(number, line) for number, line in enumerate(lines, start=1) if line is not None]
    records = _records_of(numbered, run, origin)
    damaged = lines.count(None)
    report = report_of(
        [record for _, record in records],
        origin=origin,
        unreadable=damaged,
        is_being_written=journal.is_being_written(path),
    )
    return _RecordedRun(report, records, damaged)


def _find_journal(run: str, settings: Given) -> Path:
    """Return the journal of this run, or of the last run: of the current cluster if it has one."""
    paths = journal.journals()
    if not paths:
        folder = printable(str(journal.runs_directory()))
        raise InputError(f"no run is recorded in {folder}", hint=_OR_PATH)
    if not run:
        return _last_journal(paths, settings)
    matching = [path for path in paths if path.stem.startswith(run)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        names = shortened([path.stem for path in journal.latest_first(matching)])
        raise InputError(
            f'run "{printable(run)}" is ambiguous: {len(matching)} begin with it',
            hint=f"Give more letters. It may be: {names}.",
        )
    hint = f"List the runs on this machine: rollout history. {_OR_PATH}"
    raise InputError(f'run "{printable(run)}" not found', hint=hint)


def _last_journal(paths: Sequence[Path], settings: Given) -> Path:
    """Return the journal of the last run on the current cluster, or else of all, and say which."""
    from rollout.cli import wiring

    login = wiring.login(settings)
    server = login.server if login else ""
    latest = journal.latest_first(paths)
    for path in latest:
        if journal.is_server(server, journal.server_of(path)):
            say(f"The last run: {printable(path.stem)}.")
            return path
    path = latest[0]
    where = printable(journal.server_of(path).removeprefix("https://")) or "an unknown cluster"
    if server:
        here = printable(server.removeprefix("https://"))
        say(f"No run on {here}, the current cluster, is recorded here.")
    say(f"The last run, on {where}: {printable(path.stem)}.")
    return path


def _records_of(
    records: Iterable[NumberedRecord], run: str, origin: str
) -> Sequence[NumberedRecord]:
    """Return the records of the latest run whose ID begins with `run`.

    Each command of a run begins with a record that names the run. In the log of operate, the
    records of a pass without a run belong to no run, and count only if there is no run at all.
    """
    by_run: dict[str, list[NumberedRecord]] = {}
    name = ""
    for number, record in records:
        if record.get("type") == "run":
            name = str(record.get("run", ""))
            by_run[name] = by_run.pop(name, [])
        elif record.get("type") == "version":
            name = ""
        by_run.setdefault(name, []).append((number, record))
    names = [name for name in by_run if name.startswith(run) and (name or len(by_run) == 1)]
    if not names:
        which = f" that begins with {run!r}" if run else ""
        raise InputError(f"no run{which} is recorded in {origin}", hint=_OR_PATH)
    return by_run[names[-1]]
