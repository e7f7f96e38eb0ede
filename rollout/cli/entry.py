"""Starts the program. Handles Ctrl-C already while the rest is imported."""

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
    # Python looks for garbage after every 700 new objects. Modules leave none, but make the start
    # a tenth longer that way.
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
        # From here on, Ctrl-C would only replace the exit code, and print a traceback.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # Otherwise the interpreter looks for garbage among all objects before it exits.
        gc.freeze()
