import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from rollout.cli.options import argument, option
from rollout.cli.settings.reading import (
    CommandSettings,
    PlacedValue,
    SettingsFile,
    SettingValues,
    assignments,
    from_environment,
    merge_settings,
    read_file,
)
from rollout.cli.settings.schema import OutputFormat
from rollout.cli.settings.schema import settings as every_setting
from rollout.cli.settings.setting import Setting
from rollout.cli.settings.values import NODE_PREFIXES, default_text
from rollout.cli.suggestions import node_names
from rollout.errors import UsageError
from rollout.model.text import is_object_name

_PANELS = {
    **dict.fromkeys(("cluster", "nodes"), "Nodes"),
    **dict.fromkeys(("waves", "drain", "reboot", "gates", "evidence"), "Rules"),
    "ssh": "SSH",
    "output": "Output and settings",
}
NODE_ARGUMENTS = argument(None, "Select only these nodes, as with --node.", "NODE", node_names)
PLAN_OR_NODES = argument(
    None,
    "Saved plan (from rollout plan --out), or nodes to select.",
    "FILE|NODE",
    node_names,
)
_PLAN_SUFFIXES = (".plan", ".json")
YES = option(False, "Do not ask for confirmation", "", "--yes", "-y")
_OUTPUT: Mapping[str, Any] = {"show_envvar": False, "rich_help_panel": _PANELS["output"]}
_CONFIG = option(
    None, "Settings file (TOML)", "FILE", "--config", "-c", envvar="ROLLOUT_CONFIG", **_OUTPUT
)
_SET = option(None, "Set any setting by its key; repeatable", "KEY=VALUE", "--set", **_OUTPUT)
_FORMAT = "output.format"
_VERBOSE = "output.verbose"
_ONE_DOCUMENT = tuple(word for word in OutputFormat if word is not OutputFormat.NAME)
_TEXT = (OutputFormat.TEXT, OutputFormat.WIDE)
DOCUMENT = (OutputFormat.JSON, OutputFormat.YAML)
"""Formats of a command that has no plain text output."""
LINES = (*_TEXT, OutputFormat.JSON)
"""Formats of a command that prints a line of JSON for each event."""
NODES = tuple(OutputFormat)
"""Formats of a command that shows nodes."""


