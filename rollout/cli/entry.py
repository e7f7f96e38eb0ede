"""Where the program begins: a Ctrl-C is understood from here on, also while the rest is still being loaded."""

import sys

from rollout.errors import ExitCode


def main() -> None:
    """Run the program: the console entry point."""
    try:
        from rollout.cli.main import main as command

        command()
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
