"""`rollout help`."""

from pathlib import Path
from typing import Any

import typer

from rollout.cli.flags import argument, option
from rollout.cli.program import PROGRAM
from rollout.cli.terminal import say, show
from rollout.errors import UsageError


def _names(context: typer.Context, incomplete: str) -> list[str]:
    return [name for name in context.find_root().command.commands if name.startswith(incomplete)]  # type: ignore[attr-defined]


_PAGES = "Write a man page of every command into this folder"


def help(  # noqa: A001 - the command's name
    call: typer.Context,
    command: list[str] | None = argument(None, "The command.", "COMMAND", _names),
    man_pages: Path | None = option(None, _PAGES, "DIR", "--man-pages"),
) -> None:
    """Show the help of a command, as with --help, or write man pages.

    \b
    Examples:
      rollout help plan
      rollout help --man-pages ~/.local/share/man/man1 && man rollout-plan
    """
    root = call.find_root()
    if man_pages is not None:
        _write(man_pages, root)
        return
    asked: Any = root.command
    context: Any = root
    for word in command or ():
        members = getattr(asked, "commands", {})
        if word not in members:
            raise UsageError(f"there is no command {' '.join(command or ())}", hint=f"{PROGRAM} --help")
        asked = members[word]
        context = typer.Context(asked, info_name=word, parent=context)
    show(asked.get_help(context))


def _write(folder: Path, root: Any) -> None:
    from rollout.adapters.local_files import write_whole
    from rollout.cli.man_pages import man_pages

    folder.mkdir(parents=True, exist_ok=True)
    pages = man_pages(root.command, PROGRAM)
    for name, text in pages.items():
        write_whole(folder / name, text.encode())
    say(f"{len(pages)} man pages are in {folder}. Read one: man -l {folder / f'{PROGRAM}.1'}")
