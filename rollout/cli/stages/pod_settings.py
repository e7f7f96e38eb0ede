"""The settings that a pod is given, and the files they name, judged as the command that runs there will judge them.

This machine's environment does not count, for it is not the pod's; and a file that only this machine has is refused.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rollout.cli.settings.reading import SettingsFile, given
from rollout.cli.settings.rules import policy_of, server_policy
from rollout.cli.settings.schema import Settings, settings
from rollout.errors import InputError, UsageError
from rollout.manifests.installation import CarriedFile
from rollout.model.policy import Policy

_THIS_MACHINES = {
    "cluster.kubeconfig": "the pod has its own account",
    "cluster.context": "the pod has its own account",
    "gates.interactive": "no operator is there to be asked",
    "notify.file": "its URLs are secret: give a Secret the key ROLLOUT_NOTIFY, and name it with --env-secret",
}
_WRITABLE = Path("/tmp")  # noqa: S108 - the pod's own volume
_WRITTEN = frozenset({"output.journal", "output.log-file", "metrics.textfile"})
# also within a table that stands in one line
# Whoever has one can act by it, whatever it looks like.
_SECRETS = frozenset({"url"})
_NAME = re.compile(r"([\w-]+)['\"]?\s*=")
_SECRET = re.compile(
    r"://[^/\s@]*:[^/\s]+@|-----BEGIN|\bbearer\s+\S|(token|passw(or)?d|passphrase|secret|api[-_]?key)\w*['\"]?\s*[=:]\s*\S",
    re.IGNORECASE,
)

# In Ansible's files: a value that comes from somewhere else, or is encrypted.
_ELSEWHERE = re.compile(r"\{\{|!vault")
# What YAML does not hold, or reads as a line's end: kubectl, kustomize and Helm refuse it, or change it silently.
_UNCARRIED = re.compile(r"[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|\r(?!\n)")


# What Ansible looks for beside an inventory or a playbook.
_BESIDE = frozenset(
    {
        *("group_vars", "host_vars", "roles", "tasks", "handlers", "files", "templates", "vars"),
        *("library", "filter_plugins", "lookup_plugins"),
    }
)
_WITH_OTHERS = ("ssh.inventory", "reboot.pre-playbook", "reboot.post-playbook")
_CARRIED = frozenset({*_WITH_OTHERS, "ssh.config", "gates.calendar", "evidence.allowed-signers"})
# They mean the same in the pod.
_NO_FILE = ("none", os.devnull)
_PASSED_OVER = re.compile(r"\..*|.*~|__pycache__")


@dataclass(frozen=True, slots=True)
class PodSettings:
    """The file's text, empty without one, and what the pod makes of it; `origin` is the file's name.

    `written` is what the file itself says, by dotted names.
    """

    origin: str
    text: str
    written: Mapping[str, Any]
    settings: Settings
    policy: Policy


def read_pod_settings(file: SettingsFile, *, serves: bool) -> PodSettings:
    """Return the settings file as a pod reads it; `UsageError` for what cannot be, or cannot work in a pod."""
    secrets = (item for item in settings().values() if item.is_secret)
    refuse_secrets(file.text, file.name, {item.name.rpartition(".")[2]: item.variable for item in secrets})
    written = {
        f"{table}.{key}": value
        for table, content in file.document.items()
        if isinstance(content, Mapping)
        for key, value in content.items()
    }
    _refuse(_unfit(written), file.name)
    read = given(file)
    policy = server_policy(read) if serves else policy_of(read)
    return PodSettings(file.name, file.text, written, read, policy)


def _unfit(written: Mapping[str, Any]) -> Iterator[str]:
    """Yield what means something on this machine alone, or is written where the pod's root is read-only."""
    for name, value in written.items():
        if name in _THIS_MACHINES:
            yield f"{name} ({_THIS_MACHINES[name]})"
        elif name in _WRITTEN and not Path(value).is_relative_to(_WRITABLE):
            yield f"{name} (the pod can write in {_WRITABLE} alone)"


def _refuse(unfit: Iterator[str], origin: str) -> None:
    if reasons := ", ".join(unfit):
        raise UsageError(
            f"{origin} cannot be a pod's settings: {reasons}",
            hint="Leave it out: have a file for the cluster.",
        )


def refuse_uncarried(text: str, origin: object) -> None:
    """`InputError` where a ConfigMap would not have a file byte for byte."""
    if uncarried := _UNCARRIED.search(text):
        before = text[: uncarried.start()]
        line, column = before.count("\n") + 1, uncarried.start() - before.rfind("\n")
        raise InputError(
            f"{origin}:{line}:{column} has the character U+{ord(uncarried[0]):04X}, which the manifests cannot carry",
            hint="Remove it: an editor may not show it.",
        )


def refuse_secrets(text: str, origin: str, variables: Mapping[str, str] = MappingProxyType({})) -> None:
    """Everybody who may read the ConfigMap would read them, in whatever table or comment they stand.

    `variables` are those of the settings that may stand in this text, by key; a list's lines are of the key above.
    """
    variable = ""
    for number, line in enumerate(text.splitlines(), 1):
        names = _NAME.findall(line)
        variable = next((variables.get(name, "") for name in reversed(names)), variable)
        if _SECRET.search(line) or any(name in _SECRETS for name in names):
            if not variables and _ELSEWHERE.search(line):
                continue
            what = f"give a Secret the key {variable}" if variable else "put it into a Secret as a variable"
            read = "" if variables else ", and read it with lookup('env', …)"
            raise UsageError(
                f"{origin}:{number} may hold a secret, and would stand in a ConfigMap",
                hint=f"Leave it out: {what}, name that Secret with --env-secret{read}.",
            )


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
    """Yield what Ansible reads with it: its known folders, and the files of this folder that it names."""
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
