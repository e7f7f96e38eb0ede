import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from rollout.adapters import journal
from rollout.adapters.journal import Record
from rollout.errors import InputError
from rollout.model.text import printable
from rollout.report.runs.model import RunReport


class NumberedRecord(NamedTuple):
    """A record of a journal, and the number of its line, from 1."""

    line: int
    record: Record


STDIN = Path("-")
OR_PATH = "A path works, too: a file that `apply --set output.journal=FILE` wrote."


class RecordedRun(Struct, frozen=True):
    run: RunReport
    records: Sequence[NumberedRecord]
    # How many lines of the journal could not be read.
    damaged: int


def read_recorded_run(path: Path, run: str = "") -> RecordedRun:
    """Read the latest run whose ID begins with `run`. Raises `InputError` if there is none."""
    from rollout.report.runs.report import report_of

    origin = "the log on stdin" if path == STDIN else printable(str(path))
    try:
        is_log = path == STDIN
        lines = tuple(journal.read_log(sys.stdin.buffer) if is_log else journal.read_lines(path))
    except OSError as error:
        raise InputError(f"cannot read the journal {origin}: {error.strerror}") from error
    numbered = [
        NumberedRecord(number, record)
        for number, record in enumerate(lines, start=1)
        if record is not None
    ]
    records = _records_of(numbered, run, origin)
    damaged = lines.count(None)
    report = report_of(
        [record for _, record in records],
        origin=origin,
        damaged_lines=damaged,
        is_being_written=journal.is_being_written(path),
    )
    return RecordedRun(report, records, damaged)


def _records_of(
    records: Iterable[NumberedRecord], run: str, origin: str
) -> Sequence[NumberedRecord]:
    """Return the records of the latest run whose ID begins with `run`.

    In the log of operate, records of a pass without a run count only if there is no run.
    """
    by_run: dict[str, list[NumberedRecord]] = {}
    name = ""
    for number, record in records:
        if record.get("type") == "run":
            name = str(record.get("run", ""))
            # A run that is resumed becomes the latest.
            by_run[name] = by_run.pop(name, [])
        elif record.get("type") == "version":
            # A pass begins, and may have no run.
            name = ""
        by_run.setdefault(name, []).append(NumberedRecord(number, record))
    names = [name for name in by_run if name.startswith(run) and (name or len(by_run) == 1)]
    if not names:
        which = f" that begins with {run!r}" if run else ""
        raise InputError(f"no run{which} is recorded in {origin}", hint=OR_PATH)
    return by_run[names[-1]]
