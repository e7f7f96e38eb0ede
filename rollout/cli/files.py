"""Files that a command writes: whole or not at all, and as the operator would have written them with `>`.

What is not a regular file is written through: a device, a pipe, a standard stream. A link's target is replaced, not the
link. An existing file keeps its mode, a new one has what the umask leaves.
"""

import errno
import os
import re
import secrets
import stat
from pathlib import Path

from rollout.adapters.local_files import check_output
from rollout.errors import InputError

_NEW_MODE = 0o666
_STREAMS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
_STREAM = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")
# What keeps a file from being replaced need not keep it from being written: a mount, a folder of others.
_NOT_REPLACED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY)


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
        check_output(path)
    except OSError as error:
        raise _unwritable(path, error) from error


def write_whole(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Write a file so that nobody ever sees half of it: beside it first, then in its place; `InputError`.

    `mode` is that of a new file, whatever the umask.
    """
    try:
        stream = _stream(path)
        if stream is not None:
            _write_through(os.dup(stream), content)
        else:
            check_output(path)
            _write(path, content, mode)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(f"cannot write {path}: {error.strerror}")


def _stream(path: Path) -> int | None:
    """Return the descriptor of this process that a path means: it may be a socket, or stand in the middle of a file."""
    number = _STREAM.fullmatch(str(path))
    return int(number[1]) if number else _STREAMS.get(str(path))


def _write(path: Path, content: bytes, mode: int | None) -> None:
    try:
        existing = path.stat()
    except FileNotFoundError:
        _replace(path, content, None, mode)
        return
    if not stat.S_ISREG(existing.st_mode):
        _write_through(os.open(path, os.O_WRONLY), content)
        return
    effective = os.access in os.supports_effective_ids
    if not os.access(path, os.W_OK, effective_ids=effective):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    try:
        _replace(path, content, existing)
    except OSError as error:
        if error.errno not in _NOT_REPLACED:
            raise
        _write_through(os.open(path, os.O_WRONLY | os.O_TRUNC), content)


def _replace(path: Path, content: bytes, existing: os.stat_result | None, mode: int | None = None) -> None:
    """Write beside it, under a name that nobody can foresee, and put it in its place."""
    target = Path(os.path.realpath(path))
    beside = target.with_name(f".rollout-{secrets.token_hex(8)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _NEW_MODE)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            if existing is not None:
                _keep_owner_and_mode(descriptor, existing)
            elif mode is not None:
                os.fchmod(descriptor, mode)
            stream.write(content)
            stream.flush()
            os.fsync(descriptor)
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _keep_owner_and_mode(descriptor: int, existing: os.stat_result) -> None:
    created = os.fstat(descriptor)
    if (created.st_uid, created.st_gid) != (existing.st_uid, existing.st_gid):
        os.fchown(descriptor, existing.st_uid, existing.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(existing.st_mode))


def _write_through(descriptor: int, content: bytes) -> None:
    """Write to an open file, and close it."""
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
