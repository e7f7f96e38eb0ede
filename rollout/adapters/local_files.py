"""Writes files that no other user can redirect.

The rules are Linux's `fs.protected_*` (sysctl/fs.rst), which many containers turn off.
"""

import errno
import os
import pwd
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from rollout.errors import InputError

ROOT = 0
MOST_LINKS = 40
_CHECKS_OF_OPEN_FILE = 4

_OWNER_ONLY = 0o600
_OWNERS_FOLDER = 0o700
_NEW_MODE = 0o666
_PROC = Path("/proc")
# O_PATH opens folders that may be searched but not listed.
_FOLDER = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)


def user_name(uid: int) -> str:
    """Return a user's name, else the number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


class OutputPlace(Struct, frozen=True):
    """An entry on an output's path. Each method checks its state."""

    # A descriptor.
    folder: int
    name: str
    path: Path

    def checked_state(self) -> os.stat_result | None:
        """Return the status, outside /proc a link's own; None if missing.

        `PermissionError` if another user has put it there.
        """
        try:
            state = os.stat(self.name, dir_fd=self.folder, follow_symlinks=self._is_in_proc)
        except FileNotFoundError:
            return None
        # `..` is the kernel's.
        is_checked = self._is_writable_by_all and self.name != ".."
        reason = self._why_not_used(state) if is_checked else ""
        if reason:
            noun = "the link " if stat.S_ISLNK(state.st_mode) else ""
            subject = f"{noun}{self.path}, in a world-writable directory,"
            raise PermissionError(errno.EACCES, f"{subject} {reason}")
        return state

    def open(self, flags: int) -> int:
        """Open, then check again, so `flags` must not truncate."""
        self.checked_state()
        # Someone may have put a pipe there.
        non_blocking = os.O_NONBLOCK if self._is_writable_by_all else 0
        flags |= self._no_follow_flag | non_blocking | os.O_CLOEXEC
        descriptor = os.open(self.name, flags, _OWNER_ONLY, dir_fd=self.folder)
        try:
            if self._is_writable_by_all:
                os.set_blocking(descriptor, True)
                self._check_open(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _check_open(self, descriptor: int) -> None:
        """Check that the open file still has this name.

        Repeated, because a refused hard link may exist for a moment.
        """
        for _ in range(_CHECKS_OF_OPEN_FILE):
            state = self.checked_state()
            if state is None or not os.path.samestat(state, os.fstat(descriptor)):
                raise PermissionError(errno.EACCES, f"{self.path} is being replaced")

    def open_folder(self, *, make: bool) -> int:
        """Open the folder; `make` creates it."""
        if make:
            with suppress(FileExistsError):
                os.mkdir(self.name, _OWNERS_FOLDER, dir_fd=self.folder)
        return os.open(self.name, _FOLDER | self._no_follow_flag, dir_fd=self.folder)

    def read_link(self) -> Path | None:
        """Return a link's target; None if it is no link, or in /proc."""
        state = self.checked_state()
        if state is None or not stat.S_ISLNK(state.st_mode):
            return None
        # Nobody can replace a checked link: its folder is sticky, or closed to others.
        return Path(os.readlink(self.name, dir_fd=self.folder))

    @property
    def _is_writable_by_all(self) -> bool:
        return bool(os.fstat(self.folder).st_mode & stat.S_IWOTH)

    @property
    def _is_in_proc(self) -> bool:
        """Only the kernel follows links of /proc."""
        return _PROC.is_dir() and os.fstat(self.folder).st_dev == _PROC.stat().st_dev

    @property
    def _no_follow_flag(self) -> int:
        return 0 if self._is_in_proc else os.O_NOFOLLOW

    def _why_not_used(self, state: os.stat_result) -> str:
        """Return a predicate for the entry, or empty."""
        folder = os.fstat(self.folder)
        if state.st_uid not in (os.geteuid(), ROOT, folder.st_uid):
            return f"belongs to {user_name(state.st_uid)}"
        if state.st_nlink > 1 and not stat.S_ISDIR(state.st_mode):
            return "has more than one hard link"
        if stat.S_ISLNK(state.st_mode) and not folder.st_mode & stat.S_ISVTX:
            return "can be replaced by anyone"
        return ""


@contextmanager
def output_place(path: Path, *, make_folders: bool = False) -> Iterator[OutputPlace]:
    """Walk a path like the kernel, with checks; yield its last entry."""
    walked = Path("/")
    folder = os.open("/", _FOLDER)
    links = 0
    remaining = list(reversed(path.absolute().parts[1:]))
    try:
        while remaining:
            name = remaining.pop()
            place = OutputPlace(folder, name, walked / name)
            target = place.read_link()
            if target is None:
                if not remaining:
                    yield place
                    return
                walked = place.path
                folder = _replace_descriptor(folder, place.open_folder(make=make_folders))
                continue
            links += 1
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            if target.is_absolute():
                walked = Path("/")
                folder = _replace_descriptor(folder, os.open("/", _FOLDER))
            remaining.extend(part for part in reversed(target.parts) if part != "/")
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    finally:
        os.close(folder)


def _replace_descriptor(old: int, new: int) -> int:
    os.close(old)
    return new


def open_output(path: Path, flags: int) -> int:
    """Open for writing; new files and folders are the owner's only."""
    with output_place(path, make_folders=True) as place:
        return place.open(flags | os.O_CREAT)


def output_file(written: str) -> Path:
    """Return the path; `ValueError` for a folder."""
    if names_folder(written):
        raise ValueError(f"{written} is a directory. Specify a file in it.")
    return Path(written)


def names_folder(written: str) -> bool:
    """`Path` would drop the slash."""
    return written.endswith("/")


def check_output_folder(path: Path) -> None:
    """Raise `InputError` if a folder cannot be made."""
    try:
        existing = next(part for part in (path, *path.absolute().parents) if part.exists())
        if not existing.is_dir():
            raise InputError(f"{existing} is not a directory", hint="Specify another directory.")
    except OSError as error:
        raise _unwritable(path, error) from error


def make_folder(path: Path) -> None:
    """Make it and its parents, or raise `InputError`."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot create the directory {path}: {error.strerror}"
        raise InputError(message, hint="Specify another directory.") from error


def check_output_file(path: Path | None) -> None:
    """Raise `InputError` for a missing folder or another user's file."""
    if path is None:
        return
    try:
        if path.is_dir():
            raise InputError(f"{path} is a directory", hint="Specify a file in it.")
        folder = Path(os.path.realpath(path)).parent
        if not folder.is_dir():
            raise InputError(f"there is no directory {folder}", hint="Create it first.")
        with output_place(path) as place:
            place.checked_state()
    except OSError as error:
        raise _unwritable(path, error) from error


def write_whole(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Write so that no reader sees half a file, or raise `InputError`.

    A link's target is replaced, a device or pipe written to. A file keeps its mode; a new one gets
    `mode`, if not None.
    """
    try:
        with output_place(path) as place:
            existing = place.checked_state()
            if existing is None or stat.S_ISREG(existing.st_mode):
                _replace_by_rename(place, content, existing, mode)
            else:
                with os.fdopen(place.open(os.O_WRONLY), "wb") as stream:
                    stream.write(content)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(f"cannot write {path}: {error.strerror}")


def _replace_by_rename(
    place: OutputPlace, content: bytes, existing: os.stat_result | None, mode: int | None
) -> None:
    temporary = f".rollout-{secrets.token_hex(8)}"
    folder = place.folder
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, _NEW_MODE, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            if existing is not None:
                _copy_owner_and_mode(existing, descriptor)
            elif mode is not None:
                os.fchmod(descriptor, mode)
            stream.write(content)
            stream.flush()
            os.fsync(descriptor)
        os.replace(temporary, place.name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        raise


def _copy_owner_and_mode(existing: os.stat_result, descriptor: int) -> None:
    created = os.fstat(descriptor)
    if (created.st_uid, created.st_gid) != (existing.st_uid, existing.st_gid):
        os.fchown(descriptor, existing.st_uid, existing.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(existing.st_mode))


@contextmanager
def needing_temporary_folder(subject: str) -> Iterator[None]:
    """Raise `InputError` if `tempfile` finds no folder."""
    try:
        yield
    except FileNotFoundError as error:
        # Errors of `tempfile` have no file name.
        if error.filename is not None:
            raise
        raise InputError(
            f"{subject} needs a directory for temporary files,"
            f" and none is writable: {error.strerror}",
            hint="Set TMPDIR to a writable directory. In a container, mount an emptyDir at /tmp.",
        ) from error
