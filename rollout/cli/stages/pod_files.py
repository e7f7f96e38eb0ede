"""Files that a pod's settings name: they go along in its ConfigMap, and a variable says where the pod has them."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rollout.cli.options.declaration import variable_of
from rollout.errors import InputError
from rollout.manifests.installation import CarriedFile

# What Ansible looks for beside an inventory or a playbook.
_BESIDE = ("group_vars", "host_vars", "roles", "tasks", "handlers", "files", "templates", "vars")
_WITH_OTHERS = ("inventory", "pre_reboot_playbook", "post_reboot_playbook")
CARRIED = frozenset({*_WITH_OTHERS, "ssh_config", "notify_template"})
_NO_FILE = "none"
_PASSED_OVER = re.compile(r"\..*|.*~|__pycache__")


def carried_files(written: Mapping[str, Any], origin: str) -> tuple[Mapping[str, str], tuple[CarriedFile, ...]]:
    """By variable where each file or folder that the settings name is to be found, and all files; paths are relative.

    Those that stand in one folder here do so in the pod: playbooks share their roles.
    """
    roots: dict[Path, str] = {}
    places: dict[str, str] = {}
    files: dict[str, CarriedFile] = {}
    for name in sorted(CARRIED & written.keys()):
        named, key = Path(written[name]).expanduser(), name.replace("_", "-")
        if str(named) == _NO_FILE:
            continue
        if not named.exists():
            raise InputError(
                f"{origin}: {key} = {str(named)!r} is not on this machine: it goes into the pod's ConfigMap",
                hint="Name a file or folder that is here; relative paths count from the current folder.",
            )
        folder = named if named.is_dir() else named.parent
        root = roots.setdefault(folder.resolve(), key)
        places[variable_of(name)] = root if named.is_dir() else f"{root}/{named.name}"
        beside = _BESIDE if name in _WITH_OTHERS else ()
        for path in (folder,) if named.is_dir() else (named, *(folder / other for other in beside)):
            for file in _files_in(path):
                place = f"{root}/{file.relative_to(folder)}"
                files[place] = CarriedFile(place, _text(file), str(file), is_program=os.access(file, os.X_OK))
    _refuse_alike(files.values())
    return places, tuple(files.values())


def _files_in(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    for inner in sorted(path.iterdir()) if path.is_dir() else ():
        if not _PASSED_OVER.fullmatch(inner.name):
            yield from _files_in(inner)


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
