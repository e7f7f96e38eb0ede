"""Import a command when it is typed: importing all of them takes longer than most commands run.

A command is a function of the same name in `rollout.cli.commands`; a group of commands is a typer
application there. Help is plain text: typer's own boxes cut long flags in 80 columns, and are slow.
"""

from collections import UserDict
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from rollout.cli.options import PlainValue
from rollout.cli.program import with_program_name

_ARGUMENTS = "Arguments"
_OPTIONS = "Options"
# Flags without a value. If click allowed them, it would take the next word as the value.
_WITHOUT_VALUE = {"--dry-run": "--dry-run=server"}
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
# The module of each command that is not in a module of its own name.
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


class Commands(UserDict[str, Any]):
    """The commands by name, each imported when it is read; `data` are their descriptions."""

    def __init__(self, descriptions: Mapping[str, str]) -> None:
        super().__init__(descriptions)
        self._imported: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._imported:
            self._imported[name] = _import_command(name, self.data[name])
        return self._imported[name]


def _import_command(name: str, description: str) -> Any:
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
    """A command that reads its values without pydantic. For a completion it takes them as typed."""

    def parse_args(self, ctx: Any, args: Any) -> Any:
        for parameter in self.get_params(ctx):  # type: ignore[attr-defined]
            if ctx.resilient_parsing:
                parameter.process_value = lambda _context, value: value
            else:
                parameter._runtime_param = PlainValue()  # noqa: SLF001 - typer has no other way in
        words = [_WITHOUT_VALUE.get(word, word) for word in args]
        return super().parse_args(ctx, words)  # type: ignore[misc]


class _HelpAsStarted:
    """Names the program in help as it was started: `rollout`, or the kubectl plugin."""

    def get_help(self, ctx: Any) -> str:
        return with_program_name(super().get_help(ctx))  # type: ignore[misc]


class CommandList(_HelpAsStarted, _QuickValues, TyperGroup):
    """The program. Listing its commands imports none of them."""

    commands: Any

    def shell_complete(  # type: ignore[override]
        self, ctx: typer.Context, incomplete: str
    ) -> list[Any]:
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
    """A command whose help lists its options under the headings they are declared with."""

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Return the arguments as other programs show them: `FILE` is required, `[FILE]` is not."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def sections(self, ctx: typer.Context) -> dict[str, list[tuple[str, str]]]:
        """Return the parameters by heading, each with its description."""
        sections: dict[str, list[tuple[str, str]]] = {_ARGUMENTS: [], _OPTIONS: []}
        parameter: Any
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            title = getattr(parameter, "rich_help_panel", None) or _OPTIONS
            # Where the name ends: before the negative form of a flag, or Python's type.
            end = " / "
            if parameter.param_type_name == "argument":
                title = _ARGUMENTS
                if not parameter.type_descriptor.choices:
                    end = " <"
            name, description = record
            sections.setdefault(title, []).append((name.partition(end)[0], description))
        return {title: records for title, records in sections.items() if records}

    def format_options(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        for title, records in self.sections(ctx).items():
            with formatter.section(title):
                formatter.write_dl(records)
