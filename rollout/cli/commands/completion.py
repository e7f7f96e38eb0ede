"""`rollout completion`."""

from enum import StrEnum
from typing import Annotated

import typer


class Shell(StrEnum):
    """Shells that can be completed in."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


ShellArgument = Annotated[Shell, typer.Argument(show_default=False, help="Whose script to print.")]


def completion(shell: ShellArgument) -> None:
    """Print what has a shell complete commands, flags, nodes, contexts, plans and runs.

    \b
    Examples:
      source <(rollout completion bash)
      rollout completion zsh > "${fpath[1]}/_rollout"
    """
    from typer import completion as typers

    from rollout.cli.failures import PROGRAM
    from rollout.cli.terminal import show

    script: str = typers.get_completion_script(  # type: ignore[attr-defined]
        prog_name=PROGRAM, complete_var=f"_{PROGRAM.upper()}_COMPLETE", shell=shell.value
    )
    show(script)
