"""`rollout completion`: scripts for shells, and what they complete beside commands and flags: nodes and contexts.

Nobody waits long for a key to answer, and nothing may be printed into a line that is being typed: whatever cannot be
found out in time, or at all, completes nothing.
"""

import inspect
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer.models import ParameterInfo

from rollout.cli.failures import PROGRAM
from rollout.cli.terminal import show

if TYPE_CHECKING:
    from rollout.ports import ClusterApi

VARIABLE = "_ROLLOUT_COMPLETE"
# For API servers that are far away: what a key may be waited for instead.
PATIENCE = "_ROLLOUT_COMPLETE_SECONDS"
# Python and libraries have taken half a second by then.
_SECONDS = 0.4
# Shells evaluate what they are answered: no name with a sign that means something to one of them.
_HARMLESS = re.compile(r"[\w.:/@+=,-]+", re.ASCII)


def be_silent() -> None:
    """Where a shell asks for completions, standard error leads nowhere: for plugins of kubeconfigs, too."""
    if os.environ.get(VARIABLE, "").startswith("complete"):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def complete_values(command: Callable[..., None]) -> None:
    """Have the values of a command's flags and arguments completed by their names; the shell itself completes files."""
    for name, parameter in inspect.signature(command).parameters.items():
        for declaration in get_args(parameter.annotation)[1:]:
            if isinstance(declaration, ParameterInfo) and get_args(parameter.annotation)[0] is not bool:
                declaration.autocompletion = _BY_NAME.get(name) or declaration.autocompletion


def nodes(ctx: typer.Context, incomplete: str) -> Sequence[str]:
    """Nodes of the cluster that the words so far name."""
    from rollout.adapters.kube.client_parts import client_parts
    from rollout.gather.cluster.listing import read_list
    from rollout.gather.cluster.snapshot import NODES
    from rollout.gather.cluster.wire import Named

    def read() -> list[str]:
        return list(read_list(_api(ctx.params), NODES, Named, lambda node: node.metadata.name).items)

    # the client is loaded before the time counts
    client_parts()
    return _in_time(read, incomplete)


def contexts(ctx: typer.Context, incomplete: str) -> Sequence[str]:
    """Contexts of the kubeconfig."""

    def read() -> list[str]:
        from rollout.adapters.kube.kubeconfig import contexts as read_contexts

        return list(read_contexts(_path(ctx.params), os.environ))

    return _in_time(read, incomplete)


def _seconds() -> float:
    try:
        return float(os.environ.get(PATIENCE, _SECONDS))
    except ValueError:
        return _SECONDS


def _in_time(read: Callable[[], Sequence[str]], incomplete: str) -> list[str]:
    """Return what begins so, if found within the time; nothing where it fails or takes longer: nobody waits for it."""
    names: list[str] = []

    def reading() -> None:
        with suppress(Exception):
            names.extend(read())

    thread = threading.Thread(target=reading, name="completion", daemon=True)
    thread.start()
    thread.join(_seconds())
    in_time = [] if thread.is_alive() else names
    return [name for name in in_time if name.startswith(incomplete) and _HARMLESS.fullmatch(name)]


def _api(given: Mapping[str, object]) -> "ClusterApi":
    from rollout.cli import wiring
    from rollout.cli.settings.schema import Cluster

    context = given.get("context")
    options = Cluster(kubeconfig=_path(given), context=context if isinstance(context, str) else "")
    return wiring.cluster_api(options).within(_seconds())


def _path(given: Mapping[str, object]) -> Path | None:
    path = given.get("kubeconfig")
    return Path(path) if isinstance(path, str) else None


_BY_NAME: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(("node", "exclude", "explain"), nodes),
    "context": contexts,
}


class Shell(StrEnum):
    """Shells that can be completed in."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


ShellArgument = Annotated[Shell, typer.Argument(metavar="SHELL", show_default=False, help="Whose script to print.")]


def completion(shell: ShellArgument) -> None:
    """Print what has a shell complete commands, flags, nodes and contexts.

    \b
    Examples:
      source <(rollout completion bash)      in ~/.bashrc
      source <(rollout completion zsh)       in ~/.zshrc, after compinit
      rollout completion fish > ~/.config/fish/completions/rollout.fish
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    show(get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell.value))