def takes(
    *names: str,
    of_another: bool = False,
    formats: Sequence[OutputFormat] = _ONE_DOCUMENT,
    arguments: Any = None,
    reads: Sequence[str] = (),
    helps: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the flags of these tables or settings, and of `output`.

    of_another: The settings file is for another process, so it is not read.
    arguments: With PLAN_OR_NODES, a saved plan becomes the command's `file`.
    reads: Settings whose variables are read only to warn that they have no effect.
    helps, defaults: By setting, texts that differ for this command.
    """
    setting_by_parameter = _shared_settings(names)
    with_variables = [*setting_by_parameter.values(), *(every_setting()[name] for name in reads)]
    takes_plan = arguments is PLAN_OR_NODES
    positional = []
    if arguments is not None:
        positional.append(_parameter("nodes_or_file", list[str] | None, arguments))
    help_by_setting = {
        setting.name: _flag_help(setting, formats, helps or {}, defaults or {})
        for setting in setting_by_parameter.values()
    }
    shared_parameters = list(_shared_parameters(setting_by_parameter, help_by_setting, formats))

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def read_settings_and_run(**received: Any) -> None:
            from rollout.cli.log import log_command

            nodes = received.pop("nodes_or_file", None) or ()
            if takes_plan:
                received["file"], nodes = split_off_plan(nodes)
            settings = _pop_settings(
                received, setting_by_parameter, with_variables, nodes, of_another=of_another
            )
            _check_format(settings, formats)
            with log_command(command.__name__.replace("_", "-"), settings.output.verbose):
                command(settings=settings, **received)

        own_parameters = _own_parameters(command, takes_plan=takes_plan)
        _set_signature(read_settings_and_run, [*positional, *own_parameters, *shared_parameters])
        return read_settings_and_run

    return decorate


def _pop_settings(
    received: dict[str, Any],
    setting_by_parameter: Mapping[str, Setting],
    with_variables: Sequence[Setting],
    nodes: Sequence[str],
    *,
    of_another: bool,
) -> CommandSettings:
    """Only the settings `with_variables` can be set in the environment."""
    config = received.pop("config")
    file = SettingsFile(str(config or "")) if of_another else read_file(config)
    set_values = assignments(received.pop("set_") or ())
    flag_values = {setting: received.pop(name) for name, setting in setting_by_parameter.items()}
    variables = from_environment(os.environ, with_variables)
    return merge_settings(file, variables, _merge_typed_settings(flag_values, set_values, nodes))


def _shared_parameters(
    setting_by_parameter: Mapping[str, Setting],
    help_by_setting: Mapping[str, str],
    formats: Sequence[OutputFormat],
) -> Iterator[inspect.Parameter]:
    for name, setting in setting_by_parameter.items():
        words = formats if setting.name == _FORMAT else setting.words
        yield _parameter(name, _annotation(setting, help_by_setting[setting.name], words))
    yield _parameter("config", Path | None, _CONFIG)
    yield _parameter("set_", list[str] | None, _SET)


def _set_signature(command: Any, parameters: Sequence[inspect.Parameter]) -> None:
    command.__signature__ = inspect.Signature(parameters)
    command.__annotations__ = {item.name: item.annotation for item in parameters}


def _shared_settings(names: Sequence[str]) -> Mapping[str, Setting]:
    """Return settings by parameter, such as `drain_timeout`. Names are of settings or tables."""
    setting_by_parameter = {}
    for name in (*names, "output"):
        for item in every_setting().values():
            table, _, _ = item.name.partition(".")
            if item.flag and name in (item.name, table):
                setting_by_parameter[item.flag.replace("-", "_")] = item
    return setting_by_parameter


def _own_parameters(command: Callable[..., None], *, takes_plan: bool) -> list[inspect.Parameter]:
    hints = get_type_hints(command)
    filled_by_takes = {"settings", "file"} if takes_plan else {"settings"}
    own = []
    for name, item in inspect.signature(command).parameters.items():
        if name in filled_by_takes:
            continue
        if hints[name] is bool and not item.default.param_decls:
            # Otherwise typer adds a `--no-` flag.
            item.default.param_decls = (f"--{name.replace('_', '-')}",)
        own.append(_parameter(name, hints[name], item.default))
    return own


def _merge_typed_settings(
    flag_values: Mapping[Setting, Any], set_values: SettingValues, node_arguments: Sequence[str]
) -> SettingValues:
    """NODE arguments add to --node; flags override --set."""
    flags = {
        item.name: PlacedValue(value, f"--{item.flag}")
        for item, value in flag_values.items()
        # The flag was not typed.
        if value not in (None, [])
    }
    if node_arguments:
        nodes_by_flag = flags["nodes.node"].value if "nodes.node" in flags else []
        flags["nodes.node"] = PlacedValue([*nodes_by_flag, *node_arguments], "--node")
    typed = dict(flags)
    for name, item in set_values.items():
        typed.setdefault(name, item)
    return typed


def _check_format(settings: CommandSettings, formats: Sequence[OutputFormat]) -> None:
    chosen = settings.output.format
    if chosen in formats:
        return
    # A settings file may choose text for the commands that print text.
    is_for_other_commands = chosen in _TEXT and _FORMAT not in settings.typed
    if not is_for_other_commands:
        raise UsageError(
            f"-o {chosen} is not available for this command",
            hint=f"Use -o with {', '.join(formats)}.",
        )


def split_off_plan(words: Sequence[str]) -> tuple[Path | None, Sequence[str]]:
    """Return the saved plan if it is the only word, or else the nodes.

    A word is a plan if the file exists, or if no node can have the name.
    """
    if len(words) != 1:
        return None, words
    [word] = words
    file = Path(word)
    is_plan = file.is_file() or not _may_be_nodes(word)
    return (file, ()) if is_plan else (None, words)


def _may_be_nodes(word: str) -> bool:
    if word.endswith(_PLAN_SUFFIXES):
        return False
    return all(name.startswith(NODE_PREFIXES) or is_object_name(name) for name in word.split(","))


def _parameter(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _flag_help(
    setting: Setting,
    formats: Sequence[OutputFormat],
    helps: Mapping[str, str],
    defaults: Mapping[str, str],
) -> str:
    text = helps.get(setting.name, setting.help)
    default = default_text(setting.default)
    # The flag itself shows its default.
    if setting.kind is bool or setting.name == _VERBOSE:
        default = ""
    if setting.name == _FORMAT:
        text = f"Output format: {_either(formats)}"
        default = formats[0] if len(formats) > 1 else ""
    if setting.name in defaults:
        return f"{text}; default: {defaults[setting.name]}"
    return f"{text} [{default}]" if default else text


def _either(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def _annotation(setting: Setting, text: str, words: Sequence[str]) -> Any:
    # `-vv` counts 2.
    is_counter = setting.name == _VERBOSE
    names = [f"--{setting.flag}"]
    if setting.default is True:
        names = [f"--{setting.flag}/--no-{setting.flag}"]
    if setting.short:
        names.append(setting.short)
    option = typer.Option(
        *names,
        metavar=setting.metavar or None,
        count=is_counter,
        autocompletion=_completer(setting, words),
        help=text,
        rich_help_panel=_PANELS.get(setting.name.partition(".")[0]),
    )
    kind: Any = list[str] if setting.is_list else str
    if is_counter:
        kind = int
    elif setting.kind is bool:
        kind = bool
    return Annotated[kind | None, option]


def _completer(setting: Setting, words: Sequence[str]) -> Callable[..., list[str]] | None:
    if setting.name in ("nodes.node", "nodes.exclude"):
        return node_names
    if not words:
        return None
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]
