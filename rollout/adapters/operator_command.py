import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO

from msgspec import Struct

from rollout.adapters.local_files import needing_temporary_folder
from rollout.adapters.programs import killed_unless_finished, signal_group
from rollout.adapters.secrets import child_environment, without_userinfo
from rollout.errors import UsageError
from rollout.model.text import joined
from rollout.model.tool_output import CommandEnd, last_line, last_lines

_POLL_SECONDS = 0.2
_TERMINATION_SECONDS = 5.0
_KEPT_BYTES = 4096
_MOST_LINES = 5


def split_command(text: str) -> tuple[str, ...]:
    """Split a command into words, or raise `UsageError`."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        message = f"{text!r} is not a command: {error}"
        raise UsageError(message, hint="Quote it as in a shell.") from error
    if not words:
        raise UsageError("the command is empty", hint="Specify a program and its arguments.")
    return words


class OperatorCommand(Struct, frozen=True):
    """A command from the settings."""

    words: Sequence[str]
    # For messages: "gate command", "gates.timeout".
    name: str
    timeout_setting: str

    def run_and_explain(
        self, environment: Mapping[str, str], seconds: float, is_stopped: Callable[[], bool]
    ) -> str:
        """Return why it failed, as `problem: last line`, or empty."""
        end = self.run(environment, seconds, is_stopped)
        return joined(": ", end.problem, end.reason)

    def run(
        self, environment: Mapping[str, str], seconds: float, is_stopped: Callable[[], bool]
    ) -> CommandEnd:
        """Run until the command exits, `is_stopped`, or `seconds` are over."""
        with needing_temporary_folder(f"a {self.name}"), tempfile.TemporaryFile() as output:
            try:
                process = subprocess.Popen(  # noqa: S603 - the operator's own words, no shell
                    self.words,
                    env={**child_environment(), **environment},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            except OSError as error:
                return CommandEnd(f"{self._title} cannot be run: {error.strerror}")
            with killed_unless_finished(process):
                problem = self._await_exit(process, seconds, is_stopped)
            text = without_userinfo(_read_tail(output))
        return CommandEnd(problem, last_line(text), last_lines(text, _MOST_LINES))

    @property
    def _title(self) -> str:
        return f"{self.name} {self.words[0]!r}"

    def _await_exit(
        self, process: subprocess.Popen[bytes], seconds: float, is_stopped: Callable[[], bool]
    ) -> str:
        deadline = time.monotonic() + seconds
        while process.poll() is None:
            if is_stopped():
                _terminate(process)
                return f"{self._title} was stopped before it finished"
            if time.monotonic() >= deadline:
                _terminate(process)
                return f"{self._title} did not finish within {self.timeout_setting} {seconds:g}s"
            with suppress(subprocess.TimeoutExpired):
                process.wait(_POLL_SECONDS)
        if process.returncode == 0:
            return ""
        return f"{self._title} exited with {process.returncode}"


def _terminate(process: subprocess.Popen[bytes]) -> None:
    signal_group(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_TERMINATION_SECONDS)
    # Some may ignore SIGTERM.
    signal_group(process.pid)
    process.wait()


def _read_tail(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _KEPT_BYTES))
    return output.read().decode(errors="replace")
