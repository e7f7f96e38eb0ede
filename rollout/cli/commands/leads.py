"""What people type first and rollout does not have, as hidden commands that lead on."""

from typing import Annotated

import typer

from rollout.errors import UsageError

WordsArgument = Annotated[list[str] | None, typer.Argument(metavar="COMMAND", show_default=False)]

NodesArgument = Annotated[list[str] | None, typer.Argument(metavar="NODE", show_default=False)]


def help_of(call: typer.Context, words: WordsArgument = None) -> None:
    """Show the help of rollout, or of one command."""
    context = call.find_root()
    for word in words or ():
        command = getattr(context.command, "commands", {}).get(word)
        if command is None:
            raise UsageError(f"there is no command `{word}`", hint="rollout --help lists them all")
        context = typer.Context(command, info_name=word, parent=context)
    typer.echo(context.get_help())


def drain(node: NodesArgument = None) -> None:
    """Say how a node is drained."""
    _lead_on("drain", node)


def reboot(node: NodesArgument = None) -> None:
    """Say how a node is rebooted."""
    _lead_on("reboot", node)


def _lead_on(word: str, nodes: list[str] | None) -> None:
    chosen = " ".join(f"--node {name}" for name in nodes or () if not name.startswith("-")) or "--node NAME"
    raise UsageError(
        f"there is no command `{word}`: apply drains, reboots and proves in one",
        hint=f"rollout plan {chosen} shows what it would do; rollout apply {chosen} does it. Nodes without a staged"
        " update need --reboot-idle.",
    )
