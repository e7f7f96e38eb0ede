"""Files that a command writes, whole or not at all.

What is not a regular file is written through: a device, a pipe. A link's target is replaced, not the link. An existing
file keeps its mode, a new one has what the umask leaves.
"""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from rollout.adapters.local_files import OutputPlace, output_place
from rollout.errors import InputError

_NEW_MODE = 0o666


def check_target(path: Path | None) -> None:
    """`InputError` where a file cannot be written there; asked before the work that would be lost."""
    if path is None:
        return
    if path.is_dir():
        raise InputError(f"{path} is a directory", hint="Name a file in it.")
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise InputError(f"there is no directory {folder}", hint="Create it first.")
    try:
        with output_place(path) as place:
            place.state()
    except OSError as error:
        raise _unwritable(path, error) from error


def write_whole(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Write a file so that nobody ever sees half of it: beside it first, then in its place; `InputError`.

    `mode` is that of a new file, whatever the umask.
    """
    try:
        with output_place(path) as place:
            existing = place.state()
            if existing is None or stat.S_ISREG(existing.st_mode):
                _replace(place, content, existing, mode)
            else:
                with os.fdopen(place.open(os.O_WRONLY), "wb") as stream:
                    stream.write(content)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(f"cannot write {path}: {error.strerror}")


def _replace(place: OutputPlace, content: bytes, existing: os.stat_result | None, mode: int | None) -> None:
    """Write beside it, under a name that nobody can foresee, and put it in its place."""
    beside, folder = f".rollout-{secrets.token_hex(8)}", place.folder
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _NEW_MODE, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            if existing is not None:
                _keep_owner_and_mode(descriptor, existing)
            elif mode is not None:
                os.fchmod(descriptor, mode)
            stream.write(content)
            stream.flush()
            os.fsync(descriptor)
        os.replace(beside, place.name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(beside, dir_fd=folder)
        raise


def _keep_owner_and_mode(descriptor: int, existing: os.stat_result) -> None:
    created = os.fstat(descriptor)
    if (created.st_uid, created.st_gid) != (existing.st_uid, existing.st_gid):
        os.fchown(descriptor, existing.st_uid, existing.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(existing.st_mode))
