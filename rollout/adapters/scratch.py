"""Folders for temporary files; where there is none, as on a read-only root, it is said what it was for."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rollout.errors import InputError


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
