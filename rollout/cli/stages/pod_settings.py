"""The settings that a pod is given: the operator's file, judged as the command that runs there will judge it.

This machine's environment does not count, for it is not the pod's; and a file that only this machine has is refused.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import typer

from rollout.cli.options import pools
from rollout.cli.options.flattening import group
from rollout.cli.options.gates import GateOptions
from rollout.cli.options.policy import PolicyOptions
from rollout.cli.settings.defaults import SETTINGS_FILE, SETTINGS_TEXT, settings_of_other
from rollout.cli.settings.reserved import HIDDEN, SECRETS
from rollout.cli.stages.pod_files import CARRIED
from rollout.errors import InputError, UsageError
from rollout.model.policy import Policy

_THIS_MACHINES = {
    "kubeconfig": "the pod has its own account",
    "context": "the pod has its own account",
    "interactive": "no operator is there to be asked",
    "notify_file": "its URLs are secret: give a Secret the key ROLLOUT_NOTIFY, and name it with --env-secret",
}
_WRITABLE = Path("/tmp")  # noqa: S108 - the pod's own volume
_WRITTEN = frozenset({"journal", "log_file", "metrics_textfile"})
# What the pod has from its Secret and its ConfigMap, whatever the file says.
_OWN = CARRIED | frozenset({"ssh_key", "known_hosts", "tls_cert", "tls_key"})
# also within a table that stands in one line
_NAME = re.compile(r"([\w-]+)['\"]?\s*=")
_SECRET = re.compile(
    r"://[^/\s@]*:[^/\s]+@|-----BEGIN|\bbearer\s+\S|(token|passw(or)?d|passphrase|secret|api[-_]?key)\w*['\"]?\s*[=:]\s*\S",
    re.IGNORECASE,
)

# In Ansible's files: a value that comes from somewhere else, or is encrypted.
_ELSEWHERE = re.compile(r"\{\{|!vault")
# What YAML does not hold, or reads as a line's end: kubectl, kustomize and Helm refuse it, or change it silently.
_UNCARRIED = re.compile(r"[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|\r(?!\n)")


@dataclass(frozen=True, slots=True)
class PodSettings:
    """The file's text, empty without one, and what the pod's command makes of it; `origin` is the file's name.

    `written` is what the file itself says to that command.
    """

    origin: str
    text: str
    written: Mapping[str, Any]
    values: Mapping[str, Any]
    policy: Policy


def read_pod_settings(context: typer.Context, command: str) -> PodSettings:
    """The settings file as that command reads it; `UsageError` for what cannot be, or cannot work in a pod."""
    origin, text = context.meta.get(SETTINGS_FILE, ""), context.meta.get(SETTINGS_TEXT, "")
    written = settings_of_other(command, context)
    variables = {_key(name): variable for name, variable in _variables(context, command).items()}
    refuse_secrets(text, origin, variables)
    _refuse(_unfit(written), origin)
    values = _values(context, command, written, origin)
    policy = group(GateOptions, values).added_to(group(PolicyOptions, values).with_pools(pools.given(context)))
    return PodSettings(origin, text, written, values, policy)


def _command(context: typer.Context, name: str) -> Any:
    """A command of the program by its name; of a group its first one."""
    assert context.parent is not None  # noqa: S101 - commands stand below the program
    command = getattr(context.parent.command, "commands")[name]  # noqa: B009 - unknown to typer's types
    return next(iter(getattr(command, "commands", {name: command}).values()))


def _variables(context: typer.Context, name: str) -> Mapping[str, str]:
    return {option.name: str(option.envvar) for option in _command(context, name).params if option.envvar}


def _values(context: typer.Context, name: str, written: Mapping[str, Any], origin: str) -> Mapping[str, Any]:
    """Every option of a command, parsed, by name: from the file, else its default."""
    command = _command(context, name)
    inner = type(context)(command, info_name=name, parent=context.parent)
    options = (option for option in command.params if option.name != "config")
    return {option.name: _value(option, inner, written, origin) for option in options}


def _value(option: Any, context: typer.Context, written: Mapping[str, Any], origin: str) -> Any:
    value = written.get(option.name, option.get_default(context))
    if option.name in _OWN:
        return value
    try:
        return option.process_value(context, value)
    except typer.BadParameter as error:
        # pydantic's words for a ValueError of ours
        reason, shown = (
            error.message.replace("Value error, ", ""),
            "" if _key(option.name) in HIDDEN else f" = {value!r}",
        )
        raise UsageError(f"{origin}: {_key(option.name)}{shown}: {reason}") from error


def _unfit(written: Mapping[str, Any]) -> Iterator[str]:
    """What means something on this machine alone, or is written where the pod's root is read-only."""
    for name, value in written.items():
        if name in _THIS_MACHINES:
            yield f"{_key(name)} ({_THIS_MACHINES[name]})"
        elif name in _WRITTEN and not Path(value).is_relative_to(_WRITABLE):
            yield f"{_key(name)} (the pod can write in {_WRITABLE} alone)"


def _refuse(unfit: Iterator[str], origin: str) -> None:
    if reasons := ", ".join(unfit):
        raise UsageError(
            f"{origin} cannot be a pod's settings: {reasons}",
            hint="Leave it out: have a file for the cluster, or move it into the table of another command.",
        )


def refuse_uncarried(text: str, origin: object, *, tab_first: bool = True) -> None:
    """`InputError` where a ConfigMap would not have a file byte for byte; kustomize fails at a tab as its first one."""
    uncarried = _UNCARRIED.search(text) if tab_first else _UNCARRIED.search(text) or re.match("\t", text)
    if uncarried is not None:
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
        variable = next((variables[name] for name in reversed(names) if name in variables), variable)
        if _SECRET.search(line) or any(name in SECRETS for name in names):
            if not variables and _ELSEWHERE.search(line):
                continue
            what = f"give a Secret the key {variable}" if variable else "put it into a Secret as a variable"
            read = "" if variables else ", and read it with lookup('env', …)"
            raise UsageError(
                f"{origin}:{number} may hold a secret, and would stand in a ConfigMap",
                hint=f"Leave it out: {what}, name that Secret with --env-secret{read}.",
            )


def _key(name: str) -> str:
    return name.replace("_", "-")
