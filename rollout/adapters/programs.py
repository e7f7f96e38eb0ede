import atexit
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from rollout.adapters.secrets import child_environment

# Process groups to kill at exit, which a waiting daemon thread cannot do.
_RUNNING = set[int]()


def run_program(
    words: Sequence[str],
    *,
    seconds: float,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> "subprocess.CompletedProcess[bytes]":
    """Run a program; kill it and all that it started after `seconds`, or at exit.

    By default it gets our environment without secrets. Raises `OSError` and
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
    """Return a program that calls `work` of a module."""
    # -P ignores modules in the current folder, which may be anyone's.
    return (sys.executable, "-P", "-c", f"from {module} import work; work()")


def module_environment() -> dict[str, str]:
    """Return an environment for a child process that needs this process's modules."""
    return child_environment() | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


@contextmanager
def killed_unless_finished(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Kill the process's group if this context raises, or when rollout ends."""
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
    """Send a signal to the processes of a group, if any are left."""
    # macOS says PermissionError of a group that has ended and was not waited for.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


@atexit.register
def kill_programs() -> None:
    """Kill all running programs, also before `os._exit`, which skips `atexit`."""
    for group in tuple(_RUNNING):
        signal_group(group)
