"""Whose word a file is: who owns it, and who else may change it or put another in its place.

The rule is the one that OpenSSH has for its users' files: owner is the reader or root, and nobody else may write the
file or its folder. A sticky folder (/tmp) is one that others may write: the file in it may be theirs. A group counts as
nobody else where it is the reader's own, as on systems that give each user one (umask 002).
"""

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOT = 0
_MOST_LINKS = 40


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
