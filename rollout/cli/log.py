"""Logs stages for `-v`; also API requests and host commands for `-vv`.

Bodies, headers, the operator's commands and addresses may hold a secret, so they are not logged.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from rollout.cli.failures import error_exit_code
from rollout.cli.terminal import write_to_stderr
from rollout.errors import ExitCode
from rollout.model.text import printable
from rollout.model.timestamps import elapsed, whole_second

_ROOT = "rollout"
_STAGES = logging.getLogger("rollout.stage")
_SHORT_SECONDS = 10.0


@contextmanager
def log_command(command: str, verbosity: int) -> Iterator[None]:
    """A nested command logs as part of the outer one."""
    root = logging.getLogger(_ROOT)
    is_nested = bool(root.handlers)
    if is_nested or not verbosity:
        yield
        return
    handler = _StderrHandler(logging.INFO if verbosity == 1 else logging.DEBUG)
    root.addHandler(handler)
    root.setLevel(handler.level)
    began = time.monotonic()
    code = ExitCode.OK
    try:
        yield
    except BaseException as error:
        code = error_exit_code(error)
        raise
    finally:
        _STAGES.info(
            "%s ended with %d after %s", command, code, _duration(time.monotonic() - began)
        )
        root.setLevel(logging.NOTSET)
        root.removeHandler(handler)


@contextmanager
def stage(name: str) -> Iterator[Callable[[str], None]]:
    """Log the stage's duration, with notes added by the yielded function."""
    began = time.monotonic()
    notes = list[str]()
    has_failed = True
    try:
        yield notes.append
        has_failed = False
    finally:
        duration = _duration(time.monotonic() - began)
        if has_failed:
            notes.insert(0, "failed")
        remarks = ", ".join(note for note in notes if note)
        _STAGES.info("%s %s%s", name, duration, f": {remarks}" if remarks else "")


def _duration(seconds: float) -> str:
    return f"{seconds:.2f}s" if seconds < _SHORT_SECONDS else elapsed(seconds)


class _StderrHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        at = datetime.fromtimestamp(record.created, UTC)
        # A log file is read later and elsewhere, so add the date, in UTC.
        time_text = whole_second(at)
        if sys.stderr.isatty():
            time_text = f"{at.astimezone():%H:%M:%S}"
        try:
            line = f"{record.name.removeprefix('rollout.')}: {printable(record.getMessage())}"
            write_to_stderr(f"{time_text} {line}", "dim")
        except (OSError, ValueError):
            # The stream is closed.
            self.setLevel(logging.CRITICAL + 1)
