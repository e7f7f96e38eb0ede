"""Typer options and commands.

Help is plain text, because typer's boxes cut long flags at 80 columns and are slow.
"""

from collections import UserDict
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeVar, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from rollout.cli.program import with_program_name
from rollout.cli.settings.setting import Setting, is_blank
from rollout.errors import UsageError
from rollout.model.quantity import LONGEST

T = TypeVar("T")
Suggestions = Callable[[typer.Context, str], list[str]]
_ARGUMENTS = "Arguments"
_OPTIONS = "Options"
# The values of flags given without one. Left to click, such a flag would take the next word.
_IMPLIED_VALUES = {"--dry-run": "--dry-run=server"}
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_MODULES = {
    "pause": "memory",
    "unpause": "memory",
    "rollback": "apply",
    "release": "memory",
    "hold": "memory",
    "evidence": "memory",
    "abort": "resume",
    "report": "history",
    "known-hosts": "inventory",
    "check-update": "inventory",
    "demo": "lab",
}


def option(default: T, help: str, metavar: str = "", *names: str, **others: Any) -> T:
    declared: T = typer.Option(
        default, *names, metavar=metavar or None, help=help, show_default=bool(default), **others
    )
    return declared


def argument(
    default: Any,
    help: str,
    metavar: str,
    suggest: Suggestions | None = None,
    parser: Callable[[str], str] | None = None,
) -> Any:
    has_default = default not in (..., None, "")
    return typer.Argument(
        default,
        metavar=metavar,
        help=help,
        show_default=has_default,
        autocompletion=suggest,
        parser=parser,
    )


class PlainValue:
    """typer's reader would load pydantic (0.15 s)."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        setting = _setting_of(param.type_descriptor)
        is_list = param.multiple or param.nargs == -1
        items = (value or ()) if is_list else [value]
        # Defaults have their type already.
        texts = [item for item in items if isinstance(item, str)]
        is_typed = value != param.default
        if is_typed and any(is_blank(text) for text in texts):
            # An empty --node would select all nodes.
            why = "it is empty; was a shell variable unset?"
            raise typer.BadParameter(why, ctx=ctx, param=param)
        try:
            if is_list:
                return [setting.read(text) for text in texts]
            needs_reading = texts and setting.kind is not bool
            return setting.read(value) if needs_reading else value
        except UsageError as error:
            why = f"{error.message}. {error.hint}"
            raise typer.BadParameter(why, ctx=ctx, param=param) from error
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from error


def _setting_of(descriptor: Any) -> Setting:
    kind = descriptor.annotation
    declared = descriptor.parameter_info
    return Setting(
        kind=get_args(kind)[0] if get_origin(kind) is list else kind,
        parse=declared.parser,
        words=descriptor.choices or (),
        least=declared.min,
        most=LONGEST if declared.max is None else declared.max,
    )


class Commands(UserDict[str, Any]):
    """Commands by name, imported when read; `data` are their descriptions."""

    def __init__(self, descriptions: Mapping[str, str]) -> None:
        super().__init__(descriptions)
        self._imported: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._imported:
            self._imported[name] = _import_command(name, self.data[name])
        return self._imported[name]


def _import_command(name: str, description: str) -> Any:
    """Return the app `NAME_app` of the module, else its function `NAME`."""
    function = name.replace("-", "_")
    module = import_module(f"rollout.cli.commands.{_MODULES.get(name, function)}")
    application = getattr(module, f"{function}_app", None)
    if application is None:
        application = typer.Typer(rich_markup_mode=None, add_completion=False)
        register = application.command(
            cls=SectionedCommand, context_settings=CONTEXT, short_help=description
        )
        register(getattr(module, function))
    command: Any = typer.main.get_command(application)
    command.name = name
    return command


class _QuickValues:
    """Leaves values as typed in completions."""

    def parse_args(self, ctx: Any, args: Any) -> Any:
        is_completion = ctx.resilient_parsing
        for parameter in self.get_params(ctx):  # type: ignore[attr-defined]
            if is_completion:
                parameter.process_value = lambda _context, value: value
            else:
                # Has typer read the value by `PlainValue.coerce`.
                parameter._runtime_param = PlainValue()  # noqa: SLF001 - typer has no other way in
        words = [_IMPLIED_VALUES.get(word, word) for word in args]
        return super().parse_args(ctx, words)  # type: ignore[misc]


class _HelpAsStarted:
    def get_help(self, ctx: Any) -> str:
        return with_program_name(super().get_help(ctx))  # type: ignore[misc]


class CommandList(_HelpAsStarted, _QuickValues, TyperGroup):
    commands: Any

    def shell_complete(  # type: ignore[override]
        self, ctx: typer.Context, incomplete: str
    ) -> list[Any]:
        # Stand-ins with descriptions only: no command is imported.
        self.commands = {
            name: TyperCommand(name, short_help=description, add_help_option=False)
            for name, description in self.commands.data.items()
        }
        return super().shell_complete(ctx, incomplete)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer's
        with formatter.section("Commands"):
            formatter.write_dl(list(self.commands.data.items()))


class Group(_HelpAsStarted, TyperGroup):
    pass


class SectionedCommand(_HelpAsStarted, _QuickValues, TyperCommand):
    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        pieces = super().collect_usage_pieces(ctx)
        return [piece.replace("{", "").replace("}", "") for piece in pieces]

    def sections(self, ctx: typer.Context) -> dict[str, list[tuple[str, str]]]:
        sections: dict[str, list[tuple[str, str]]] = {_ARGUMENTS: [], _OPTIONS: []}
        parameter: Any
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            title = getattr(parameter, "rich_help_panel", None) or _OPTIONS
            # What follows a name in typer's text, such as `/ --no-FLAG`.
            end_of_name = " / "
            if parameter.param_type_name == "argument":
                title = _ARGUMENTS
                if not parameter.type_descriptor.choices:
                    end_of_name = " <"
            name_text, description = record
            name, _, _ = name_text.partition(end_of_name)
            sections.setdefault(title, []).append((name, description))
        return {title: records for title, records in sections.items() if records}

    def format_options(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        for title, records in self.sections(ctx).items():
            with formatter.section(title):
                formatter.write_dl(records)
