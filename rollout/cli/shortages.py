"""What the system denies a process, wherever in it: room, memory, threads, a file, the folder it stands in.

None of it is a bug of the program, and most of it can be met in any line of any library.
"""

import errno
import os
from collections.abc import Mapping
from typing import NamedTuple

from rollout.model.text import printable


class Shortage(NamedTuple):
    """What is short, in a sentence, and the way out."""

    message: str
    hint: str


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ROOM_HINT = "Free space there, or send the output elsewhere."
_NO_FILES = Shortage("too many files are open", "Raise the limit for this process: ulimit -n 1024.")
_NO_THREADS = Shortage(
    "no further thread or process can be started",
    "Raise the limit (ulimit -u, that of the container's pids), or ask fewer hosts at once: --probe-concurrency 8.",
)
_NO_MEMORY = Shortage("there is not enough memory", "Raise the limit of this process or its container.")
_NO_FOLDER_HERE = Shortage("the current folder does not exist any more", "Change to one that does: cd ~")
_BY_NUMBER: Mapping[int | None, Shortage] = {
    errno.EMFILE: _NO_FILES,
    errno.ENFILE: _NO_FILES,
    errno.EAGAIN: _NO_THREADS,
    errno.ENOMEM: _NO_MEMORY,
}


def shortage(error: BaseException) -> Shortage | None:
    """What the system has denied, None where an error is of another kind."""
    if isinstance(error, MemoryError):
        return _NO_MEMORY
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return _NO_THREADS
    return _of_system(error) if isinstance(error, OSError) else None


def _of_system(error: OSError) -> Shortage | None:
    if error.errno in _NO_ROOM:
        return Shortage(f"cannot write {printable(str(error.filename or 'the output'))}: {error.strerror}", _ROOM_HINT)
    if _is_lack_of_a_temporary_folder(error):
        return Shortage(
            f"no folder for temporary files is writable: {printable(str(error))}",
            "Set TMPDIR to a writable one; in a container, mount a volume for it (an emptyDir at /tmp).",
        )
    if isinstance(error, FileNotFoundError) and not _stands_somewhere():
        return _NO_FOLDER_HERE
    return _BY_NUMBER.get(error.errno) or _of_a_file(error)


def _is_lack_of_a_temporary_folder(error: OSError) -> bool:
    """Whether it is the complaint of `tempfile`, which some library has called."""
    is_missing = isinstance(error, FileNotFoundError) and error.filename is None
    return is_missing and "temporary directory" in str(error)


def _stands_somewhere() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - the question is asked of the system
    except FileNotFoundError:
        return False
    return True


def _of_a_file(error: OSError) -> Shortage | None:
    """Any other complaint about a file that has a name."""
    if not isinstance(error.filename, str | bytes):
        return None
    message = f"{printable(os.fsdecode(error.filename))}: {error.strerror}"
    return Shortage(message, "See what this user may do there; -v shows where it was needed.")
