"""Commands that are imported when they are asked for: all of them together cost more than most commands do themselves.

A command is a function of its own name, in `rollout.cli.commands`; a group of commands is a typer
application there. Help is plain text, a section a group of options: typer's own boxes cut long
flags short in a terminal of 80 columns, and cost more to draw than everything else that `rollout
--help` does.
"""

from collections import UserDict
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from rollout.cli.flags import PlainValue
from rollout.cli.program import as_started

_OWN = "Options"
# What a flag means without a value. If click allowed the flag alone, it would take the next word as
# its value.
_BARE = {"--dry-run": "--dry-run=server"}
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
# Of commands that share a file, those that have not its name.
_ELSEWHERE = {
    "pause": "memory",
    "unpause": "memory",
    "release": "memory",
    "evidence": "memory",
    "abort": "resume",
    "report": "history",
    "known-hosts": "inventory",
    "check-update": "inventory",
    "demo": "lab",
}


class Commands(UserDict[str, Any]):
    """The program's commands by name, each made when it is asked for; `data` are their lines in a list of them."""

    def __init__(self, lines: Mapping[str, str]) -> None:
        super().__init__(lines)
        # of this program alone: while a line is being typed, its commands read no values
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _build(name, self.data[name])
        return self._made[name]


def _build(name: str, line: str) -> Any:
    function = name.replace("-", "_")
    module = import_module(f"rollout.cli.commands.{_ELSEWHERE.get(name, function)}")
    application = getattr(module, f"{function}_app", None)
    if application is None:
        application = typer.Typer(rich_markup_mode=None, add_completion=False)
        application.command(cls=SectionedCommand, context_settings=CONTEXT, short_help=line)(
            getattr(module, function)
        )
    command: Any = typer.main.get_command(application)
    command.name = name
    return command


class _QuickValues:
    """A command that reads its values quickly; one whose line is being typed takes them as they are."""

    def parse_args(self, ctx: Any, args: Any) -> Any:
        for parameter in self.get_params(ctx):  # type: ignore[attr-defined]
            if ctx.resilient_parsing:
                parameter.process_value = lambda _context, value: value
            else:
                parameter._runtime_param = PlainValue()  # noqa: SLF001 - typer has no other way in
        return super().parse_args(ctx, [_BARE.get(word, word) for word in args])  # type: ignore[misc]


class _HelpAsStarted:
    """Shows commands in help as the program was started: `rollout`, or the kubectl plugin."""

    def get_help(self, ctx: Any) -> str:
        return as_started(super().get_help(ctx))  # type: ignore[misc]


class CommandList(_HelpAsStarted, _QuickValues, TyperGroup):
    """The program, whose list of commands needs none of them."""

    commands: Any

    def shell_complete(self, ctx: typer.Context, incomplete: str) -> list[Any]:  # type: ignore[override]
        """Return the commands' names, of which none is imported for that, and the program's own flags."""
        self.commands = {
            name: TyperCommand(name, short_help=line, add_help_option=False)
            for name, line in self.commands.data.items()
        }
        return super().shell_complete(ctx, incomplete)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer's
        """Write a line each."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.commands.data.items()))


class Group(_HelpAsStarted, TyperGroup):
    """A command that has commands of its own."""


class SectionedCommand(_HelpAsStarted, _QuickValues, TyperCommand):
    """A command whose help lists its options under the headings they were declared with."""

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """As usages of other programs have it: `FILE` has to be given, `[FILE]` need not."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def sections(self, ctx: typer.Context) -> dict[str, list[tuple[str, str]]]:
        """Return each heading with its flags: arguments, options of this command alone, then the groups."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], _OWN: []}
        parameter: Any
        for parameter in self.get_params(ctx):
            is_argument = parameter.param_type_name == "argument"
            title = (
                "Arguments" if is_argument else getattr(parameter, "rich_help_panel", None) or _OWN
            )
            if record := parameter.get_help_record(ctx):
                # without Python's name for a type, and without a flag's no
                after = " <" if is_argument and not parameter.type_descriptor.choices else " / "
                sections.setdefault(title, []).append((record[0].partition(after)[0], record[1]))
        return {title: records for title, records in sections.items() if records}

    def format_options(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write the sections."""
        for title, records in self.sections(ctx).items():
            with formatter.section(title):
                formatter.write_dl(records)
