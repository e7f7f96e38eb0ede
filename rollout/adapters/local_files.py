"""Files of this machine: whose word one is, how one is opened to write, or written whole, and temporary folders.

Whose word: the rule is the one that OpenSSH has for its users' files: owner is the reader or root,
and nobody else may write the file or its folder. A sticky folder (/tmp) is one that others may
write: the file in it may be theirs. A group counts as nobody else where it is the reader's own, as
on systems that give each user one (umask 002).

To write: first opened, then judged, so that no other user decides what is written to. The way to a
file is walked folder by folder, each held open and no link followed by the kernel, so that nothing
that is judged can be replaced before it is used. The rules are those of Linux's
`fs.protected_symlinks`, `fs.protected_hardlinks` and `fs.protected_regular` (sysctl/fs.rst in its
documentation), which are off in many containers, and unknown elsewhere: in a folder that all may
write, nothing of others is followed or written, only of the user, of root and of the folder's
owner, and nothing that has a further name elsewhere.

Written whole, or not at all: what is not a regular file is written through, as a device or a pipe.
A link's target is replaced, not the link. An existing file keeps its mode, a new one has what the
umask leaves.
"""

import errno
import grp
import os
import pwd
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rollout.errors import InputError

_ROOT = 0
_MOST_LINKS = 40
_LOOKS = 4

_OWNER_ONLY = 0o600
_OWNERS_FOLDER = 0o700
_NEW_MODE = 0o666
_PROC = Path("/proc")
# Linux can hold a folder open that may be searched but not listed.
_FOLDER = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)


def _is_own_group(gid: int) -> bool:
    """Whether nobody but the user of this process and root is in the group: by its name and its members."""
    if gid == _ROOT or gid != os.getegid():
        return gid == _ROOT
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name == user and set(group.gr_mem) <= {user}


def distrust(path: Path) -> str:
    """Why a file is not the word of this process's user or root alone; empty where it is. Raises `OSError`.

    Judged are the file, which may be no link, and its folder.
    """
    folder = path.absolute().parent.resolve()
    return _objection(folder / path.name) or _objection(folder)


def distrust_named(path: Path) -> str:
    """Return how others could change a file that the operator names; empty if they cannot.

    The operator has chosen the file, so it may belong to another user, as one that is mounted into
    a container does. Links are followed, and each one's folder is judged: Kubernetes mounts Secrets
    and ConfigMaps as links, in folders that all may write but which are mounted read-only.
    """
    place = path.absolute()
    for _ in range(_MOST_LINKS):
        folder = place.parent.resolve()
        entry = folder / place.name
        if why := _way_in_for_others(folder, entry):
            return why
        if not entry.is_symlink():
            return ""
        place = folder / entry.readlink()
    return f"{path} has too many links"


def _way_in_for_others(folder: Path, entry: Path) -> str:
    """Return how others may replace or write this entry of a folder; empty if they may not."""
    if _is_read_only(folder):
        return ""
    folder_state = folder.stat()
    entry_state = entry.lstat()
    if _is_open_to_others(folder_state):
        # In a sticky folder, such as /tmp, only its owner can replace an entry.
        if not folder_state.st_mode & stat.S_ISVTX:
            return _may_be_written(f"the folder {folder}", folder_state)
        if entry_state.st_uid not in (os.geteuid(), _ROOT):
            return (
                f"{entry} belongs to {user_name(entry_state.st_uid)}, in a folder that others may"
                " write"
            )
    is_link = stat.S_ISLNK(entry_state.st_mode)
    if not is_link and _is_open_to_others(entry_state):
        return _may_be_written(str(entry), entry_state)
    return ""


def _may_be_written(what: str, state: os.stat_result) -> str:
    return f"{what} may be written by others (mode {stat.S_IMODE(state.st_mode):04o})"


def is_writable_by_others(path: Path) -> bool:
    """Whether others than the owner may write a file. A group with no other member does not count."""
    return _is_open_to_others(path.stat())


