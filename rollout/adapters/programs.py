"""Programs of this machine that answer once: bounded in time, with whatever they have started ended with them."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rollout.adapters.secrets import child_environment


def run_program(
    words: Sequence[str],
    *,
    seconds: float,
    content: bytes = b"",
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> "subprocess.CompletedProcess[bytes]":
    """Run a program to its end, `content` on its input; `OSError`, or `subprocess.TimeoutExpired` after the seconds.

    It gets our environment without our secrets, or another. In a session of its own it can ask
    nothing on the terminal.
    """
    with subprocess.Popen(  # noqa: S603 - the operator's own programs, by words that nothing takes for another
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=child_environment() if environment is None else environment,
        cwd=folder,
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = process.communicate(content, timeout=seconds)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(words, process.returncode, stdout, stderr)
