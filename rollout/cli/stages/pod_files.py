"""Files that a pod's settings name: they go along in its ConfigMap, and the pod's arguments say where it has them."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rollout.errors import InputError
from rollout.manifests.installation import CarriedFile

# What Ansible looks for beside an inventory or a playbook.
_BESIDE = frozenset(
    {
        *("group_vars", "host_vars", "roles", "tasks", "handlers", "files", "templates", "vars"),
        *("library", "filter_plugins", "lookup_plugins"),
    }
)
_WITH_OTHERS = ("ssh.inventory", "reboot.pre-playbook", "reboot.post-playbook")
_CARRIED = frozenset({*_WITH_OTHERS, "ssh.config", "gates.calendar"})
# They mean the same in the pod.
_NO_FILE = ("none", os.devnull)
_PASSED_OVER = re.compile(r"\..*|.*~|__pycache__")


def carried_files(written: Mapping[str, Any], origin: str) -> tuple[Mapping[str, str], tuple[CarriedFile, ...]]:
    """By setting where each file or folder that the settings name is to be found, and all files; paths are relative.

    Those that stand in one folder here do so in the pod: playbooks share their roles.
    """
    roots: dict[Path, str] = {}
    places: dict[str, str] = {}
    files: dict[str, CarriedFile] = {}
    for name in sorted(_CARRIED & written.keys()):
        named, key = Path(str(written[name])).expanduser(), name.replace(".", "-")
        if str(named) in _NO_FILE:
            continue
        if not (named.is_file() or named.is_dir()):
            raise InputError(
                f"{origin}: {name} = {str(named)!r} is no file or folder of this machine",
                hint="It goes along in the pod's ConfigMap; relative paths count from the current folder.",
            )
        folder = named if named.is_dir() else named.parent
        root = roots.setdefault(folder.resolve(), key)
        places[name] = root if named.is_dir() else f"{root}/{named.name}"
        for path in (folder,) if named.is_dir() else (named, *_beside(named, name)):
            for file in _files_in(path):
                place = f"{root}/{file.relative_to(folder)}"
                files[place] = CarriedFile(place, _text(file), str(file), is_program=os.access(file, os.X_OK))
    _refuse_alike(files.values())
    return places, tuple(files.values())


def _beside(named: Path, name: str) -> Iterator[Path]:
    """What Ansible reads with it: its known folders, and the files of this folder that it names."""
    text = _text(named) if name in _WITH_OTHERS else ""
    for other in _inner(named.parent) if text else ():
        if other.name in _BESIDE if other.is_dir() else other.name in text:
            yield other


def _files_in(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    for inner in _inner(path) if path.is_dir() else ():
        yield from _files_in(inner)


def _inner(folder: Path) -> Iterable[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not _PASSED_OVER.fullmatch(path.name))
    except OSError as error:
        raise InputError(f"cannot read {folder}: {error.strerror}") from error


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {file}: {getattr(error, 'strerror', None) or 'it is no text'}") from error


def _refuse_alike(files: Iterable[CarriedFile]) -> None:
    """Keys have no slashes, and few characters."""
    of_key: dict[str, CarriedFile] = {}
    for file in files:
        if (other := of_key.setdefault(file.key, file)) is not file:
            raise InputError(
                f"{other.origin} and {file.origin} would both be the key {file.key} of a ConfigMap",
                hint="Rename one of the two.",
            )
