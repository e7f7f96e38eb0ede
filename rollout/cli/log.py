"""What `-v`, `-vv` and the log file tell: the program's own log, by the standard library's loggers below `rollout`.

`-v` tells stages, how long each took, and decisions; `-vv` also each request to the API server and each command on a
host. A file has all of that, what was said beside it, and the events of a run. Whoever logs names things: no bodies, no
headers, no commands of the operator's, no addresses that may hold a secret.
"""

import logging
import os
import stat
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import typer

from rollout import __version__
from rollout.adapters.local_files import open_output
from rollout.cli.failures import causes, exit_code, has_trace
from rollout.cli.terminal import SAID, say, write_beside
from rollout.errors import InputError, RolloutError
from rollout.execution.base.reporting import EVENTS
from rollout.model.text import elapsed, printable

_ROOT = "rollout"
_STAGES = logging.getLogger("rollout.stage")
_SAID = logging.getLogger(SAID)
# A terminal has them already, each in its own form.
_FOR_FILES = (SAID, EVENTS)
_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)
_OWNER_ONLY = 0o600
_SOON = 10.0


@contextmanager
def logged(command: str, verbosity: int, file: Path | None) -> Iterator[None]:
    """Tell of this command for as long as it runs, on standard error and in the file; `InputError` without the file.

    A command within it, as one that reads its settings again, is a part of it.
    """
    root = logging.getLogger(_ROOT)
    handlers: list[logging.Handler] = [_Terminal(_LEVELS[min(verbosity, 2)])] if verbosity else []
    if root.handlers or not (handlers or file):
        yield
        return
    handlers += [_File(file)] if file else []
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(min(handler.level for handler in handlers))
    try:
        with _told(command):
            yield
    finally:
        root.setLevel(logging.NOTSET)
        for handler in handlers:
            root.removeHandler(handler)
            handler.close()


@contextmanager
def _told(command: str) -> Iterator[None]:
    """Log the first line and the last, whatever the end is."""
    begun = time.monotonic()
    _SAID.info("rollout %s %s, process %d", __version__, command, os.getpid())
    code = 0
    try:
        yield
    except typer.Exit as end:
        code = end.exit_code
        raise
    except BaseException as error:
        code = exit_code(error)
        _tell_error(error)
        raise
    finally:
        _STAGES.info("%s ended with %d after %s", command, code, took(time.monotonic() - begun))


def _tell_error(error: BaseException) -> None:
    """For the file: the terminal is told of it once the command has ended."""
    message = error.message if isinstance(error, RolloutError) else str(error)
    _SAID.error("%s: %s", type(error).__name__, message)
    for cause in causes(error):
        _SAID.error("caused by: %s", cause)
    for line in "".join(traceback.format_exception(error)).splitlines() if has_trace(error) else ():
        _SAID.error("%s", line)


@contextmanager
def stage(name: str) -> Iterator[Callable[[str], None]]:
    """Log a stage, with how long it took and with what is noted of it while it goes on."""
    begun, notes = time.monotonic(), list[str]()
    outcome = "failed"
    try:
        yield notes.append
        outcome = ""
    finally:
        remarks = ", ".join(filter(None, (outcome, *notes)))
        _STAGES.info("%s %s%s", name, took(time.monotonic() - begun), f": {remarks}" if remarks else "")


def took(seconds: float) -> str:
    """Return a stage's time: `0.02s`, `1.20s`, and longer ones as everywhere."""
    return f"{seconds:.2f}s" if seconds < _SOON else elapsed(seconds)


class _Terminal(logging.Handler):
    """Lines on standard error, above whatever moves there."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line, unless it is for files."""
        if record.name not in _FOR_FILES:
            at = datetime.fromtimestamp(record.created, UTC).astimezone()
            self._write(f"{at:%H:%M:%S} {_line(record)}")

    def _write(self, line: str) -> None:
        try:
            write_beside(line, "dim")
        except (OSError, ValueError):
            # whoever has closed the stream wants to hear nothing more
            self.setLevel(logging.CRITICAL + 1)


class _File(logging.Handler):
    """Lines in a file that its owner alone can read, with the time in UTC; until that fails, which is said once."""

    def __init__(self, path: Path) -> None:
        super().__init__(logging.DEBUG)
        self._path = path
        try:
            self._file = open_output(path, os.O_WRONLY | os.O_APPEND)
            if stat.S_ISREG(os.fstat(self._file).st_mode):
                os.fchmod(self._file, _OWNER_ONLY)
        except OSError as error:
            message = f"cannot write the log {path}: {error.strerror}"
            raise InputError(message, hint="Name another: --set output.log-file=FILE.") from error

    def emit(self, record: logging.LogRecord) -> None:
        """Append one line."""
        at = datetime.fromtimestamp(record.created, UTC)
        try:
            os.write(self._file, f"{at:%Y-%m-%dT%H:%M:%S.%f}Z {record.levelname} {_line(record)}\n".encode())
        except OSError as error:
            self.setLevel(logging.CRITICAL + 1)
            say(f"warning: the log {self._path} can no longer be written: {error.strerror}")

    def close(self) -> None:
        """End it."""
        super().close()
        os.close(self._file)


def _line(record: logging.LogRecord) -> str:
    return f"{record.name.removeprefix('rollout.')}: {printable(record.getMessage())}"
