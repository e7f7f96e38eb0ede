"""Folders for temporary files, also where the root file system is read-only and there is no /tmp, as in containers.

Where none of the usual places can be written, memory can as a rule (/dev/shm), or the folder of this user's state.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rollout.errors import InputError

_VARIABLES = ("XDG_RUNTIME_DIR", "XDG_STATE_HOME")
_MEMORY = "/dev/shm"  # noqa: S108 - files in it have names that nobody can guess, and are their owner's alone


@contextmanager
def scratch_for(purpose: str) -> Iterator[None]:
    """Have `tempfile` find a folder within; `InputError`, which says what for, where there is none."""
    try:
        _find()
        yield
    except FileNotFoundError as error:
        if error.filename is not None:
            raise
        # `tempfile`'s own complaint, which lists the places that it has tried
        raise InputError(
            f"{purpose} needs a folder for temporary files, and none is writable: {error.strerror}",
            hint="Set TMPDIR to a writable one; in a container, mount a volume for it (an emptyDir at /tmp).",
        ) from error


def new_folder(purpose: str) -> Path:
    """An empty folder of this user's alone; `InputError` where there is no room for one."""
    with scratch_for(purpose):
        return Path(tempfile.mkdtemp(prefix="rollout-"))


def usual_folder(purpose: str) -> str:
    """Where temporary files go; `InputError` where there is no room for one."""
    with scratch_for(purpose):
        return tempfile.gettempdir()


def anonymous_file() -> IO[bytes]:
    """A file without a name: on a disk, or in memory where that is all there is and the system has such files."""
    try:
        return tempfile.TemporaryFile()
    except FileNotFoundError:
        if not hasattr(os, "memfd_create"):
            raise
        return os.fdopen(os.memfd_create("rollout"), "w+b")


def _find() -> None:
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        place = next(filter(_is_writable, _further_places(os.environ)), None)
        if place is not None:
            # for the programs that are started, too
            os.environ["TMPDIR"] = tempfile.tempdir = place


def _further_places(environ: Mapping[str, str]) -> Iterator[str]:
    yield _MEMORY
    yield from (place for name in _VARIABLES if (place := environ.get(name, "")).startswith("/"))


def _is_writable(place: str) -> bool:
    try:
        with tempfile.TemporaryFile(dir=place):
            return True
    except OSError:
        return False
