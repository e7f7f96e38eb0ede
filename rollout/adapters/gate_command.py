"""Run the operator's command as a gate, without a shell; its environment describes the node."""

import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO

from rollout.adapters.local_files import scratch_for
from rollout.adapters.secrets import child_environment
from rollout.errors import UsageError
from rollout.model.text import joined
from rollout.model.tool_output import last_line

_TICK = 0.2
_GRACE_SECONDS = 5.0
_MOST_OUTPUT = 4096


def split_command(text: str) -> tuple[str, ...]:
    """Split a command into words; `UsageError` if it is empty or a quote is not closed."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        message = f"{text!r} is not a command: {error}"
        raise UsageError(message, hint="Quote it as in a shell.") from error
    if not words:
        raise UsageError("gates.command is empty", hint="Name a program and its arguments.")
    return words


def ask_command(
    words: Sequence[str],
    environment: Mapping[str, str],
    seconds: float,
    stopped: Callable[[], bool],
) -> str:
    """Return why the command holds the gate, with its last line of output; empty if it does not.

    It runs in a session of its own, so that everything it started can be killed.
    """
    name = f"gate command {words[0]!r}"
    with scratch_for("a gate command"), tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(  # noqa: S603 - the operator's own words, no shell
                words,
                env={**child_environment(), **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except OSError as error:
            return f"{name} cannot be run: {error.strerror}"
        end = time.monotonic() + seconds
        while process.poll() is None:
            if stopped():
                _end(process)
                return "stopped on request"
            if time.monotonic() >= end:
                _end(process)
                return f"{name} did not end within gates.timeout {seconds:g}s"
            with suppress(subprocess.TimeoutExpired):
                process.wait(_TICK)
        if process.returncode == 0:
            return ""
        return joined(": ", f"{name} exited with {process.returncode}", _last_line(output))


def _end(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _last_line(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _MOST_OUTPUT))
    return last_line(output.read().decode(errors="replace"))
