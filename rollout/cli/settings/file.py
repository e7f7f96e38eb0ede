"""The settings file itself: named by the operator, or met in the current folder, and then nobody else's.

A file that is named is the operator's word, as with `ssh -F` or ANSIBLE_CONFIG. One that merely lies where somebody
stands is obeyed only where nobody else can have put it there.
"""

import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollout.adapters.file_owners import current_reader, distrust, is_writable_by_all
from rollout.errors import UsageError

DEFAULT_FILE = Path("rollout.toml")
_ANOTHER = "Name another file with --config."


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """A file with its content. `named`: by the operator, with --config or ROLLOUT_CONFIG. `warning` may be empty."""

    path: Path
    text: str
    settings: Mapping[str, Any]
    named: bool
    warning: str = ""


def named_file(path: Path) -> SettingsFile:
    """The file that the operator names; `UsageError` where it cannot be read."""
    try:
        warning = f"any user may write {path}, which --config names" if is_writable_by_all(path) else ""
        return _parsed(path.read_bytes(), path, named=True, warning=warning)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint=_ANOTHER) from error


def file_here() -> SettingsFile | None:
    """`rollout.toml` of the current folder, None without one; `UsageError` where it may be somebody else's."""
    try:
        content = _content(DEFAULT_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UsageError(f"cannot read {DEFAULT_FILE}: {error.strerror}", hint=_ANOTHER) from error
    return None if content is None else _parsed(content, DEFAULT_FILE, named=False)


def _content(path: Path) -> bytes | None:
    """What stands in a regular file, None for anything else; judged once it is open, so that it cannot be replaced."""
    try:
        if not path.is_file():
            return None
    except PermissionError:
        # whoever may not search the folder has put nothing there: `sudo -u` and `su` leave users in root's home
        return None
    with open(path, "rb", opener=_without_waiting) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            return None
        if reason := distrust(path, current_reader()):
            raise UsageError(
                f"{path} of the current folder is refused: {reason}",
                hint=f"To use it: --config {path}. To go on without it: --config /dev/null.",
            )
        if not os.path.samestat(path.stat(), os.fstat(stream.fileno())):
            raise UsageError(f"{path} is being replaced", hint="Try again.")
        return stream.read()


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; a pipe that is put in its place meanwhile is not waited for."""
    return os.open(path, flags | os.O_NONBLOCK)


def _parsed(content: bytes, path: Path, *, named: bool, warning: str = "") -> SettingsFile:
    try:
        # with the mark that some editors put first
        text = content.decode("utf-8-sig")
        return SettingsFile(path, text, tomllib.loads(text), named, warning)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} is not TOML: {error}", hint='Write it so, texts in quotes: drain-timeout = "10m"'
        ) from error
