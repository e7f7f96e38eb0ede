"""What `-v` and `-vv` tell: the program's own log, by the standard library's loggers below `rollout`.

`-v` tells stages and how long each took; `-vv` also each request to the API server and each command
on a host. Whoever logs names things: no bodies, no headers, no commands of the operator's, no
addresses that may hold a secret.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from rollout.cli.failures import exit_code
from rollout.cli.terminal import write_beside
from rollout.errors import ExitCode
from rollout.model.text import printable
from rollout.model.timestamps import elapsed, whole_second

_ROOT = "rollout"
_STAGES = logging.getLogger("rollout.stage")
_SOON = 10.0


@contextmanager
def logged(command: str, verbosity: int) -> Iterator[None]:
    """Tell of this command on standard error for as long as it runs; a command within it is a part of it."""
    root = logging.getLogger(_ROOT)
    if root.handlers or not verbosity:
        yield
        return
    handler = _Terminal(logging.INFO if verbosity == 1 else logging.DEBUG)
    root.addHandler(handler)
    root.setLevel(handler.level)
    begun = time.monotonic()
    code = ExitCode.OK
    try:
        yield
    except BaseException as error:
        code = exit_code(error)
        raise
    finally:
        _STAGES.info("%s ended with %d after %s", command, code, _took(time.monotonic() - begun))
        root.setLevel(logging.NOTSET)
        root.removeHandler(handler)


@contextmanager
def stage(name: str) -> Iterator[Callable[[str], None]]:
    """Log a stage, with how long it took and with what is noted of it while it goes on."""
    begun = time.monotonic()
    notes = list[str]()
    outcome = "failed"
    try:
        yield notes.append
        outcome = ""
    finally:
        remarks = ", ".join(filter(None, (outcome, *notes)))
        _STAGES.info(
            "%s %s%s", name, _took(time.monotonic() - begun), f": {remarks}" if remarks else ""
        )


def _took(seconds: float) -> str:
    """Return a stage's time: `0.02s`, `1.20s`, and longer ones as everywhere."""
    return f"{seconds:.2f}s" if seconds < _SOON else elapsed(seconds)


class _Terminal(logging.Handler):
    """Lines on standard error, above whatever moves there."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        at = datetime.fromtimestamp(record.created, UTC)
        # A log file is read on other days and in other time zones.
        written = f"{at.astimezone():%H:%M:%S}" if sys.stderr.isatty() else whole_second(at)
        try:
            line = f"{record.name.removeprefix('rollout.')}: {printable(record.getMessage())}"
            write_beside(f"{written} {line}", "dim")
        except (OSError, ValueError):
            # whoever has closed the stream wants to hear nothing more
            self.setLevel(logging.CRITICAL + 1)
