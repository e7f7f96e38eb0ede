from enum import StrEnum

from typer.completion import get_completion_script  # type: ignore[attr-defined]

from rollout.cli.options import argument
from rollout.cli.program import PROGRAM
from rollout.cli.terminal import show


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Shell = argument(..., "Shell to print the script for.", "SHELL")) -> None:
    """Print a shell script that completes commands, flags and their values.

    \b
    Examples:
      source <(rollout completion bash)      # in ~/.bashrc
      source <(rollout completion zsh)       # in ~/.zshrc, after compinit
      rollout completion fish > ~/.config/fish/completions/rollout.fish
    """
    show(
        get_completion_script(
            prog_name=PROGRAM, complete_var="_ROLLOUT_COMPLETE", shell=shell.value
        )
    )
