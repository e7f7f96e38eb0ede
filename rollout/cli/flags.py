"""The settings of a command on its command line: their flags, `--config` and `--set`, made of the schema for typer."""

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer

from rollout.cli.settings.reading import Given, SettingsFile, Source, assignments, given, read_file, variables
from rollout.cli.settings.schema import settings
from rollout.cli.settings.values import Form, Setting, written
from rollout.errors import UsageError

T = TypeVar("T")
_ALWAYS = ("output",)
_PANELS = {
    **dict.fromkeys(("cluster", "nodes"), "Nodes"),
    **dict.fromkeys(("waves", "drain", "reboot", "gates", "evidence"), "Rules"),
    "ssh": "SSH",
    "output": "Output and settings",
}
_CONTEXT, _CONFIG, _SET = "context_", "config", "set_"


def option(default: T, help: str, metavar: str = "", *names: str, **how: Any) -> T:  # noqa: A002 - as typer has it
    """Declare an option of one command: by its parameter's name, unless it has others; `how` is typer's."""
    declared: T = typer.Option(default, *names, metavar=metavar or None, help=help, show_default=bool(default), **how)
    return declared


def argument(default: Any, help: str, metavar: str) -> Any:  # noqa: A002 - the same
    """Declare an argument of one command, which has to be given where its default is `...`."""
    return typer.Argument(default, metavar=metavar, help=help, show_default=default not in (..., None, ""))


YES = option(False, "Do not ask", "", "--yes", "-y")
_OUTPUT: Mapping[str, Any] = {"show_envvar": False, "rich_help_panel": _PANELS["output"]}
_FILE = option(None, "Settings, in TOML", "FILE", "--config", "-c", envvar="ROLLOUT_CONFIG", **_OUTPUT)
_KEYS = option(None, "Any setting, by its key", "KEY=VALUE", "--set", **_OUTPUT)
_FURTHER = {_CONFIG: (Path | None, _FILE), _SET: (list[str] | None, _KEYS)}


