"""The settings that a pod is given, judged as the command that runs there will judge them.

This machine's environment and files do not count, for they are not the pod's.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rollout.cli.settings.reading import SettingsFile, given
from rollout.cli.settings.rules import policy_of, server_policy
from rollout.cli.settings.schema import Settings, settings
from rollout.errors import UsageError
from rollout.model.policy import Policy

_THIS_MACHINES = {
    "cluster.kubeconfig": "the pod has its own account",
    "cluster.context": "the pod has its own account",
    "gates.interactive": "no operator is there to be asked",
    "notify.url": "it is secret: give a Secret the key ROLLOUT_NOTIFY, and name it with --env-secret",
}
_WRITABLE = Path("/tmp")  # noqa: S108 - the pod's own volume
_WRITTEN = frozenset({"output.journal", "metrics.textfile"})
_SECRET = re.compile(
    r"://[^/\s@]*:[^/\s]+@|-----BEGIN|\bbearer\s+\S|(token|passw(or)?d|passphrase|secret|api[-_]?key)\w*['\"]?\s*[=:]\s*\S",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class PodSettings:
    """The file's text, empty without one, and what the pod makes of it."""

    text: str
    settings: Settings
    policy: Policy


def read_pod_settings(file: SettingsFile, *, serves: bool) -> PodSettings:
    """Return the settings file as a pod reads it; `UsageError` for what cannot be, or cannot work in a pod."""
    written = {
        f"{table}.{key}": value
        for table, content in file.document.items()
        if isinstance(content, Mapping)
        for key, value in content.items()
    }
    if reasons := ", ".join(_unfit(written)):
        raise UsageError(
            f"{file.name} cannot be a pod's settings: {reasons}", hint="Leave it out: have a file for the cluster."
        )
    _refuse_secrets(file)
    read = given(file)
    # a calendar is read by the pod, where it is
    rules = replace(read, gates=replace(read.gates, calendar=None))
    return PodSettings(file.text, read, server_policy(rules) if serves else policy_of(rules))


def _unfit(written: Mapping[str, Any]) -> Iterator[str]:
    """Yield what means something on this machine alone, or is written where the pod's root is read-only."""
    for name, value in written.items():
        if name in _THIS_MACHINES:
            yield f"{name} ({_THIS_MACHINES[name]})"
        elif name in _WRITTEN and not Path(value).is_relative_to(_WRITABLE):
            yield f"{name} (the pod can write in {_WRITABLE} alone)"
        elif name in settings() and settings()[name].kind is Path and name not in _WRITTEN and _is_here(value):
            yield f"{name} (name it by its path in the pod: have it in the image, or in a volume)"


def _is_here(value: Any) -> bool:
    """Whether this is a path from the folder that the command is run in; `none` is no file."""
    return isinstance(value, str) and value != "none" and not Path(value).is_absolute()


def _refuse_secrets(file: SettingsFile) -> None:
    """Everybody who may read the ConfigMap would read them, in whatever table or comment they stand."""
    for number, line in enumerate(file.text.splitlines(), 1):
        if _SECRET.search(line):
            raise UsageError(
                f"{file.name}:{number} may hold a secret, and would stand in a ConfigMap",
                hint="Leave it out: put it into a Secret as a variable, name that Secret with --env-secret.",
            )
