"""Settings from a file: any flag, by its name, for all commands or in a table for one.

    max-unavailable = "25%"      # for every command that has the flag
    [apply]
    yes = true                   # for apply alone
    [[pool]]                     # nodes with rules of their own: see `options.pools`

The file is the lowest layer: the environment goes before it, flags go before both. A key that no command knows
is an error, not a silent default. A file that nobody named may only tune: see `settings.reserved`.
"""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import typer

from rollout.cli.settings.file import SettingsFile, file_here, named_file
from rollout.cli.settings.reserved import HIDDEN, REREAD, refuse_reserved
from rollout.cli.terminal import say
from rollout.errors import UsageError

# Of a command's context: the file that its defaults come from.
SETTINGS_FILE = "rollout.settings-file"
# Likewise: what stands in it, as it is written.
SETTINGS_TEXT = "rollout.settings-text"
# Likewise: its [[pool]] tables, for the commands that know pools.
POOL_KEY, POOL_TABLES = "pool", "rollout.pools"
_NOT_IN_FILES = frozenset({"config", "help", "version"})


def load_defaults(context: typer.Context, value: Path | None) -> Path | None:
    """Make the file's settings the defaults of the command that is being parsed."""
    if context.resilient_parsing:
        return value
    file = named_file(value) if value else file_here()
    if file is None:
        return value
    origin = str(file.path)
    flags = _without_pools(file.settings)
    defaults = _settings_of(_table_of(context), flags, context, origin)
    if not file.named:
        # what a pool may have of its own tunes
        refuse_reserved(flags, origin)
    if REREAD not in context.meta:
        _tell(file, by_flag=_is_given_by_flag(context))
    context.meta[SETTINGS_FILE] = origin
    context.meta[SETTINGS_TEXT] = file.text
    context.meta[POOL_TABLES] = file.settings.get(POOL_KEY, [])
    context.default_map = defaults
    return file.path


def settings_of_other(command: str, context: typer.Context) -> dict[str, Any]:
    """What the file that this command was given says for another one: as `settings_for`; empty without a file."""
    settings = tomllib.loads(context.meta.get(SETTINGS_TEXT, ""))
    return _settings_of(command, _without_pools(settings), context, context.meta.get(SETTINGS_FILE, ""))


def _settings_of(command: str, flags: Mapping[str, Any], context: typer.Context, origin: str) -> dict[str, Any]:
    return settings_for(command, flags, _flags_by_command(context), origin=origin)


def _without_pools(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: value for key, value in settings.items() if key != POOL_KEY}


def _tell(file: SettingsFile, *, by_flag: bool) -> None:
    """Which file counts, but to whoever has just written its name."""
    if not by_flag:
        say(f"settings: {file.path.absolute()}")
    if file.warning:
        say(f"warning: {file.warning}")


def _is_given_by_flag(context: typer.Context) -> bool:
    source = context.get_parameter_source("config")
    return source is not None and source.name == "COMMANDLINE"


def settings_for(
    command: str, settings: Mapping[str, Any], flags: Mapping[str, Mapping[str, Any]], *, origin: str
) -> dict[str, Any]:
    """Defaults of one command: the file's top level, then its table, each checked and in the shape its flag takes.

    `flags` holds, for every command, its flags by the key they have in the file.
    """
    tables = {key: value for key, value in settings.items() if isinstance(value, dict)}
    general = by_key({key: value for key, value in settings.items() if key not in tables}, origin)
    _refuse_unknown(tables, flags, origin, "table")
    _refuse_unknown(general, {flag for allowed in flags.values() for flag in allowed}, origin, "setting")
    by_command = {name: by_key(table, f"{origin} [{name}]") for name, table in tables.items()}
    for name, table in by_command.items():
        _refuse_unknown(table, flags[name], f"{origin} [{name}]", "setting")
    own = by_command.get(command, {})
    allowed = flags.get(command, {})
    merged = {**{key: value for key, value in general.items() if key in allowed}, **own}
    return {allowed[key].name: _shaped(key, value, allowed[key], origin) for key, value in merged.items()}


def by_key(written: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """The settings by their keys, which may be written with - or with _; one that is written both ways is refused."""
    names: dict[str, str] = {}
    for name in written:
        if (key := name.replace("_", "-")) in names:
            raise UsageError(f"{origin}: {names[key]} and {name} are the same setting", hint="Keep one of them.")
        names[key] = name
    return {key: written[name] for key, name in names.items()}


def _refuse_unknown(keys: Iterable[str], allowed: Iterable[str], origin: str, noun: str) -> None:
    names = sorted(allowed)
    for name in keys:
        if name not in names:
            close = difflib.get_close_matches(name, [*names, POOL_KEY], n=1)
            meant = "[[pool]]" if close == [POOL_KEY] else "".join(close)
            hint = f"Did you mean {meant}?" if close else "Settings have the names of flags; see --help."
            raise UsageError(f"{origin}: unknown {noun} {name!r}", hint=hint)


def _shaped(key: str, value: Any, flag: Any, origin: str) -> Any:
    """The value as the command line would have given it, so that one parser judges all layers."""
    if flag.is_flag or (flag.count and not isinstance(value, str | list)):
        if isinstance(value, bool) or (flag.count and isinstance(value, int)):
            return value
        raise UsageError(
            f"{origin}: {key} = {value!r} is neither true nor false", hint="Write true or false, without quotes."
        )
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str | int | float) and not isinstance(item, bool) for item in values):
        written = "what is written" if key in HIDDEN else f"{key} = {value!r}"
        raise UsageError(f"{origin}: {written} cannot be a value of --{key}")
    if flag.multiple:
        return [str(item) for item in values]
    if isinstance(value, list):
        raise UsageError(f"{origin}: {key} takes one value, not a list")
    return str(value)


def _table_of(context: typer.Context) -> str:
    """The word of a command below the program; those of a group share its table."""
    inner: Any = context
    while inner.parent is not None and inner.parent.parent is not None:
        inner = inner.parent
    return inner.info_name or ""


def _flags_by_command(context: typer.Context) -> Mapping[str, Mapping[str, Any]]:
    """Flags of every command that takes settings, by command and key; those of a group's commands together."""
    root = context.find_root()
    commands = getattr(root.command, "commands", None) or {root.info_name or "": root.command}
    return {name: flags for name, command in commands.items() if (flags := _flags_of_all(command))}


def _flags_of_all(command: Any) -> Mapping[str, Any]:
    """Of a command, or of those of a group."""
    members = getattr(command, "commands", {"": command}).values()
    return {key: flag for member in members if _takes_settings(member) for key, flag in _flags(member).items()}


def _takes_settings(command: Any) -> bool:
    return any(option.name == "config" for option in command.params)


def _flags(command: Any) -> Mapping[str, Any]:
    options = (option for option in command.params if option.param_type_name == "option")
    return {key: option for option in options if (key := key_of(option)) not in _NOT_IN_FILES}


def key_of(option: Any) -> str:
    """The name of an option in a settings file: that of its flag."""
    return next((str(name[2:]) for name in option.opts if name.startswith("--")), str(option.name))
