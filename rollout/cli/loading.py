"""Commands that are imported when they are asked for: all of them together cost more than most commands do themselves.

A command is a function of its own name, in `rollout.cli.commands`; a group of commands is a typer application there.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from rollout.cli.completion import complete_values
from rollout.cli.help import SectionedCommand, prepare_values

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
# Of commands that share a file, those that have not its name.
_ELSEWHERE = {"unpause": "pause", "release": "pause"}


class Commands(Mapping[str, Any]):
    """The program's commands by name, each with the line that a list of them shows."""

    def __init__(self, lines: Mapping[str, str]) -> None:
        self.lines = lines
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            self._built[name] = _built(name, self.lines[name])
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)


def _built(name: str, line: str) -> Any:
    function = name.replace("-", "_")
    module = import_module(f"rollout.cli.commands.{_ELSEWHERE.get(name, function)}")
    application = getattr(module, f"{function}_app", None)
    if application is None:
        application = typer.Typer(rich_markup_mode=None, add_completion=False)
        application.command(cls=SectionedCommand, context_settings=CONTEXT, short_help=line)(getattr(module, function))
    for registered in application.registered_commands:
        if registered.callback is not None:
            complete_values(registered.callback)
    command: Any = typer.main.get_command(application)
    command.name = name
    return command


class CommandList(TyperGroup):
    """The program, whose list of commands needs none of them."""

    commands: Any

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """As any group's; a line that is being typed is not judged."""
        prepare_values(self, ctx)
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: typer.Context, incomplete: str) -> list[Any]:  # type: ignore[override]
        """The commands' names, of which none is imported for that, and the program's own flags."""
        whole = self.commands
        self.commands = {
            name: TyperCommand(name, short_help=line, add_help_option=False) for name, line in whole.lines.items()
        }
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self.commands = whole

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer's
        """A line each."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.commands.lines.items()))
