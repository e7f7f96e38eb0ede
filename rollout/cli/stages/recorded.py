"""A run that was written down: its journal found by id or path, and the records that are its own."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rollout.adapters.journal import SUFFIX, Record, journals, read_lines
from rollout.cli.stages.journal import runs_directory
from rollout.errors import InputError
from rollout.model.text import printable, shortened

_ELSEWHERE = "A path is taken, too: a file that `apply --journal FILE` wrote."


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """The records of one run, how many lines beside them were no whole objects, and the file that they stand in."""

    records: tuple[Record, ...]
    unreadable: int
    origin: str


def recorded_run(run: str, file: Path | None) -> RecordedRun:
    """The run of this id, of which the first letters are enough, or in this file; the last one where neither is said.

    `file` is the journal to look into instead of those that are kept here. `InputError` where there is no such run.
    """
    if file is None and _is_path(run):
        file, run = Path(run), ""
    path = file or _kept(run)
    try:
        lines = tuple(read_lines(path))
    except OSError as error:
        raise InputError(f"cannot read the journal {printable(str(path))}: {error.strerror}") from error
    records = _of_run(_runs(record for record in lines if record is not None), run if file else "", str(path))
    return RecordedRun(records, lines.count(None), printable(str(path)))


def _is_path(run: str) -> bool:
    return "/" in run or run.endswith(SUFFIX)


def _kept(run: str) -> Path:
    """The journal of a run that is kept here: the one of that id, or the one that was written last."""
    kept = journals(runs_directory())
    matching = [path for path in kept if path.stem.startswith(run)]
    if not kept:
        raise InputError(f"no run is recorded in {printable(str(runs_directory()))}", hint=_ELSEWHERE)
    if run and len(matching) != 1:
        if not matching and Path(run).exists():
            return Path(run)
        names = shortened([path.stem for path in kept])
        raise InputError(f"{len(matching)} runs begin with {run!r}", hint=f"Recorded here: {names}. {_ELSEWHERE}")
    return max(matching, key=lambda path: path.stat().st_mtime)


def _runs(records: Iterable[Record]) -> Iterator[tuple[str, Sequence[Record]]]:
    """Runs that stand in one file, with their ids: each command of one begins with a record that names it."""
    of_run: dict[str, list[Record]] = {}
    run = ""
    for record in records:
        if record.get("type") == "run":
            run = str(record.get("run", ""))
            # the one that was worked on last comes last
            of_run[run] = of_run.pop(run, [])
        of_run.setdefault(run, []).append(record)
    yield from of_run.items()


def _of_run(runs: Iterator[tuple[str, Sequence[Record]]], run: str, origin: str) -> tuple[Record, ...]:
    matching = [records for name, records in runs if name.startswith(run)]
    if not matching:
        which = f" that begins with {run!r}" if run else ""
        raise InputError(f"no run{which} is recorded in {printable(origin)}", hint=_ELSEWHERE)
    return tuple(matching[-1])
