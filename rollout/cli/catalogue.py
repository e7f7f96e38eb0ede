"""Every command with its line in the list of them: a command is imported when it is asked for, not to be listed.

All of them together, with what their flags need, cost four times as much to import as the program itself.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from rollout.cli.completion import as_written
from rollout.cli.help import SectionedCommand

CONTEXT: Mapping[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
# What people type first: whatever follows is no option of theirs.
_ANYTHING: Mapping[str, Any] = {"context_settings": {"ignore_unknown_options": True}, "add_help_option": False}
_COMMANDS = "rollout.cli.commands"


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: its line, empty where it is not listed; what it is called in which module, unless by its own name.

    `inner` are commands of other modules that a group has beside its own, with their lines.
    """

    line: str
    place: str = ""
    inner: Mapping[str, str] | None = None
    settings: Mapping[str, Any] | None = None


CATALOGUE: Mapping[str, Entry] = {
    "status": Entry("Show which nodes wait for a reboot, and why the others do not."),
    "plan": Entry("Show what apply would do; touch nothing."),
    "show": Entry("Show a saved plan; ask neither cluster nor hosts."),
    "apply": Entry("Run a saved plan; or plan, show, ask and run."),
    "resume": Entry("Go on with an interrupted rollout, from any machine."),
    "operate": Entry("Reboot what waits, unattended: once, or pass after pass."),
    "abort": Entry("Undo what an interrupted rollout started."),
    "pause": Entry("Have no rollout start these nodes, or any."),
    "unpause": Entry("End a pause.", "pause:unpause"),
    "release": Entry("End the hold of a version that failed on too many nodes."),
    "history": Entry("List this machine's runs, or show one as a timeline."),
    "adopt": Entry("Clean up what another reboot coordinator left on the nodes."),
    "report": Entry("Report a run as a page, Markdown or JSON."),
    "doctor": Entry("Check everything that a rollout needs, and name each fix."),
    "inventory": Entry("Print the Nodes as an Ansible inventory, in JSON."),
    "known-hosts": Entry("Scan the Nodes' host keys into a known_hosts file."),
    "check-update": Entry("Ask the selected hosts to look for an update now."),
    "manifests": Entry("Print what runs rollout in the cluster, for kubectl apply."),
    "demo": Entry("Watch a simulated cluster being taken through its updates."),
    "version": Entry("Print the version."),
    "completion": Entry("Print the completion script of bash, zsh or fish."),
    "help": Entry("", "leads:help_of"),
    "drain": Entry("", "leads:drain", settings=_ANYTHING),
    "reboot": Entry("", "leads:reboot", settings=_ANYTHING),
    "fleetlock": Entry(
        "Serve FleetLock: hosts with Zincati ask before they reboot.",
        "fleetlock:fleetlock_app",
        {"zincati": "Print the drop-in for hosts with Zincati."},
    ),
    "metrics": Entry("Print alert rules or a dashboard for Prometheus.", "metrics:metrics_app"),
    "lab": Entry("A simulated cluster to rehearse on.", "lab:lab_app"),
}


class Commands(MutableMapping[str, Any]):
    """Commands by name, each made when it is first asked for."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}
        self._names = dict.fromkeys(CATALOGUE)

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _made(name, CATALOGUE[name])
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._names[name], self._made[name] = None, command

    def __delitem__(self, name: str) -> None:
        del self._names[name]
        self._made.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _made(name: str, entry: Entry) -> Any:
    """The command, or the group, as typer makes it."""
    from rollout.cli.completion import completed
    from rollout.cli.options.flattening import flattened

    found = _found(entry.place or name)
    holder = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    if isinstance(found, typer.Typer):
        for word, line in (entry.inner or {}).items():
            found.command(short_help=line)(_found(word))
        for registered in found.registered_commands:
            if registered.callback is not None:
                completed(registered.callback)
        holder.add_typer(found, name=name)
    else:
        settings = entry.settings or {"cls": SectionedCommand, "context_settings": CONTEXT}
        holder.command(name, short_help=entry.line, hidden=not entry.line, **settings)(completed(flattened(found)))
    return get_group(holder).commands[name]


def _found(place: str) -> Any:
    module, _, attribute = place.replace("-", "_").partition(":")
    return getattr(import_module(f"{_COMMANDS}.{module}"), attribute or module)


class Program(TyperGroup):
    """The program with the commands of the catalogue."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = Commands()

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """As any group's."""
        if ctx.resilient_parsing:
            as_written(self, ctx)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override] # noqa: ARG002 - typer's
        """Their names, in order."""
        return list(self.commands)

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """The list of them, in the help."""
        with self._only_lines():
            super().format_commands(ctx, formatter)

    def shell_complete(self, ctx: typer.Context, incomplete: str) -> Any:  # type: ignore[override]
        """Their names, and the program's own options."""
        with self._only_lines():
            return super().shell_complete(ctx, incomplete)

    @contextmanager
    def _only_lines(self) -> Iterator[None]:
        """Commands that can be listed, and nothing else."""
        whole = self.commands
        self.commands = {
            name: TyperCommand(name, short_help=entry.line, hidden=not entry.line, add_help_option=False)
            for name, entry in CATALOGUE.items()
        }
        try:
            yield
        finally:
            self.commands = whole
