"""Files of this machine: whose word one is, which are written to, and folders for temporary ones.

Whose word: owner is the reader or root, and not everybody may write the file or its folder. A sticky folder (/tmp) is
one that others may write: the file in it may be theirs.

To write: in a folder that all may write, nothing of others is followed or written, only of the user, of root and of the
folder's owner. Against who is quicker than this look there are the kernel's own rules: `fs.protected_symlinks`,
`fs.protected_hardlinks` and `fs.protected_regular`.
"""

import errno
import os
import pwd
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rollout.errors import InputError

_ROOT = 0
_MOST_LINKS = 40
_OWNER_ONLY, _OWNERS_FOLDER = 0o600, 0o700


def distrust(path: Path, reader: int) -> str:
    """Why a file is not the word of this user or root alone; empty where it is. Raises `OSError`.

    Judged are the file, its folder, and where it is a link every link and folder on the way.
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
    return Path(os.path.realpath(path.parent), path.name)


def _objection(place: Path, reader: int) -> str:
    state = place.lstat()
    noun = "the folder " if stat.S_ISDIR(state.st_mode) else ""
    if state.st_uid not in (reader, _ROOT):
        return f"{noun}{place} belongs to {user_name(state.st_uid)}"
    if state.st_mode & stat.S_IWOTH and not stat.S_ISLNK(state.st_mode):
        return f"{noun}{place} may be written by others (mode {stat.S_IMODE(state.st_mode):04o})"
    return ""


def user_name(uid: int) -> str:
    """Their name, or their number where they have none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def check_output(path: Path) -> None:
    """`PermissionError` for a file that is to be written, where another user has laid it, or a link on its way."""
    for place in (*_places(path), *path.absolute().parents):
        folder = place.parent.stat()
        state = place.lstat() if folder.st_mode & stat.S_IWOTH and os.path.lexists(place) else None
        if state is not None and state.st_uid not in (os.geteuid(), _ROOT, folder.st_uid):
            noun = "the link " if stat.S_ISLNK(state.st_mode) else ""
            where = f"which lies in a folder that everybody may write, belongs to {user_name(state.st_uid)}"
            raise PermissionError(errno.EACCES, f"{noun}{place}, {where}")


def open_output(path: Path, flags: int, *, make_folders: bool = False) -> int:
    """Open a file of its owner's alone to write to, made where there is none; see `check_output`. Raises `OSError`."""
    if make_folders:
        path.parent.mkdir(mode=_OWNERS_FOLDER, parents=True, exist_ok=True)
    check_output(path)
    return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, _OWNER_ONLY)


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
