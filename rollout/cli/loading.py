"""Commands that are imported and built when they are asked for: a command line needs one of them.

All of them together cost more than most commands do themselves.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from rollout.cli.completion import complete_values
from rollout.cli.help import SectionedCommand, prepare_values
from rollout.cli.options.flattening import flattened

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@dataclass(frozen=True, slots=True)
class Source:
    """Where a command, or a group of them, is: `module:name` below `rollout.cli.commands`.

    `line` stands for it in the list of commands, which a terminal of 80 columns holds; one without a line is hidden.
    One that `takes_anything` only has something to say about the words it is given. `members` are commands of a group
    that stand in modules of their own.
    """

    place: str
    line: str = ""
    takes_anything: bool = False
    members: Mapping[str, "Source"] = field(default_factory=dict)

    def build(self, name: str) -> Any:
        """The command."""
        module, _, attribute = self.place.partition(":")
        loaded = getattr(import_module(f"rollout.cli.commands.{module}"), attribute)
        application = loaded if isinstance(loaded, typer.Typer) else self._application(loaded)
        for callback in filter(None, (registered.callback for registered in application.registered_commands)):
            complete_values(callback)
        command: Any = typer.main.get_command(application)
        command.name = name
        for member, source in self.members.items():
            command.commands[member] = source.build(member)
        return command

    def _application(self, command: Any) -> typer.Typer:
        application = typer.Typer(rich_markup_mode=None, add_completion=False)
        application.command(
            cls=SectionedCommand,
            context_settings={**CONTEXT, "ignore_unknown_options": self.takes_anything},
            short_help=self.line,
            hidden=not self.line,
            add_help_option=not self.takes_anything,
        )(flattened(command))
        return application


class Commands(Mapping[str, Any]):
    """The program's commands by name, in the order in which they are listed."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self.listed = [(name, source.line) for name, source in sources.items() if source.line]
        self._sources = sources
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            self._built[name] = self._sources[name].build(name)
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


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
            name: TyperCommand(name, short_help=line, add_help_option=False) for name, line in whole.listed
        }
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self.commands = whole

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer's
        """A line each."""
        with formatter.section("Commands"):
            formatter.write_dl(self.commands.listed)
