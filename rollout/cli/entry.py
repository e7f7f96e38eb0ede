"""Where the program begins: a Ctrl-C is understood from here on, also while the rest is still being loaded."""

import sys

from rollout.errors import ExitCode

_WINDOWS = """rollout: error: rollout does not run on Windows itself: it needs the file permissions and signals of Unix
hint: run it in WSL, the Windows Subsystem for Linux: wsl --install"""


def main() -> None:
    """Run the program: the console entry point."""
    if sys.platform == "win32":
        sys.stderr.write(f"{_WINDOWS}\n")
        sys.exit(ExitCode.ERROR)
    try:
        from rollout.cli.main import main as command

        command()
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
