"""Plans that were saved on this machine by whoever runs them now: they have chosen their rules themselves."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from rollout.adapters.file_owners import current_reader, distrust
from rollout.adapters.journal import runs_directory

_OWNER_ONLY = 0o600
# A plan that was saved before these counts as another's: its rules are shown.
_LATEST = 500


def note_saved(document: bytes) -> None:
    """Remember a plan by its digest; where nothing can be written it counts as another's."""
    with suppress(OSError):
        path = _list()
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _OWNER_ONLY)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(f"{_digest(document)}\n".encode())


def is_own(document: bytes) -> bool:
    """Whether this very plan was saved here; a list that others may write says nothing."""
    with suppress(OSError):
        path = _list()
        return not distrust(path, current_reader()) and _digest(document) in path.read_text("ascii").split()[-_LATEST:]
    return False


def _digest(document: bytes) -> str:
    return hashlib.sha256(document).hexdigest()


def _list() -> Path:
    return runs_directory().parent / "saved-plans"
