"""`rollout history` and `rollout report`: what runs were, by their journals: by id, by path, or the last."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import typer

from rollout.adapters import journal
from rollout.adapters.journal import Record
from rollout.adapters.local_files import check_target, output_file, write_whole
from rollout.cli.flags import argument, option, takes
from rollout.cli.settings.reading import Given
from rollout.cli.settings.schema import OutputFormat
from rollout.cli.suggestions import run_ids
from rollout.cli.terminal import say, show_document, yaml_document
from rollout.errors import ExitCode, InputError, UsageError
from rollout.model.plan import FORMAT_VERSION
from rollout.model.text import printable, shortened
from rollout.report.runs.model import RunReport

# A line of a journal, counted from 1, and what it says.
NumberedRecord = tuple[int, Record]
_STDIN = Path("-")
_WHICH = "ID of the run or its first letters, the path of a journal"
_ELSEWHERE = "A path is taken, too: a file that `apply --set output.journal=FILE` wrote."


@takes()
def history(
    settings: Given,
    run: str = argument(
        "",
        "Show this run as a timeline: its ID or first letters, or the path of a journal.",
        "RUN",
        run_ids,
    ),
    check: bool = option(
        False, "Check the run against the transition table and the safety rules; exit 1 if it fails"
    ),
) -> None:
    """List the runs recorded on this machine, of all clusters, or show one as a timeline.

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
    file = settings.output.journal
    if check:
        _check(run, settings)
        return
    if run or file:
        recorded = _recorded(run, file, settings)
        records = [record for _, record in recorded.records]
        text = partial(timeline_text, recorded.run, records, details=bool(output.verbose))
        output.show(HistoryReport(FORMAT_VERSION, (recorded.run,)), text, is_prose=True)
        return
    runs = sorted(_kept_runs(settings), key=lambda entry: entry.begun_at)
    here = wiring.server_of(settings)
    output.show(
        HistoryReport(FORMAT_VERSION, runs),
        lambda: history_text(runs, width=output.width, here=here),
    )


def _check(run: str, settings: Given) -> None:
    """Check one run; exit 1 if it breaks a rule."""
    from rollout.report.history import HistoryReport, JournalCheck, check_text
    from rollout.report.journal_check import check_journal

    file = settings.output.journal
    if not (run or file):
        raise UsageError("--check needs a run", hint="rollout history RUN --check")
    recorded = _recorded(run, file, settings)
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


def _kept_runs(settings: Given) -> Iterator[RunReport]:
    for path in journal.journals():
        try:
            yield _recorded(str(path), None, settings).run
        except InputError as error:
            say(f"warning: {error.message}")


@takes()
def report(
    settings: Given,
    run: str = argument(
        "", f"{_WHICH}, or - for a pod's log on stdin. Default: the last run.", "RUN", run_ids
    ),
    out: Path | None = option(
        None,
        "Write the report to this .html, .md or .json file; default: Markdown to stdout",
        "FILE",
        parser=output_file,
    ),
) -> None:
    """Report on a run: what failed, what was held, where the time went, and how it compares with the plan.

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

    ending = ".json" if settings.output.as_json else out.suffix.lower() if out else ""
    check_target(out)
    reported = _recorded(run, settings.output.journal, settings).run
    if ending == ".json":
        written = json_document(reported)
        if settings.output.format is OutputFormat.YAML:
            written = yaml_document(written)
    else:
        written = (run_page if ending in (".html", ".htm") else run_markdown)(reported).encode()
    if out is None:
        show_document(written)
        return
    write_whole(out, written)
    say(f"Written to {printable(str(out))}.")


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A run with its records, each with its line in the journal; `damaged` lines could not be read."""

    run: RunReport
    records: Sequence[NumberedRecord]
    damaged: int


def _recorded(run: str, file: Path | None, settings: Given) -> _Recorded:
    """Return the run of this path, or of this id, of which the first letters are enough; else the last; its records.

    `file` is the journal to look into instead of those that are kept here. The path `-` is a log on
    stdin with JSON lines in it. `InputError` where there is no such run.
    """
    from rollout.report.runs.report import report_of

    if "/" in run or run.endswith(journal.SUFFIX) or run == str(_STDIN) or Path(run).is_file():
        file = Path(run)
        run = ""
    path = file or _kept(run, settings)
    origin = "the log on stdin" if path == _STDIN else printable(str(path))
    try:
        lines = tuple(
            journal.read_log(sys.stdin.buffer) if path == _STDIN else journal.read_lines(path)
        )
    except OSError as error:
        raise InputError(
            f"cannot read the journal {printable(str(path))}: {error.strerror}"
        ) from error
    numbered = [(number, line) for number, line in enumerate(lines, start=1) if line is not None]
    records = _of_run(numbered, run if file else "", origin)
    damaged = lines.count(None)
    report = report_of(
        [record for _, record in records],
        origin=origin,
        unreadable=damaged,
        is_being_written=journal.is_being_written(path),
    )
    return _Recorded(report, records, damaged)


def _kept(run: str, settings: Given) -> Path:
    """Return the journal of this run, or of the last run: of the current cluster if there is one, else of any."""
    from rollout.cli import wiring

    kept = journal.journals()
    if not kept:
        raise InputError(
            f"no run is recorded in {printable(str(journal.runs_directory()))}", hint=_ELSEWHERE
        )
    if not run:
        return _last(kept, wiring.server_of(settings))
    matching = [path for path in kept if path.stem.startswith(run)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        names = shortened([path.stem for path in journal.latest_first(matching)])
        hint = f"Give more letters. It may be: {names}."
        raise InputError(
            f'run "{printable(run)}" is ambiguous: {len(matching)} begin with it', hint=hint
        )
    hint = f"List the runs on this machine: rollout history. {_ELSEWHERE}"
    raise InputError(f'run "{printable(run)}" not found', hint=hint)


def _last(kept: Sequence[Path], server: str) -> Path:
    """Return the journal of the last run on this API server, else the last of all, and say whose it is."""
    latest = journal.latest_first(kept)
    own = next(
        (path for path in latest if journal.is_server(server, journal.server_of(path))), None
    )
    if own is not None:
        say(f"The last run: {printable(own.stem)}.")
        return own
    path = latest[0]
    where = printable(journal.server_of(path).removeprefix("https://")) or "an unknown cluster"
    if server:
        here = printable(server.removeprefix("https://"))
        say(f"No run on {here}, the current cluster, is recorded here.")
    say(f"The last run, on {where}: {printable(path.stem)}.")
    return path


def _of_run(records: Iterable[NumberedRecord], run: str, origin: str) -> Sequence[NumberedRecord]:
    """Return those of the run in one file that was worked on last, of those whose ids begin so.

    Each command of a run begins with a record that names it. In the JSON lines of an operating
    process a pass without a run stands between two: its lines are of no run, and count where there
    is no other.
    """
    by_run: dict[str, list[NumberedRecord]] = {}
    name = ""
    for number, record in records:
        if record.get("type") == "run":
            name = str(record.get("run", ""))
            # the one that was worked on last comes last
            by_run[name] = by_run.pop(name, [])
        elif record.get("type") == "version":
            name = ""
        by_run.setdefault(name, []).append((number, record))
    names = [name for name in by_run if name.startswith(run) and (name or len(by_run) == 1)]
    if not names:
        which = f" that begins with {run!r}" if run else ""
        raise InputError(f"no run{which} is recorded in {origin}", hint=_ELSEWHERE)
    return by_run[names[-1]]
