"""Files that a command writes: whole or not at all."""

import os
import tempfile
from pathlib import Path

from rollout.errors import InputError

_READABLE_BY_ALL = 0o644


def check_target(path: Path | None) -> None:
    """`InputError` where a file cannot be written there; asked before the work that would be lost."""
    if path is None:
        return
    if path.is_dir():
        raise InputError(f"{path} is a directory", hint="Name a file in it.")
    if not path.absolute().parent.is_dir():
        raise InputError(f"there is no directory {path.absolute().parent}", hint="Make it first.")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that nobody ever sees half of it: beside it first, then in its place."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(_READABLE_BY_ALL)
        Path(temporary).replace(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error
