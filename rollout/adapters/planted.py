"""Links and files that others have laid where this process is going to write.

The rules are those of Linux's `fs.protected_symlinks` and `fs.protected_regular` (sysctl/fs.rst in its documentation),
which are off in many containers, and unknown elsewhere: in a folder that all may write, only links of the user, of root
or of the folder's owner are followed; where the folder is sticky (/tmp), the same holds for the file itself.
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from rollout.adapters.file_owners import user_name

_ROOT = 0
_MOST_LINKS = 40
_SHARED = stat.S_IWOTH
_STICKY = stat.S_IWOTH | stat.S_ISVTX


def refuse_planted(path: Path) -> None:
    """`PermissionError` where another user decides what this process writes to by writing to this path."""
    for place in _way(path):
        if os.path.lexists(place) and (owner := _stranger(place, os.geteuid())) is not None:
            noun = "the link " if place.is_symlink() else ""
            where = "which lies in a folder that everybody may write"
            raise PermissionError(errno.EACCES, f"{noun}{place}, {where}, belongs to {user_name(owner)}")


def _stranger(place: Path, writer: int) -> int | None:
    """The owner of what is not to be written through; None where it may be."""
    state, folder = place.lstat(), place.parent.stat()
    open_to_all = _SHARED if stat.S_ISLNK(state.st_mode) else _STICKY
    if folder.st_mode & open_to_all != open_to_all or state.st_uid in (writer, _ROOT, folder.st_uid):
        return None
    return state.st_uid


def _way(path: Path) -> Iterator[Path]:
    """Each link on the way to a file, as the kernel walks it, and the place where it ends."""
    place, ahead, links = Path("/"), list(reversed(path.absolute().parts[1:])), 0
    while ahead and links < _MOST_LINKS:
        step = place.parent if (part := ahead.pop()) == ".." else place / part
        if not step.is_symlink():
            place = step
            continue
        yield step
        links += 1
        target = step.readlink()
        place = Path("/") if target.is_absolute() else place
        ahead.extend(part for part in reversed(target.parts) if part != "/")
    yield place
