"""`rollout completion`."""

from enum import StrEnum
from typing import Annotated, assert_never

import typer

from rollout.cli.failures import PROGRAM
from rollout.cli.terminal import show


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
        # a home stays one
        [[ $i == '\\~'* ]] && i=${i#?}
        COMPREPLY+=("$i")
    done
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[/=] ]] && compopt -o nospace 2> /dev/null
    return 0
}

complete -o default -F _rollout_completion rollout"""
# What is answered is never run as a line of the shell. A folder is gone on from. Where zsh loads the script as the
# function `_rollout`, which it does at the first key, it has to answer that, too.
_ZSH = """\
#compdef rollout

_rollout_completion() {
    local line
    local -a answers names folders
    answers=("${(@f)$(env _ROLLOUT_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args \\
        _TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" rollout)}")
    for line in $answers; do
        [[ -n $line ]] || continue
        if [[ $line == */ ]]; then
            folders+=($line)
        else
            names+=("${${line%%$'\t'*}//:/\\:}:${${line#*$'\t'}//:/\\:}")
        fi
    done
    (( $#folders )) && compadd -S '' -- $folders
    (( $#names )) && _describe rollout names
    (( $#answers )) && [[ -n $answers[1] ]] || _files
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
