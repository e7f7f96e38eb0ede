"""Completes `kubectl node-rollout`, as `kubectl_complete-node_rollout`.

The last argument is incomplete or empty. The output is Cobra's: completions, a colon and a number.
"""

import os
import shlex
import sys

from rollout.cli.main import run
from rollout.cli.program import PROGRAM
from rollout.cli.terminal import prepare_streams

# ShellCompDirectiveDefault of Cobra: may complete file names.
_DEFAULT = ":0"


def main() -> None:
    prepare_streams()
    words = sys.argv[1:]
    os.environ["_ROLLOUT_COMPLETE"] = "complete_bash"
    os.environ["COMP_WORDS"] = shlex.join((PROGRAM, *words))
    os.environ["COMP_CWORD"] = str(len(words))
    try:
        run(())
    finally:
        sys.stdout.write(f"{_DEFAULT}\n")
