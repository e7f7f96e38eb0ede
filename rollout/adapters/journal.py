"""A run written down: one JSON object a line, each on the disk before the next thing happens.

The journal is for whoever reads it afterwards; no rollout depends on it. A process that ends in the
middle of a line leaves a torn one, which the next begins after and readers pass over.
"""

import fcntl
import json
import os
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from rollout.adapters.input_files import open_input
from rollout.adapters.local_files import open_output
from rollout.model.json_text import json_line
from rollout.model.text import is_run_id

Record = Mapping[str, Any]
SUFFIX = ".jsonl"
# As `json_line` writes them.
_LINE_BEGINS = '{"type":"'
_DECODER = json.JSONDecoder()


class JournalFile:
    """Appends records to a file; safe to call from many threads. Raises `OSError` where the file cannot be written."""

    def __init__(self, path: Path) -> None:
        self._turn = threading.Lock()
        self._file = open_output(path, os.O_RDWR | os.O_APPEND)
        # A pipe or a terminal takes lines as well, but has no disk to be on, and no past.
        self._on_disk = stat.S_ISREG(os.fstat(self._file).st_mode)
        if self._on_disk:
            # said to readers, who ask `is_being_written`; where a file system knows no locks,
            # nobody is told
            with suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # now alone: whoever had the lock before may have written until then
        size = os.fstat(self._file).st_size
        self._torn = self._on_disk and size > 0 and os.pread(self._file, 1, size - 1) != b"\n"

    def write(self, record: Record) -> None:
        """Append one record and have it on the disk."""
        line = json_line(record) + b"\n"
        with self._turn:
            self._append(b"\n" + line if self._torn else line)
            if self._on_disk:
                os.fsync(self._file)
            self._torn = False

    def _append(self, line: bytes) -> None:
        """Write all of it: a disk that is nearly full takes a part of a line, and refuses the next one."""
        while line:
            self._torn = True
            line = line[os.write(self._file, line) :]

    def close(self) -> None:
        """End it."""
        os.close(self._file)


def read_journal(path: Path) -> Iterator[Record]:
    """Return the records of a file in order; what is no whole object is passed over."""
    return (record for record in read_lines(path) if record is not None)


def read_lines(path: Path) -> Iterator[Record | None]:
    """Yield the records of a file in order, None for a line that is no whole object; empty lines are nothing."""
    with open_input(path) as stream:
        for line in filter(bytes.strip, stream):
            try:
                yield msgspec.json.decode(line, type=dict[str, Any])
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                yield None


def read_log(stream: Iterable[bytes]) -> Iterator[Record | None]:
    """Yield the JSON lines of a process within what `kubectl logs` prints: behind prefixes, and among other text.

    None for one that is cut off or damaged; what is no line of ours is passed over.
    """
    for line in stream:
        text = line.decode(errors="replace")
        begin = text.find(_LINE_BEGINS)
        while begin >= 0:
            try:
                record, end = _DECODER.raw_decode(text, begin)
            except (ValueError, RecursionError):
                record = None
                end = begin + 1
            yield record
            begin = text.find(_LINE_BEGINS, end)


def server_of(path: Path) -> str:
    """Return the address of the API server of a journal's run; empty if the journal does not tell."""
    try:
        first = next((record for record in read_journal(path) if record.get("type") == "run"), {})
    except OSError:
        return ""
    cluster = first.get("cluster")
    return str(cluster.get("server", "")) if isinstance(cluster, dict) else ""


def is_server(address: str, other: str) -> bool:
    """Whether two addresses are those of one API server."""
    return bool(address) and address.rstrip("/") == other.rstrip("/")


def is_being_written(path: Path) -> bool | None:
    """Whether a process on this machine has the journal open to write: it ends with the process, however that ends.

    None where that cannot be told: there is no such file, or its file system knows no locks.
    """
    if not path.is_file():
        return None
    try:
        with path.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def runs_directory() -> Path:
    """Where journals are kept: under the XDG state home."""
    state = os.environ.get("XDG_STATE_HOME", "")
    home = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return home / "rollout" / "runs"


def journal_of(run: str) -> Path:
    """Return the file of a run kept here; an id from elsewhere was checked where it was read, and is no path."""
    if not is_run_id(run):
        raise AssertionError(f"{run!r} is not a rollout id")
    return runs_directory() / f"{run}{SUFFIX}"


def latest_first(paths: Iterable[Path]) -> Sequence[Path]:
    """Return the journals in the order in which they were written, the latest first."""
    return sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)


def journals() -> tuple[Path, ...]:
    """Return the journals that are kept here, by name; none where there is no directory of them."""
    return tuple(sorted(runs_directory().glob(f"*{SUFFIX}")))
