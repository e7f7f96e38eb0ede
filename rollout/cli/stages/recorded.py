"""Runs that were written down, found by their journals: by id, by path, or the last."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rollout.adapters.journal import SUFFIX, Record, journals, read_lines, read_log, runs_directory
from rollout.cli.terminal import say
from rollout.errors import InputError
from rollout.model.text import printable, shortened

_STDIN = Path("-")
_ELSEWHERE = "A path is taken, too: a file that `apply --set output.journal=FILE` wrote."


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """The records of one run, how many lines beside them were no whole objects, and the file that they stand in.

    `origin` is what messages call it.
    """

    records: tuple[Record, ...]
    unreadable: int
    origin: str
    file: Path


def recorded_run(run: str, file: Path | None) -> RecordedRun:
    """Return the run of this id, of which the first letters are enough, or in this file; else the last.

    `file` is the journal to look into instead of those that are kept here, `-` a log on stdin with JSON lines in it.
    `InputError` where there is no such run.
    """
    if file is None and _is_path(run):
        file, run = Path(run), ""
    path = file or _kept(run)
    origin = "the log on stdin" if path == _STDIN else printable(str(path))
    try:
        lines = tuple(read_log(sys.stdin.buffer) if path == _STDIN else read_lines(path))
    except OSError as error:
        raise InputError(f"cannot read the journal {printable(str(path))}: {error.strerror}") from error
    records = _of_run(_runs(record for record in lines if record is not None), run if file else "", origin)
    return RecordedRun(records, lines.count(None), origin, path)


def _is_path(run: str) -> bool:
    return "/" in run or run.endswith(SUFFIX) or run == str(_STDIN)


def _kept(run: str) -> Path:
    """Return the journal of a run that is kept here: the one of that id, or the one that was written last."""
    kept = journals(runs_directory())
    if not kept:
        raise InputError(f"no run is recorded in {printable(str(runs_directory()))}", hint=_ELSEWHERE)
    if not run:
        return _last(kept)
    matching = [path for path in kept if path.stem.startswith(run)]
    if len(matching) == 1:
        return matching[0]
    if not matching and Path(run).exists():
        return Path(run)
    names = shortened([path.stem for path in kept])
    raise InputError(f"{len(matching)} runs begin with {run!r}", hint=f"Recorded here: {names}. {_ELSEWHERE}")


def _last(kept: Sequence[Path]) -> Path:
    """Return the one that was written last; it is said which, for nobody has named it."""
    path = max(kept, key=lambda path: path.stat().st_mtime)
    say(f"The last run: {printable(path.stem)}.")
    return path


def _runs(records: Iterable[Record]) -> Iterator[tuple[str, Sequence[Record]]]:
    """Yield runs that stand in one file, with their ids: each command of one begins with a record that names it.

    In the JSON lines of an operating process a pass without a run stands between two: its lines are of no run.
    """
    of_run: dict[str, list[Record]] = {}
    run = ""
    for record in records:
        if record.get("type") == "run":
            run = str(record.get("run", ""))
            # the one that was worked on last comes last
            of_run[run] = of_run.pop(run, [])
        elif record.get("type") == "version":
            run = ""
        of_run.setdefault(run, []).append(record)
    yield from of_run.items()


def _of_run(runs: Iterator[tuple[str, Sequence[Record]]], run: str, origin: str) -> tuple[Record, ...]:
    by_name = dict(runs)
    # what is of no run counts where there is no other
    matching = [records for name, records in by_name.items() if name.startswith(run) and (name or len(by_name) == 1)]
    if not matching:
        which = f" that begins with {run!r}" if run else ""
        raise InputError(f"no run{which} is recorded in {printable(origin)}", hint=_ELSEWHERE)
    return tuple(matching[-1])
