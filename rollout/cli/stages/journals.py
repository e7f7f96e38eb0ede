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
    """A record and its line number, from 1."""

    line: int
    record: Record


STDIN = Path("-")
OR_PATH = "You can also specify the path to a journal that `apply --set output.journal=FILE` wrote."
_WITHOUT_RUN = ""


class RecordedRun(Struct, frozen=True):
    run: RunReport
    records: Sequence[NumberedRecord]
    # How many lines could not be read.
    damaged: int


def read_recorded_run(path: Path, id_prefix: str = "") -> RecordedRun:
    """Read the latest run whose ID begins with `id_prefix`, or raise `InputError`."""
    from rollout.report.runs.report import report_of

    is_log = path == STDIN
    origin = "the log on stdin" if is_log else printable(str(path))
    try:
        lines = tuple(journal.read_log(sys.stdin.buffer) if is_log else journal.read_lines(path))
    except OSError as error:
        raise InputError(f"cannot read the journal {origin}: {error.strerror}") from error
    damaged = lines.count(None)
    numbered = [
        NumberedRecord(number, record)
        for number, record in enumerate(lines, start=1)
        if record is not None
    ]
    records = _records_of_run(numbered, id_prefix, origin)
    report = report_of(
        [record for _, record in records],
        origin=origin,
        damaged_lines=damaged,
        is_being_written=journal.is_being_written(path),
    )
    return RecordedRun(report, records, damaged)


def _records_of_run(
    records: Iterable[NumberedRecord], id_prefix: str, origin: str
) -> Sequence[NumberedRecord]:
    """Records of operate's passes without a run count only if there is no run."""
    by_run: dict[str, list[NumberedRecord]] = {}
    run_id = _WITHOUT_RUN
    for numbered in records:
        record_type = numbered.record.get("type")
        if record_type == "run":
            # A resumed run moves to the end, as the latest.
            run_id = str(numbered.record.get("run", ""))
            by_run[run_id] = by_run.pop(run_id, [])
        elif record_type == "version":
            # The first line of a pass, which may have no run.
            run_id = _WITHOUT_RUN
        by_run.setdefault(run_id, []).append(numbered)
    if len(by_run) > 1:
        by_run.pop(_WITHOUT_RUN, None)
    matching_ids = [run_id for run_id in by_run if run_id.startswith(id_prefix)]
    if not matching_ids:
        which = f" that begins with {id_prefix!r}" if id_prefix else ""
        raise InputError(f"no run{which} is recorded in {origin}", hint=OR_PATH)
    latest_id = matching_ids[-1]
    return by_run[latest_id]
