"""Reads regular files of limited size that an operator names.

Pipes and devices could block an unattended pass. The null device and the shell's `<(command)` are
allowed.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from pathlib import Path
from typing import BinaryIO

from rollout.adapters.input_trust import (
    Distrust,
    DistrustError,
    distrust_entry_if_writable,
    distrust_if_foreign,
    distrust_if_writable,
)

LARGEST_INPUT = 16 << 20
_DESCRIPTOR_FOLDERS = ("/dev/fd/", "/proc/self/fd/")
_STDIN = "/dev/stdin"
_REFUSED_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# Do not wait for a pipe's writer.
_OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Trust(Enum):
    """Who may write a file."""

    ANYONE = auto()
    """For data: evidence, whose signature is verified, and journals."""
    NOT_WRITABLE_BY_OTHERS = auto()
    """For what makes rollout run or trust something. See `distrust_if_writable`."""
    OWNED = auto()
    """In addition owned by this user or root, as OpenSSH requires of ~/.ssh/config."""


def read_input(path: Path, *, most: int = LARGEST_INPUT, trust: Trust = Trust.ANYONE) -> bytes:
    """Return the content, or raise `OSError` with a `strerror`."""
    with open_input(path, trust=trust) as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most:,} bytes", str(path))
    return content


@contextmanager
def open_input(path: Path, *, trust: Trust = Trust.ANYONE) -> Iterator[BinaryIO]:
    """Check and open a file, or raise `OSError` with a `strerror`."""
    check_input(path, trust=trust)
    with os.fdopen(os.open(path, _OPEN_FLAGS), "rb") as stream:
        # Another file may have replaced it.
        _check_kind(path, os.fstat(stream.fileno()))
        os.set_blocking(stream.fileno(), True)
        yield stream


def check_input(path: Path, *, trust: Trust = Trust.ANYONE) -> None:
    """Raise `OSError` if no program should read the file."""
    _check_kind(path, path.stat())
    if _is_opened_by_shell(path) or trust is Trust.ANYONE:
        return
    _raise_if_distrusted(path, distrust_if_writable(path))
    if trust is Trust.OWNED:
        _raise_if_distrusted(path, distrust_if_foreign(path))


def check_tree(path: Path) -> None:
    """Raise `OSError` if others can write to the file, or in the folder."""
    pending = [path]
    checked = set[Path]()
    while pending:
        entry = pending.pop()
        is_folder = entry.is_dir()
        if not is_folder:
            check_input(entry)
        if not _is_opened_by_shell(entry):
            # Its folders are checked already, unless it is a link. Repeating that would be slow.
            is_in_checked_folder = entry != path and not entry.is_symlink()
            distrust_if = (
                distrust_entry_if_writable if is_in_checked_folder else distrust_if_writable
            )
            _raise_if_distrusted(entry, distrust_if(entry))
        if not is_folder:
            continue
        # Links may lead to a folder more than once.
        real_folder = entry.resolve()
        if real_folder not in checked:
            checked.add(real_folder)
            pending += [child for child in entry.iterdir() if _is_read_by_ansible(child)]


def _is_read_by_ansible(entry: Path) -> bool:
    # Editors leave broken links.
    return not entry.name.startswith(".") and entry.exists()


def _raise_if_distrusted(path: Path, distrust: Distrust | None) -> None:
    if distrust:
        raise DistrustError(path, distrust)


def _check_kind(path: Path, state: os.stat_result) -> None:
    kind = stat.S_IFMT(state.st_mode)
    is_shells_pipe = kind == stat.S_IFIFO and _is_opened_by_shell(path)
    if is_shells_pipe:
        return
    if kind in _REFUSED_KINDS and not _is_null_device(state):
        raise OSError(errno.EINVAL, f"it is {_REFUSED_KINDS[kind]}, not a regular file", str(path))
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))


def _is_null_device(state: os.stat_result) -> bool:
    return os.path.samestat(state, Path(os.devnull).stat())


def _is_opened_by_shell(path: Path) -> bool:
    return str(path).startswith(_DESCRIPTOR_FOLDERS) or str(path) == _STDIN
