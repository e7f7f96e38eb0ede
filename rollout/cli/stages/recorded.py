"""Runs that were written down: which of them are the cluster's at hand, found by their journals, by id or by path."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rollout.adapters.journal import SUFFIX, Record, journals, read_journal, read_lines, read_log, runs_directory
from rollout.cli import wiring
from rollout.cli.consent import place
from rollout.cli.settings.schema import Cluster
from rollout.cli.terminal import say
from rollout.errors import InputError, KubeconfigError
from rollout.model.text import counted, printable, shortened

_STDIN = Path("-")
_ELSEWHERE = "A path is taken, too: a file that `apply --set output.journal=FILE` wrote."
# A journal says in its first record which cluster it is of; that record may be torn.
_HEAD = 20


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """The records of one run, how many lines beside them were no whole objects, and the file that they stand in.

    `origin` is what messages call it.
    """

    records: tuple[Record, ...]
    unreadable: int
    origin: str
    file: Path


@dataclass(frozen=True, slots=True)
class KeptRuns:
    """The journals that are kept here: those of the cluster at hand, and `others`.

    `where` is that cluster's address with its context, empty where runs on any cluster count.
    """

    where: str
    own: tuple[Path, ...]
    others: tuple[Path, ...] = ()

    @property
    def elsewhere(self) -> str:
        """How many are not the cluster's."""
        return f"{counted(len(self.others), 'run')} on other clusters"


def kept_runs(cluster: Cluster, *, everywhere: bool) -> KeptRuns:
    """Return the journals of the cluster at hand; all where that is asked for, or where none is at hand, which is told.

    No cluster is asked, for they are read without one, too: the address in the kubeconfig tells which it is.
    """
    kept = journals(runs_directory())
    if everywhere or not kept:
        return KeptRuns("", kept)
    try:
        context, server = wiring.server_of(cluster)
    except KubeconfigError as error:
        if cluster.context or cluster.kubeconfig:
            raise
        say(f"No cluster is at hand ({printable(str(error))}): runs on any cluster count.")
        return KeptRuns("", kept)
    own = tuple(_of_server(kept, server))
    return KeptRuns(printable(place(server, context)), own, tuple(path for path in kept if path not in own))


def _of_server(kept: Iterable[Path], server: str) -> Iterator[Path]:
    """Those of the cluster that this address led to last: another may have stood there before.

    Runs that reached the same cluster by another address are its own.
    """
    clusters = {path: _cluster_of(path) for path in sorted(kept, key=_changed)}
    uids = [cluster.get("uid") for cluster in clusters.values() if _is_at(cluster, server)]
    uid = uids[-1] if uids else None
    for path, cluster in clusters.items():
        if cluster.get("uid") == uid if uid else _is_at(cluster, server):
            yield path


def _is_at(cluster: Mapping[str, Any], server: str) -> bool:
    return str(cluster.get("server", "")).rstrip("/").lower() == server.lower()


def _cluster_of(path: Path) -> Mapping[str, Any]:
    """Which cluster a journal is of, as its head has it; empty where that cannot be told."""
    try:
        heads = (record.get("cluster") for record in islice(read_journal(path), _HEAD))
        return next((head for head in heads if isinstance(head, dict)), {})
    except OSError:
        return {}


def _changed(path: Path) -> float:
    return path.stat().st_mtime


def recorded_run(run: str, file: Path | None, cluster: Cluster, *, everywhere: bool) -> RecordedRun:
    """Return the run of this id, of which the first letters are enough, or in this file; else the cluster's last.

    `file` is the journal to look into instead of those that are kept here, `-` a log on stdin with JSON lines in it.
    `InputError` where there is no such run.
    """
    if file is None and _is_path(run):
        file, run = Path(run), ""
    path = file or _kept(run, cluster, everywhere=everywhere)
    origin = "the log on stdin" if path == _STDIN else printable(str(path))
    try:
        lines = tuple(read_log(sys.stdin.buffer) if path == _STDIN else read_lines(path))
    except OSError as error:
        raise InputError(f"cannot read the journal {printable(str(path))}: {error.strerror}") from error
    records = _of_run(_runs(record for record in lines if record is not None), run if file else "", origin)
    return RecordedRun(records, lines.count(None), origin, path)


def _is_path(run: str) -> bool:
    return "/" in run or run.endswith(SUFFIX) or run == str(_STDIN)


def _kept(run: str, cluster: Cluster, *, everywhere: bool) -> Path:
    """Return the journal of a run that is kept here: the one of that id, or the one that was written last."""
    kept = journals(runs_directory())
    if not kept:
        raise InputError(f"no run is recorded in {printable(str(runs_directory()))}", hint=_ELSEWHERE)
    if not run:
        return _last(kept_runs(cluster, everywhere=everywhere))
    matching = [path for path in kept if path.stem.startswith(run)]
    if len(matching) == 1:
        return matching[0]
    if not matching and Path(run).exists():
        return Path(run)
    names = shortened([path.stem for path in kept])
    raise InputError(f"{len(matching)} runs begin with {run!r}", hint=f"Recorded here: {names}. {_ELSEWHERE}")


def _last(kept: KeptRuns) -> Path:
    """Return the one that was written last; it is said which, for nobody has named it."""
    if not kept.own:
        hint = "Name a run of `rollout history --all-clusters`, or take the last of all: --all-clusters."
        raise InputError(f"no run on {kept.where} is recorded here, only {kept.elsewhere}", hint=hint)
    path = max(kept.own, key=_changed)
    where = kept.where or str(_cluster_of(path).get("server") or "an unknown cluster")
    say(f"The last run on {printable(where)}: {printable(path.stem)}.")
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
