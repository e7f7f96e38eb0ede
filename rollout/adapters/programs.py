import atexit
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from rollout.adapters.secrets import child_environment

# Killed at exit, because a daemon thread cannot.
_RUNNING = set[int]()


def run_program(
    words: Sequence[str],
    *,
    seconds: float,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> "subprocess.CompletedProcess[bytes]":
    """Run a program; kill all that it started after `seconds`, or at exit.

    By default, the environment is ours without secrets. Raises `OSError` and
    `subprocess.TimeoutExpired`.
    """
    process = subprocess.Popen(  # noqa: S603 - the operator's own programs, without a shell
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=child_environment() if environment is None else environment,
        cwd=folder,
        start_new_session=True,
    )
    with process, killed_unless_finished(process):
        stdout, stderr = process.communicate(stdin, timeout=seconds)
    return subprocess.CompletedProcess(words, process.returncode, stdout, stderr)


def worker_program(module: str) -> tuple[str, ...]:
    """Return a program that calls a module's `work`."""
    # -P ignores the current folder, which may be anyone's.
    return (sys.executable, "-P", "-c", f"from {module} import work; work()")


def module_environment() -> dict[str, str]:
    """Let a child process import what this process can."""
    return child_environment() | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


@contextmanager
def killed_unless_finished(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Kill its group if this context raises, or at exit."""
    _RUNNING.add(process.pid)
    try:
        yield
    except BaseException:
        signal_group(process.pid)
        process.wait()
        raise
    finally:
        _RUNNING.discard(process.pid)


def signal_group(group: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Signal the processes that are left."""
    # PermissionError: on macOS, the group has ended.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


@atexit.register
def kill_programs() -> None:
    """Kill all, also before `os._exit`, which skips `atexit`."""
    for group in tuple(_RUNNING):
        signal_group(group)
