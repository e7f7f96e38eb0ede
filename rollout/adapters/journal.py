"""The journal of a run: one JSON object per line."""

import fcntl
import json
import os
import stat
import threading
import time
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
_RECORD_BEGINS = '{"type":"'
_LOCK_ATTEMPTS = 5
_LOCK_PAUSE = 0.01
_DECODER = json.JSONDecoder()


class JournalFile:
    """Appends records, from many threads. Raises `OSError`."""

    def __init__(self, path: Path) -> None:
        self._write_lock = threading.Lock()
        self._file = open_output(path, os.O_RDWR | os.O_APPEND)
        self._is_regular_file = stat.S_ISREG(os.fstat(self._file).st_mode)
        if self._is_regular_file:
            self._lock_file()
        # After locking, because the last writer may just have ended.
        size = os.fstat(self._file).st_size
        self._ends_in_half_line = False
        if self._is_regular_file and size > 0:
            last_byte = os.pread(self._file, 1, size - 1)
            self._ends_in_half_line = last_byte != b"\n"

    def _lock_file(self) -> None:
        """Lock; `is_being_written` may briefly hold the lock."""
        for _ in range(_LOCK_ATTEMPTS):
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_LOCK_PAUSE)
            except OSError:
                # Not every file system has locks.
                return
            else:
                return

    def write(self, record: Record) -> None:
        """Append a record, and flush it to the disk."""
        line = json_line(record) + b"\n"
        with self._write_lock:
            if self._ends_in_half_line:
                line = b"\n" + line
            self._append(line)
            if self._is_regular_file:
                os.fsync(self._file)
            self._ends_in_half_line = False

    def _append(self, line: bytes) -> None:
        """A nearly full disk may take parts."""
        while line:
            self._ends_in_half_line = True
            written_bytes = os.write(self._file, line)
            line = line[written_bytes:]

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_journal(path: Path) -> Iterator[Record]:
    """Return the undamaged records in order."""
    return (record for record in read_lines(path) if record is not None)


def read_lines(path: Path) -> Iterator[Record | None]:
    """Yield the records in order; None for a damaged line."""
    with open_input(path) as stream:
        for line in stream:
            if not line.strip():
                continue
            try:
                yield msgspec.json.decode(line, type=dict[str, Any])
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                yield None


def read_log(stream: Iterable[bytes]) -> Iterator[Record | None]:
    """Yield records of `kubectl logs`; None for a damaged one."""
    for line in stream:
        text = line.decode(errors="replace")
        # Other text may come before it, and other records after it.
        begin = text.find(_RECORD_BEGINS)
        while begin >= 0:
            try:
                record, end = _DECODER.raw_decode(text, begin)
            except (ValueError, RecursionError):
                record = None
                end = begin + 1
            yield record
            begin = text.find(_RECORD_BEGINS, end)


def read_api_server(path: Path) -> str:
    """Return the API server's address, or empty."""
    with suppress(OSError):
        for record in read_journal(path):
            if record.get("type") == "run":
                cluster = record.get("cluster")
                return str(cluster.get("server", "")) if isinstance(cluster, dict) else ""
    return ""


def is_same_api_server(address: str, other: str) -> bool:
    """Whether both are one API server; False if one is empty."""
    return bool(address) and address.rstrip("/") == other.rstrip("/")


def is_being_written(path: Path) -> bool | None:
    """Whether a local process is writing the journal; None if unknown."""
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
    """Return the journals' folder, in the XDG state home."""
    named = os.environ.get("XDG_STATE_HOME", "")
    # As XDG demands.
    is_absolute = named.startswith("/")
    state_home = Path(named) if is_absolute else Path.home() / ".local" / "state"
    return state_home / "rollout" / "runs"


def journal_of(run: str) -> Path:
    """Return a run's journal. The ID must be valid."""
    if not is_run_id(run):
        raise AssertionError(f"{run!r} is not a rollout ID")
    return runs_directory() / f"{run}{SUFFIX}"


def latest_first(paths: Iterable[Path]) -> Sequence[Path]:
    """Sort by last write; missing files come last."""
    return sorted(paths, key=_last_write, reverse=True)


def _last_write(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return float("-inf")


def list_journals() -> tuple[Path, ...]:
    """Return the journals by name."""
    return tuple(sorted(runs_directory().glob(f"*{SUFFIX}")))
