"""`rollout completion`: scripts for shells, and what they complete beside commands and flags: names that exist now.

Nobody waits long for a key to answer, and nothing may be printed into a line that is being typed: whatever cannot be
found out in time, or at all, completes nothing.
"""

import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, assert_never, get_args

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
    return _beginning(incomplete, _in_time(read))


def contexts(ctx: typer.Context, incomplete: str) -> Sequence[str]:
    """Contexts of the kubeconfig."""

    def read() -> list[str]:
        from rollout.adapters.kube.kubeconfig import contexts as read_contexts

        return list(read_contexts(_path(ctx.params), os.environ))

    return _beginning(incomplete, _in_time(read))


def runs(incomplete: str) -> Sequence[str]:
    """Return runs that were written down on this machine, the latest first."""

    def read() -> list[str]:
        from rollout.adapters.journal import journals, runs_directory

        return [path.stem for path in sorted(journals(runs_directory()), key=_changed, reverse=True)]

    return _beginning(incomplete, _in_time(read))


def scenarios(incomplete: str) -> Sequence[str]:
    """Scenarios of the lab."""

    def read() -> list[str]:
        from rollout.lab.scenarios import scenario_names

        return scenario_names()

    return _beginning(incomplete, _in_time(read))


def assignments(incomplete: str) -> Sequence[str]:
    """Return settings by their keys, with the = that follows; then the words of one that has fixed ones."""
    from rollout.cli.settings.schema import settings

    name, equals, _ = incomplete.partition("=")
    if not equals:
        return _beginning(incomplete, [f"{key}=" for key in settings()])
    setting = settings().get(name)
    words = ("true", "false") if setting and setting.is_flag else setting.choices if setting else ()
    return _beginning(incomplete, [f"{name}={word}" for word in words])


def _seconds() -> float:
    try:
        return float(os.environ.get(PATIENCE, _SECONDS))
    except ValueError:
        return _SECONDS


def _in_time(read: Callable[[], list[str]]) -> list[str]:
    """Return what it finds within the time; nothing where it fails, or takes longer, and then nobody waits for it."""
    names: list[str] = []

    def reading() -> None:
        with suppress(Exception):
            names.extend(read())

    thread = threading.Thread(target=reading, name="completion", daemon=True)
    thread.start()
    thread.join(_seconds())
    return [] if thread.is_alive() else names


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete) and name.isprintable()]


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
    "run": runs,
    "scenario": scenarios,
    "set_": assignments,
}


def _changed(path: Path) -> float:
    return path.stat().st_mtime


class Shell(StrEnum):
    """Shells that can be completed in."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


ShellArgument = Annotated[Shell, typer.Argument(metavar="SHELL", show_default=False, help="Whose script to print.")]
# Bash parts words at : and =, which stand in contexts (arn:aws:eks:…) and flags. The program is asked with whole words,
# and what it answers begins where bash's own word does; names are quoted as a line takes them.
_BASH = """\
_rollout_completion() {
    local IFS=$'\\n' rest=$COMP_LINE word i
    local -a words=() names=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if ((i > 0)) && [[ -n $rest && $rest != [[:space:]]* ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
        rest=${rest#"${rest%%[![:space:]]*}"}
        rest=${rest#"$word"}
    done
    mapfile -t names < <(
        env COMP_WORDS="${words[*]}" COMP_CWORD=$((${#words[@]} - 1)) _ROLLOUT_COMPLETE=complete_bash "$1")
    word=${words[${#words[@]} - 1]}
    [[ $word == -*=* ]] && word=${word#*=}
    [[ $COMP_WORDBREAKS == *:* ]] || word=${word//:/}
    COMPREPLY=()
    for i in "${names[@]}"; do
        [[ -n $i ]] || continue
        printf -v i %q "${i#"${word%"${word##*[:=]}"}"}"
        COMPREPLY+=("$i")
    done
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2> /dev/null
    return 0
}

complete -o default -F _rollout_completion rollout"""
# What is answered is never run as a line of the shell. Where zsh loads the script as the
# function `_rollout`, which it does at the first key, it has to answer that, too.
_ZSH = """\
#compdef rollout

_rollout_completion() {
    local line
    local -a answers names
    answers=("${(@f)$(env _ROLLOUT_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args \\
        _TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" rollout)}")
    for line in $answers; do
        [[ -n $line ]] && names+=("${${line%%$'\t'*}//:/\\:}:${${line#*$'\t'}//:/\\:}")
    done
    (( $#names )) && _describe rollout names || _files
}

compdef _rollout_completion rollout
[ "${funcstack[1]}" = _rollout ] && _rollout_completion "$@"
true"""


def completion(shell: ShellArgument) -> None:
    """Print what has a shell complete commands, flags, nodes, contexts, plans and runs.

    \b
    Examples:
      source <(rollout completion bash)      in ~/.bashrc
      source <(rollout completion zsh)       in ~/.zshrc, after compinit
      rollout completion fish > ~/.config/fish/completions/rollout.fish
    """
    show(script_of(shell))


def script_of(shell: Shell) -> str:
    """Return the script of a shell."""
    from typer import completion as typers

    match shell:
        case Shell.BASH:
            return _BASH
        case Shell.ZSH:
            return _ZSH
        case Shell.FISH:
            script: str = typers.get_completion_script(  # type: ignore[attr-defined]
                prog_name=PROGRAM, complete_var=f"_{PROGRAM.upper()}_COMPLETE", shell=shell.value
            )
            return script
        case _:
            assert_never(shell)
