"""Finds out who may change an input file.

As in OpenSSH, only the operator and root may write it and its folders.
"""

import errno
import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from rollout.adapters.local_files import MOST_LINKS, ROOT, user_name
from rollout.model.text import shell_word


class Distrust(Struct, frozen=True):
    """Why an input is not trusted, and the remedy."""

    why: str
    fix: str


class DistrustError(PermissionError):
    """An input is not trusted; `hint` is the remedy."""

    def __init__(self, path: Path, distrust: Distrust) -> None:
        why = f"it is not trusted, because {distrust.why}"
        super().__init__(errno.EACCES, why, str(path))
        self.hint = distrust.fix


def hint_of(error: Exception, otherwise: str = "") -> str:
    """Return a `DistrustError`'s hint, or `otherwise`."""
    return error.hint if isinstance(error, DistrustError) else otherwise


def distrust_if_writable(path: Path) -> Distrust | None:
    """Distrust a file or folder that others could replace or write.

    Folders and links on the way count, as for sshd's StrictModes, but anyone may own them, as in
    containers. Read-only mounts and mount points are trusted: who mounts a volume decides who
    shares it.
    """
    for entry in _walk(path):
        distrust = distrust_entry_if_writable(entry)
        if distrust is not None:
            return distrust
    return None


def distrust_entry_if_writable(entry: Path) -> Distrust | None:
    """Do the same without the folders and links on the way."""
    return _distrust_if_replaceable(entry) or _distrust_if_open(entry)


def distrust_if_foreign(path: Path) -> Distrust | None:
    """Distrust a file of another user than this one or root."""
    state = path.stat()
    if not _is_foreign(state):
        return None
    why = f"{path} belongs to {user_name(state.st_uid)}"
    return Distrust(why, "Use a copy that belongs to you.")


def why_maybe_planted(path: Path) -> str:
    """Return how others could have put a file there, or empty.

    Links and sticky folders are never trusted. Raises `OSError`.
    """
    folder = path.absolute().parent.resolve()
    file = folder / path.name
    return _why_maybe_not_own(file) or _why_maybe_not_own(folder)


def _walk(path: Path) -> Iterator[Path]:
    folder = Path("/")
    yield folder
    remaining_names = list(reversed(path.absolute().parts[1:]))
    links = 0
    while remaining_names:
        name = remaining_names.pop()
        if name == "..":
            folder = folder.parent
            continue
        entry = folder / name
        yield entry
        if not entry.is_symlink():
            folder = entry
            continue
        links += 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = entry.readlink()
        if target.is_absolute():
            folder = Path("/")
        remaining_names.extend(part for part in reversed(target.parts) if part != "/")


def _distrust_if_replaceable(entry: Path) -> Distrust | None:
    """Distrust an entry that its owner may replace, as in /tmp."""
    state = entry.lstat()
    folder = entry.parent
    may_be_replaced = _is_foreign(state) and _is_open_to_others(folder.lstat())
    if not may_be_replaced:
        return None
    if _is_mount_point(entry) or _is_read_only(folder):
        return None
    return Distrust(
        f"{entry} belongs to {user_name(state.st_uid)}, in a directory that others can write to",
        "Use a copy in a directory that only you can write to.",
    )


def _distrust_if_open(entry: Path) -> Distrust | None:
    state = entry.lstat()
    is_folder = stat.S_ISDIR(state.st_mode)
    # A link's target is checked next.
    if not is_folder and not stat.S_ISREG(state.st_mode):
        return None
    if not _is_open_to_others(state) or _is_read_only(entry):
        return None
    if is_folder:
        # Others cannot replace this user's files.
        is_sticky = bool(state.st_mode & stat.S_ISVTX)
        # An emptyDir has mode 0777, but only the pod shares it.
        is_volume = _is_mount_point(entry) and not _is_foreign(state)
        if is_sticky or is_volume:
            return None
    return Distrust(_why_writable(entry, state), _how_to_close(entry, state))


def _why_writable(entry: Path, state: os.stat_result) -> str:
    mode = stat.S_IMODE(state.st_mode)
    return f"others can write to {_directory_prefix(state)}{entry} (mode {mode:04o})"


def _how_to_close(entry: Path, state: os.stat_result) -> str:
    group = "g" if _is_open_to_group(state) else ""
    others = "o" if state.st_mode & stat.S_IWOTH else ""
    command = f"chmod {group}{others}-w {shell_word(str(entry))}"
    may_change_mode = os.geteuid() in (state.st_uid, ROOT)
    if may_change_mode:
        return f"Run: {command}"
    owner = user_name(state.st_uid)
    return f"Use a copy in a directory that only you can write to, or have {owner} run: {command}"


def _why_maybe_not_own(path: Path) -> str:
    state = path.lstat()
    if _is_foreign(state):
        return f"{_directory_prefix(state)}{path} belongs to {user_name(state.st_uid)}"
    if stat.S_ISLNK(state.st_mode):
        return f"{path} is a link"
    if _is_open_to_others(state):
        return _why_writable(path, state)
    return ""


def _directory_prefix(state: os.stat_result) -> str:
    return "the directory " if stat.S_ISDIR(state.st_mode) else ""


def _is_foreign(state: os.stat_result) -> bool:
    return state.st_uid not in (os.geteuid(), ROOT)


def _is_open_to_others(state: os.stat_result) -> bool:
    return bool(state.st_mode & stat.S_IWOTH) or _is_open_to_group(state)


def _is_open_to_group(state: os.stat_result) -> bool:
    return bool(state.st_mode & stat.S_IWGRP) and not _is_own_group(state)


def _is_own_group(state: os.stat_result) -> bool:
    group = state.st_gid
    if group == ROOT:
        return True
    return _is_private_group(group, os.geteuid()) or _is_private_group(group, state.st_uid)


def _is_private_group(gid: int, uid: int) -> bool:
    """Whether it is the primary group, of the user's name, without others."""
    try:
        user = pwd.getpwuid(uid)
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    is_primary = user.pw_gid == gid and group.gr_name == user.pw_name
    has_other_members = bool(set(group.gr_mem) - {user.pw_name})
    return is_primary and not has_other_members


def _is_mount_point(entry: Path) -> bool:
    return entry.lstat().st_dev != entry.parent.lstat().st_dev


def _is_read_only(path: Path) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
