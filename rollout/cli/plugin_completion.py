"""What kubectl starts while `kubectl node-rollout` is typed: the program `kubectl_complete-node_rollout`.

It gets the words that follow, the last one begun or empty, and prints what may stand in its place.
A colon and a number end the list, as in Cobra's completions.
"""

import os
import shlex
import sys

from rollout.cli.main import run
from rollout.cli.program import PROGRAM
from rollout.cli.terminal import prepare_streams

# ShellCompDirectiveDefault: if nothing is offered, the shell completes names of files.
_DEFAULT = ":0"


def main() -> None:
    """Answer kubectl: the console entry point."""
    prepare_streams()
    words = sys.argv[1:]
    os.environ["_ROLLOUT_COMPLETE"] = "complete_bash"
    os.environ["COMP_WORDS"] = shlex.join((PROGRAM, *words))
    os.environ["COMP_CWORD"] = str(len(words))
    try:
        run(())
    finally:
        sys.stdout.write(f"{_DEFAULT}\n")
