"""Reads a calendar in a process with limits: libraries can take hours."""

import resource
import signal
import subprocess
import sys
from datetime import datetime, timedelta
from typing import NoReturn

import msgspec

from rollout.adapters.calendar.lines import TOO_LONG, OutOfTimeError
from rollout.adapters.calendar.occurrences import read_occurrences
from rollout.adapters.programs import module_environment, run_program, worker_program
from rollout.errors import UsageError
from rollout.model.timestamps import Interval
from rollout.planning.eligibility.windows import join_overlapping

_LOOK_BACK = timedelta(days=2)
_LOOK_AHEAD = timedelta(days=731)
_ALMOST_A_MINUTE = timedelta(seconds=59)
_CPU_SECONDS = 20
_LONGEST_WAIT = 600.0
_MOST_MEMORY = 1 << 30
_PROGRAM = worker_program(__name__)


class _Task(msgspec.Struct):
    content: bytes
    now: datetime
    default_zone: str
    cpu_seconds: int


class Answer(msgspec.Struct):
    """The freezes of a calendar, or why it has none."""

    freezes: tuple[str, ...] = ()
    problem: str = ""
    hint: str = ""


def read_in_child(content: bytes, now: datetime, default_zone: str) -> Answer:
    """Read a calendar in a child process. Raises `OSError`."""
    try:
        process = run_program(
            _PROGRAM,
            seconds=_LONGEST_WAIT,
            stdin=msgspec.msgpack.encode(_Task(content, now, default_zone, _CPU_SECONDS)),
            environment=module_environment(),
        )
    except subprocess.TimeoutExpired:
        return Answer(problem=TOO_LONG)
    if process.returncode < 0:
        return Answer(problem=TOO_LONG)
    if process.returncode:
        *_, last_line = process.stderr.decode(errors="replace").splitlines() or [""]
        return Answer(problem=last_line or "the process that reads it failed")
    return msgspec.msgpack.decode(process.stdout, type=Answer)


def work() -> None:
    """Do the task on stdin, in the child process."""
    task = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=_Task)
    signal.signal(signal.SIGXCPU, _raise_out_of_time)
    # In case a library catches the exception.
    _limit(resource.RLIMIT_CPU, task.cpu_seconds, task.cpu_seconds + 1)
    if sys.platform != "darwin":
        _limit(resource.RLIMIT_AS, _MOST_MEMORY, _MOST_MEMORY)
    answer = read_here(task.content, task.now, task.default_zone)
    sys.stdout.buffer.write(msgspec.msgpack.encode(answer))


def _limit(kind: int, soft: int, hard: int) -> None:
    _, highest = resource.getrlimit(kind)
    if highest != resource.RLIM_INFINITY:
        soft = min(soft, highest)
        hard = min(hard, highest)
    resource.setrlimit(kind, (soft, hard))


def _raise_out_of_time(*_: object) -> NoReturn:
    raise OutOfTimeError


def read_here(content: bytes, now: datetime, default_zone: str) -> Answer:
    """Read a calendar here, which may take hours."""
    horizon = Interval(now - _LOOK_BACK, now + _LOOK_AHEAD)
    try:
        freezes = join_overlapping(read_occurrences(content, horizon, default_zone))
        return Answer(tuple(map(_freeze_text, freezes)))
    except UsageError as error:
        return Answer(problem=error.message, hint=error.hint)
    except (OutOfTimeError, MemoryError):
        return Answer(problem=TOO_LONG)
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        # From libraries, for invalid files; or CalendarError.
        return Answer(problem=str(error))


def _freeze_text(interval: Interval) -> str:
    """Round outwards to minutes."""
    return f"{_minute(interval.begin)}..{_minute(interval.end + _ALMOST_A_MINUTE)}"


def _minute(moment: datetime) -> str:
    return moment.replace(tzinfo=None).isoformat(timespec="minutes")
