"""Handles Ctrl-C already while the program is imported."""

import gc
import signal
import sys

_WINDOWS = (
    "rollout: error: rollout does not run on Windows itself:"
    " it needs the file permissions and signals of Unix\n"
    "hint: run it in WSL, the Windows Subsystem for Linux: wsl --install\n"
)
_OBJECTS_PER_COLLECTION = 200_000


def main() -> None:
    # Modules leave no garbage, but Python's default of 700 new objects makes the start a tenth
    # longer.
    gc.set_threshold(_OBJECTS_PER_COLLECTION)
    from rollout.errors import ExitCode

    if sys.platform == "win32":
        sys.stderr.write(_WINDOWS)
        sys.exit(ExitCode.ERROR)
    try:
        from rollout.cli.main import main as command

        command()
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    finally:
        # From here on, Ctrl-C would only replace the exit code and print a traceback.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # Keeps the interpreter from collecting garbage before it exits.
        gc.freeze()
