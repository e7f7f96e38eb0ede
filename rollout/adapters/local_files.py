"""Files of this machine: whose word one is, how one is opened to write, and folders for temporary ones.

Whose word: the rule is the one that OpenSSH has for its users' files: owner is the reader or root, and nobody else may
write the file or its folder. A sticky folder (/tmp) is one that others may write: the file in it may be theirs. A group
counts as nobody else where it is the reader's own, as on systems that give each user one (umask 002).

To write: the way to a file is walked link by link, and what has been opened is judged once more, so that no other user
decides what is written to. The rules are those of Linux's `fs.protected_symlinks`, `fs.protected_hardlinks` and
`fs.protected_regular` (sysctl/fs.rst in its documentation), which are off in many containers, and unknown elsewhere: in
a folder that all may write, nothing of others is followed or written, only of the user, of root and of the folder's
owner, and nothing that has a further name elsewhere.
"""

import errno
import grp
import os
import pwd
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rollout.errors import InputError

_ROOT = 0
_MOST_LINKS = 40
_LOOKS = 4


_OWNER_ONLY, _OWNERS_FOLDER = 0o600, 0o700
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Reader:
    """Who goes by a file: the user, and the groups that nobody but them and root is in."""

    uid: int
    groups: frozenset[int]


def current_reader() -> Reader:
    """Return the user of this process."""
    uid, gid = os.geteuid(), os.getegid()
    return Reader(uid, frozenset({_ROOT, gid} if _is_private(uid, gid) else {_ROOT}))


def _is_private(uid: int, gid: int) -> bool:
    """Whether the group is the user's own by its name, and has no further member."""
    try:
        user, group = pwd.getpwuid(uid).pw_name, grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name == user and set(group.gr_mem) <= {user}


def distrust(path: Path, reader: Reader) -> str:
    """Why a file is not the word of its reader or root alone; empty where it is.

    Judged are the file, its folder, and where it is a link every link and folder on the way. Raises `OSError`.
    """
    return next((reason for place in _places(path) if (reason := _objection(place, reader))), "")


def is_writable_by_all(path: Path) -> bool:
    """Whether any user may change this regular file; False for what is none, as pipes and devices are."""
    mode = path.stat().st_mode
    return stat.S_ISREG(mode) and bool(mode & stat.S_IWOTH)


def _places(path: Path) -> Iterator[Path]:
    place = _in_real_folder(path.absolute())
    for _ in range(_MOST_LINKS):
        yield place
        yield place.parent
        if not place.is_symlink():
            return
        place = _in_real_folder(place.parent / place.readlink())


def _in_real_folder(path: Path) -> Path:
    return path.parent.resolve() / path.name


def _objection(place: Path, reader: Reader) -> str:
    state = place.lstat()
    noun = "the folder " if stat.S_ISDIR(state.st_mode) else ""
    if state.st_uid not in (reader.uid, _ROOT):
        return f"{noun}{place} belongs to {user_name(state.st_uid)}"
    if stat.S_ISLNK(state.st_mode):
        return ""
    by_group = state.st_mode & stat.S_IWGRP and state.st_gid not in reader.groups
    if by_group or state.st_mode & stat.S_IWOTH:
        return f"{noun}{place} may be written by others (mode {stat.S_IMODE(state.st_mode):04o})"
    return ""


def user_name(uid: int) -> str:
    """Their name, or their number where they have none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def output_path(path: Path) -> Path:
    """Return where the way to a file ends, without any link; `OSError` for what other users have laid on it."""
    place, ahead, links = Path("/"), list(reversed(path.absolute().parts[1:])), 0
    while ahead:
        folder, name = place, ahead.pop()
        place = folder.parent if name == ".." else folder / name
        state = output_state(place)
        # a link of /proc leads to what has no path, as /proc/self/fd's do
        if state is None or place.is_relative_to(_PROC):
            return place.joinpath(*reversed(ahead))
        if stat.S_ISLNK(state.st_mode):
            if (links := links + 1) > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            target = place.readlink()
            place = Path("/") if target.is_absolute() else folder
            ahead.extend(part for part in reversed(target.parts) if part != "/")
    return place


def output_state(place: Path) -> os.stat_result | None:
    """Look what is there, None for nothing; `PermissionError` where another user has laid it."""
    try:
        state = place.stat(follow_symlinks=place.is_relative_to(_PROC))
    except FileNotFoundError:
        return None
    folder = place.parent.stat()
    if folder.st_mode & stat.S_IWOTH and (reason := _laid_by_others(state, folder)):
        noun = "the link " if stat.S_ISLNK(state.st_mode) else ""
        where = "which lies in a folder that everybody may write"
        raise PermissionError(errno.EACCES, f"{noun}{place}, {where}, {reason}")
    return state


def _laid_by_others(state: os.stat_result, folder: os.stat_result) -> str:
    """Why what stands in a folder that all may write is not to be used; empty where it is."""
    if state.st_uid not in (os.geteuid(), _ROOT, folder.st_uid):
        return f"belongs to {user_name(state.st_uid)}"
    if state.st_nlink > 1 and not stat.S_ISDIR(state.st_mode):
        return "has another name as well (a hard link)"
    return "" if folder.st_mode & stat.S_ISVTX or not stat.S_ISLNK(state.st_mode) else "may be replaced by anybody"


def open_output(path: Path, flags: int, *, make_folders: bool = False) -> int:
    """Open a file of its owner's alone to write to, made where there is none; `flags` may not truncate it.

    It is judged once it is open, for it may have been replaced; one of another user's is not waited for.
    """
    place = output_path(path)
    if make_folders:
        place.parent.mkdir(_OWNERS_FOLDER, parents=True, exist_ok=True)
    is_shared = bool(place.parent.stat().st_mode & stat.S_IWOTH)
    # a pipe that is put in its place meanwhile would hold this process up
    careful = 0 if place.is_relative_to(_PROC) else os.O_NOFOLLOW | (os.O_NONBLOCK if is_shared else 0)
    descriptor = os.open(place, flags | os.O_CREAT | os.O_CLOEXEC | careful, _OWNER_ONLY)
    try:
        if is_shared:
            os.set_blocking(descriptor, True)
            _judge_open(place, descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _judge_open(place: Path, descriptor: int) -> None:
    """Judged by name once more: a look says that what is open stands here, and nowhere else.

    Several looks: a further name that goes between the kernel's finding of a file and its counting of names is missed
    by one.
    """
    for _ in range(_LOOKS):
        state = output_state(place)
        if state is None or not os.path.samestat(state, os.fstat(descriptor)):
            raise PermissionError(errno.EACCES, f"{place} is being replaced")


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
            hint="Set TMPDIR to a writable one; in a container, mount a volume for it (an emptyDir at /tmp).",
        ) from error


def new_folder(purpose: str) -> Path:
    """Return an empty folder of this user's alone; `InputError` where there is no room for one."""
    with scratch_for(purpose):
        return Path(tempfile.mkdtemp(prefix="rollout-"))


def usual_folder(purpose: str) -> str:
    """Where temporary files go; `InputError` where there is no room for one."""
    with scratch_for(purpose):
        return tempfile.gettempdir()