def takes(*names: str, of_another: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the flags of these tables, or settings; it is called with `settings`, and with its own values.

    The file that it names counts for itself, unless it is that `of_another` process.
    """

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command)
        own = [
            _parameter(name, hints[name], _named(item.default, name, hints[name]))
            for name, item in inspect.signature(command).parameters.items()
            if name != "settings"
        ]
        shared = {_parameter_name(setting): setting for setting in _chosen((*names, *_ALWAYS))}

        @functools.wraps(command)
        def run(**received: Any) -> None:
            from rollout.cli.log import logged

            context = received.pop(_CONTEXT)
            typed = {setting: received.pop(name) for name, setting in shared.items()}
            file = received.pop(_CONFIG)
            read = SettingsFile(str(file or "")) if of_another else read_file(file)
            settings_given = _given(context, typed, read, received.pop(_SET))
            output = settings_given.output
            with logged(str(context.info_name), output.verbose):
                command(settings=settings_given, **received)

        flags = [_parameter(name, _annotation(setting)) for name, setting in shared.items()]
        further = [_parameter(name, *declared) for name, declared in _FURTHER.items()]
        context = _parameter(_CONTEXT, typer.Context, inspect.Parameter.empty)
        parameters = [context, *own, *flags, *further]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {item.name: item.annotation for item in parameters}
        return run

    return decorated


def _named(declared: Any, name: str, kind: Any) -> Any:
    """Name a flag by its parameter, without the `--no-` that typer would give it."""
    if kind is bool and not declared.param_decls:
        declared.param_decls = (f"--{name.replace('_', '-')}",)
    return declared


def _chosen(names: Iterable[str]) -> list[Setting]:
    """Return settings with flags, of tables or by their names, each once."""
    every = [setting for setting in settings().values() if setting.flag]
    chosen = [item for name in names for item in every if name in (item.name, item.name.partition(".")[0])]
    return list(dict.fromkeys(chosen))


def _parameter(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _parameter_name(setting: Setting) -> str:
    return setting.flag.replace("-", "_")


def _annotation(setting: Setting) -> Any:
    """Return the flag for typer: texts, which the schema reads; nothing where it is not given."""
    counts = setting.name == "output.verbose"
    default = "" if counts or setting.is_flag else written(setting.default)
    option = typer.Option(
        f"--{setting.flag}/--no-{setting.flag}" if setting.default is True else f"--{setting.flag}",
        *([setting.short] if setting.short else []),
        envvar=setting.variable,
        show_envvar=False,
        metavar=setting.metavar or None,
        count=counts,
        autocompletion=_choices(setting),
        help=f"{setting.help} [{default}]" if default else setting.help,
        rich_help_panel=_PANELS.get(setting.name.partition(".")[0]),
    )
    kind: Any = int if counts else bool if setting.is_flag else list[str] if setting.is_list else str
    return Annotated[kind | None, option]


def _choices(setting: Setting) -> Callable[[str], list[str]] | None:
    """For a shell: the words that the setting takes, where they are fixed."""
    words = setting.choices
    return (lambda incomplete: [word for word in words if word.startswith(incomplete)]) if words else None


def _given(context: Any, received: Mapping[Setting, Any], file: SettingsFile, assigned: list[str] | None) -> Given:
    """Return what holds, by all layers: the file, the environment, `--set`, flags."""
    environment: dict[str, tuple[Any, str]] = {}
    typed: dict[str, tuple[Any, str]] = {}
    for setting, value in received.items():
        origin = getattr(context.get_parameter_source(_parameter_name(setting)), "name", "")
        if origin == "ENVIRONMENT":
            environment[setting.name] = os.environ[setting.variable], f"the variable {setting.variable}"
        elif origin == "COMMANDLINE":
            _refuse_empty(setting, value)
            typed[setting.name] = value, f"--{setting.flag}"
    said = assignments(assigned or ())
    words = _words(context, typed, file, assigned or ())
    return given(file, variables(os.environ), environment, said, typed, typed=(*said, *typed), words=words)


def _words(
    context: Any, typed: Source, file: SettingsFile, assigned: Iterable[str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what was typed of settings that another command takes, too; no secret, and nothing of how to print."""
    for name, (value, _) in typed.items():
        setting = settings()[name]
        if setting.is_flag:
            yield name, (f"--{'' if value else 'no-'}{setting.flag}",)
        elif name.partition(".")[0] not in _ALWAYS:
            values = value if isinstance(value, list) else [value]
            yield from ((name, (f"--{setting.flag}", str(item))) for item in values)
    for word in assigned:
        name = word.partition("=")[0].strip().replace("_", "-")
        if not settings()[name].hidden_in:
            yield name, ("--set", word)
    if file.name and getattr(context.get_parameter_source(_CONFIG), "name", "") == "COMMANDLINE":
        yield "", ("--config", file.name)


def _refuse_empty(setting: Setting, value: Any) -> None:
    """Refuse an empty value: it would mean that nothing was given: all nodes in place of one."""
    texts = [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
    if any(not text.replace(setting.form.between if setting.is_list else " ", " ").strip() for text in texts):
        raise UsageError(
            f"--{setting.flag} is empty, as a variable of a shell is that was not set",
            hint="Drop the flag, or give it a value.",
        )


class PlainValue:
    """Reads a parameter's text by its type: typer's own way loads pydantic, 0.15 s of each command."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value; `typer.BadParameter` names the parameter."""
        declared, kind = param.type_descriptor.parameter_info, param.type_descriptor.annotation
        kind = get_args(kind)[0] if get_origin(kind) is list else kind
        setting = Setting(kind, Form(read=declared.parser), least=declared.min, most=declared.max)
        try:
            if param.multiple or param.nargs == -1:
                return [setting.read(item) for item in value or ()]
            # a flag by its variable is read with the settings
            return setting.read(value) if isinstance(value, str) and kind is not bool else value
        except UsageError as error:
            raise typer.BadParameter(f"{error.message}. {error.hint}", ctx=ctx, param=param) from error
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from error
