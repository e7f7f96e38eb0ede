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
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> "subprocess.CompletedProcess[bytes]":
    """Run a program; kill it and all that it started after `seconds`.

    By default it gets our environment without secrets. Raises `OSError` and
    `subprocess.TimeoutExpired`.
    """
    with subprocess.Popen(  # noqa: S603 - the operator's own programs, without a shell
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=child_environment() if environment is None else environment,
        cwd=folder,
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = process.communicate(stdin, timeout=seconds)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(words, process.returncode, stdout, stderr)
