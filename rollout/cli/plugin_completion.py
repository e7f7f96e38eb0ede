"""Completes `kubectl node-rollout`. kubectl runs it as `kubectl_complete-node_rollout`.

The last argument is incomplete or empty. Prints the completions, a colon and a number, like Cobra.
"""

import os
import shlex
import sys

from rollout.cli.main import run
from rollout.cli.program import PROGRAM
from rollout.cli.terminal import prepare_streams

# ShellCompDirectiveDefault: the shell may complete file names.
_DEFAULT = ":0"


def main() -> None:
    """Print completions of the words for `kubectl node-rollout`, as bash would ask for them."""
    prepare_streams()
    words = sys.argv[1:]
    os.environ["_ROLLOUT_COMPLETE"] = "complete_bash"
    os.environ["COMP_WORDS"] = shlex.join((PROGRAM, *words))
    os.environ["COMP_CWORD"] = str(len(words))
    try:
        run(())
    finally:
        sys.stdout.write(f"{_DEFAULT}\n")