def _is_open_to_others(state: os.stat_result) -> bool:
    is_writable_by_group = bool(state.st_mode & stat.S_IWGRP) and not _is_own_group(state.st_gid)
    return bool(state.st_mode & stat.S_IWOTH) or is_writable_by_group


def _objection(place: Path) -> str:
    state = place.lstat()
    noun = "the folder " if stat.S_ISDIR(state.st_mode) else ""
    if state.st_uid not in (os.geteuid(), _ROOT):
        return f"{noun}{place} belongs to {user_name(state.st_uid)}"
    if stat.S_ISLNK(state.st_mode):
        return f"{place} is a link"
    return _may_be_written(f"{noun}{place}", state) if _is_open_to_others(state) else ""


def _is_read_only(place: Path) -> bool:
    """Whether the filesystem is mounted read-only."""
    return bool(os.statvfs(place).f_flag & os.ST_RDONLY)


def user_name(uid: int) -> str:
    """Their name, or their number where they have none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


@dataclass(frozen=True, slots=True)
class OutputPlace:
    """A name in a folder that is held open as `folder`; `path` is how it is told. All raise `OSError`."""

    folder: int
    name: str
    path: Path

    def state(self) -> os.stat_result | None:
        """Look what is there, None for nothing; `PermissionError` where another user has laid it."""
        try:
            state = os.stat(self.name, dir_fd=self.folder, follow_symlinks=self._is_kernels)
        except FileNotFoundError:
            return None
        if self.name != ".." and self._is_shared and (reason := self._objection(state)):
            noun = "the link " if stat.S_ISLNK(state.st_mode) else ""
            where = "which lies in a folder that everybody may write"
            raise PermissionError(errno.EACCES, f"{noun}{self.path}, {where}, {reason}")
        return state

    def open(self, flags: int, mode: int = _OWNER_ONLY) -> int:
        """Open the file, then judge it; `flags` may not truncate it. What is another's is not waited for."""
        self.state()
        # a pipe that is put in its place meanwhile would hold this process up
        waiting = os.O_NONBLOCK if self._is_shared else 0
        descriptor = os.open(
            self.name, flags | self._no_link | waiting | os.O_CLOEXEC, mode, dir_fd=self.folder
        )
        try:
            if self._is_shared:
                os.set_blocking(descriptor, True)
                self._judge_open(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _judge_open(self, descriptor: int) -> None:
        """Judged by name once more: a look says that what is open stands here, and nowhere else.

        Several looks: a further name that goes between the kernel's finding of a file and its
        counting of names is missed by one.
        """
        for _ in range(_LOOKS):
            state = self.state()
            if state is None or not os.path.samestat(state, os.fstat(descriptor)):
                raise PermissionError(errno.EACCES, f"{self.path} is being replaced")

    def entered(self, *, make: bool) -> int:
        """Open the folder of this name; make it before, where there is none."""
        if make:
            with suppress(FileExistsError):
                os.mkdir(self.name, _OWNERS_FOLDER, dir_fd=self.folder)
        return os.open(self.name, _FOLDER | self._no_link, dir_fd=self.folder)

    def target(self) -> Path | None:
        """Where a link leads; None for what is no link, and for those that only the kernel can follow."""
        state = self.state()
        if state is None or not stat.S_ISLNK(state.st_mode):
            return None
        # what is judged stays: in a sticky folder, nobody else can put another in its place
        return Path(os.readlink(self.name, dir_fd=self.folder))

    @property
    def _is_shared(self) -> bool:
        return bool(os.fstat(self.folder).st_mode & stat.S_IWOTH)

    @property
    def _is_kernels(self) -> bool:
        """Whether links in the folder lead to what has no path, as /proc/self/fd's do."""
        return _PROC.is_dir() and os.fstat(self.folder).st_dev == _PROC.stat().st_dev

    @property
    def _no_link(self) -> int:
        return 0 if self._is_kernels else os.O_NOFOLLOW

    def _objection(self, state: os.stat_result) -> str:
        """Why what stands in a folder that all may write is not to be used; empty where it is."""
        folder = os.fstat(self.folder)
        if state.st_uid not in (os.geteuid(), _ROOT, folder.st_uid):
            return f"belongs to {user_name(state.st_uid)}"
        if state.st_nlink > 1 and not stat.S_ISDIR(state.st_mode):
            return "has another name as well (a hard link)"
        return (
            ""
            if folder.st_mode & stat.S_ISVTX or not stat.S_ISLNK(state.st_mode)
            else "may be replaced by anybody"
        )


@contextmanager
def output_place(path: Path, *, make_folders: bool = False) -> Iterator[OutputPlace]:
    """Where the way to a file ends, walked as the kernel does; `OSError`, as for what other users have laid on it."""
    at = Path("/")
    folder = os.open("/", _FOLDER)
    links = 0
    ahead = list(reversed(path.absolute().parts[1:]))
    try:
        while ahead:
            place = OutputPlace(folder, name := ahead.pop(), at / name)
            target = place.target()
            if target is None and not ahead:
                yield place
                return
            if target is None:
                at = place.path
                folder = _instead(folder, place.entered(make=make_folders))
                continue
            if (links := links + 1) > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            if target.is_absolute():
                at = Path("/")
                folder = _instead(folder, os.open("/", _FOLDER))
            ahead.extend(part for part in reversed(target.parts) if part != "/")
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    finally:
        os.close(folder)


def _instead(folder: int, other: int) -> int:
    os.close(folder)
    return other


def open_output(path: Path, flags: int) -> int:
    """Open a file of its owner's alone to write to, made with its folders where there is none."""
    with output_place(path, make_folders=True) as place:
        return place.open(flags | os.O_CREAT)


def output_file(written: str) -> Path:
    """Return the path of an output file; `ValueError` for a folder, since `Path` drops its final slash."""
    if names_folder(written):
        raise ValueError(f"{written} names a folder. Name a file in it.")
    return Path(written)


def names_folder(written: str) -> bool:
    """Whether the text ends in a slash, which `Path` would drop."""
    return written.endswith((os.sep, os.altsep or os.sep))


def check_folder(path: Path) -> None:
    """Check that a folder can be made, before work that would be lost; `InputError` if not."""
    existing = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not existing.is_dir():
        raise InputError(f"{existing} is not a directory", hint="Name another folder.")


def make_folder(path: Path) -> None:
    """Make a folder and its parents if they do not exist; `InputError` if that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make the folder {path}: {error.strerror}", hint="Name another folder."
        ) from error


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


def _replace(
    place: OutputPlace, content: bytes, existing: os.stat_result | None, mode: int | None
) -> None:
    """Write beside it, under a name that nobody can foresee, and put it in its place."""
    beside = f".rollout-{secrets.token_hex(8)}"
    folder = place.folder
    descriptor = os.open(
        beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _NEW_MODE, dir_fd=folder
    )
    try:
        with os.fdopen(descriptor, "wb") as stream:
            if existing is not None:
                created = os.fstat(descriptor)
                if (created.st_uid, created.st_gid) != (existing.st_uid, existing.st_gid):
                    os.fchown(descriptor, existing.st_uid, existing.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(existing.st_mode))
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


@contextmanager
def scratch_for(purpose: str) -> Iterator[None]:
    """Raise `InputError`, which says what for, where `tempfile` is asked for a folder within and finds none."""
    try:
        yield
    except FileNotFoundError as error:
        if error.filename is not None:
            raise
        # `tempfile`'s own complaint, which lists the places that it has tried
        raise InputError(
            f"{purpose} needs a folder for temporary files, and none is writable: {error.strerror}",
            hint=(
                "Set TMPDIR to a writable one; in a container, mount a volume for it (an emptyDir"
                " at /tmp)."
            ),
        ) from error
