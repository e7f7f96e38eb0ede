"""Reads two years' events from an iCalendar file (RFC 5545), as freezes.

What is not understood is an error: a freeze would be missing. A file can be small and still take
hours, in libraries, so it is read in a process with limits on CPU time and memory.
"""

import resource
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NoReturn

import msgspec

from rollout.adapters.calendar.events import CalendarEvent
from rollout.adapters.calendar.lines import (
    TOO_LONG,
    Block,
    ContentLine,
    OutOfTimeError,
    read_calendar_block,
)
from rollout.adapters.calendar.zones import read_zones
from rollout.adapters.input_files import Trust, read_input
from rollout.adapters.input_trust import hint_of
from rollout.adapters.programs import module_environment, run_program
from rollout.errors import UsageError
from rollout.model.timestamps import Interval
from rollout.planning.eligibility.windows import join_overlapping

_LOOK_BACK = timedelta(days=2)
_LOOK_AHEAD = timedelta(days=731)
_CPU_SECONDS = 20
# A busy machine refuses no calendar.
_LONGEST_WAIT = 600.0
_MOST_MEMORY = 1 << 30
# -P ignores modules in the current folder, which may be anyone's.
_PROGRAM = (
    sys.executable,
    "-P",
    "-c",
    "from rollout.adapters.calendar.freezes import work; work()",
)
# Ten thousand events, which take some seconds.
_LARGEST = 4 << 20
_ALMOST_A_MINUTE = timedelta(seconds=59)
_HINT = (
    "gates.calendar takes an iCalendar file (.ics), as calendars export it. Without one:"
    " gates.freeze."
)
# Other methods do not list events.
_LISTING_METHODS = ("PUBLISH", "REQUEST")
_IGNORED_BLOCKS = frozenset({"VTIMEZONE", "VTODO", "VJOURNAL"})


class _Task(msgspec.Struct):
    content: bytes
    now: datetime
    zone: str
    cpu_seconds: int


class _Answer(msgspec.Struct):
    """The freezes of a calendar, or why it has none."""

    freezes: tuple[str, ...] = ()
    problem: str = ""
    hint: str = _HINT


def read_calendar(path: Path, now: datetime, zone: str) -> tuple[str, ...]:
    """Return the events around and after `now`, in the form of `gates.freeze`.

    `zone` is for a calendar that names none; empty for this machine's. `UsageError` if the file is
    invalid.
    """
    try:
        content = read_input(path, most=_LARGEST, trust=Trust.NOT_WRITABLE_BY_OTHERS)
        answer = _read_in_child(_Task(content, now, zone, _CPU_SECONDS))
    except OSError as error:
        message = f"cannot read the calendar {path}: {error.strerror}"
        raise UsageError(message, hint=hint_of(error, _HINT)) from error
    if answer.problem:
        problem = f"the calendar {path} cannot be read: {answer.problem}"
        raise UsageError(problem, hint=answer.hint)
    return answer.freezes


def _read_in_child(task: _Task) -> _Answer:
    try:
        process = run_program(
            _PROGRAM,
            seconds=_LONGEST_WAIT,
            stdin=msgspec.msgpack.encode(task),
            environment=module_environment(),
        )
    except subprocess.TimeoutExpired:
        return _Answer(problem=TOO_LONG)
    if process.returncode < 0:
        return _Answer(problem=TOO_LONG)
    if process.returncode:
        *_, last_line = process.stderr.decode(errors="replace").splitlines() or [""]
        return _Answer(problem=last_line or "its reader failed")
    return msgspec.msgpack.decode(process.stdout, type=_Answer)


def work() -> None:
    """Read the calendar of the task on stdin, as the program of the child process."""
    task = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=_Task)
    signal.signal(signal.SIGXCPU, _stop)
    # One more second, if a library catches the exception.
    _limit(resource.RLIMIT_CPU, task.cpu_seconds, task.cpu_seconds + 1)
    # macOS has no such limit.
    if sys.platform != "darwin":
        _limit(resource.RLIMIT_AS, _MOST_MEMORY, _MOST_MEMORY)
    sys.stdout.buffer.write(msgspec.msgpack.encode(_read_task(task)))


def _limit(kind: int, soft: int, hard: int) -> None:
    """Set a limit of this process, or keep a lower one."""
    _, highest = resource.getrlimit(kind)
    if highest != resource.RLIM_INFINITY:
        soft, hard = min(soft, highest), min(hard, highest)
    resource.setrlimit(kind, (soft, hard))


def _stop(*_: object) -> NoReturn:
    raise OutOfTimeError


def _read_task(task: _Task) -> _Answer:
    horizon = Interval(task.now - _LOOK_BACK, task.now + _LOOK_AHEAD)
    try:
        freezes = join_overlapping(_read_occurrences(task.content, horizon, task.zone))
        return _Answer(
            tuple(
                f"{_round_down(item.begin)}..{_round_down(item.end + _ALMOST_A_MINUTE)}"
                for item in freezes
            )
        )
    except UsageError as error:
        return _Answer(problem=error.message, hint=error.hint)
    except (OutOfTimeError, MemoryError):
        return _Answer(problem=TOO_LONG)
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        # A CalendarError is a ValueError; libraries raise the others for invalid files.
        return _Answer(problem=str(error))


def _round_down(moment: datetime) -> str:
    return moment.replace(tzinfo=None).isoformat(timespec="minutes")


def _read_occurrences(content: bytes, horizon: Interval, zone: str) -> Iterator[Interval]:
    calendar = read_calendar_block(content)
    zones = read_zones(calendar, zone)
    _check_calendar(calendar)
    events = [CalendarEvent(block, zones) for block in calendar.blocks if block.name == "VEVENT"]
    for event in events:
        with event.block.in_time():
            event.check()
    replaced = _replaced_occurrences(events)
    for event in events:
        replaced_of_event = () if event.replaced else replaced.get(event.uid, ())
        with event.block.in_time():
            occurrences = list(event.occurrences(replaced_of_event, horizon))
        if not event.is_cancelled:
            yield from occurrences


def _replaced_occurrences(events: Sequence[CalendarEvent]) -> dict[str, list[ContentLine]]:
    replaced = defaultdict[str, list[ContentLine]](list)
    for event in events:
        if event.replaced:
            replaced[event.uid].append(event.replaced)
    repeating = set[str]()
    for event in events:
        if event.replaced or event.uid not in replaced:
            continue
        if event.uid in repeating:
            event.block.refuse("two events have one UID, and another event replaces an occurrence")
        repeating.add(event.uid)
    return replaced


def _check_calendar(calendar: Block) -> None:
    allowed = {"VERSION": ("2.0",), "CALSCALE": ("GREGORIAN",), "METHOD": _LISTING_METHODS}
    for name, values in allowed.items():
        line = calendar.one(name)
        if line and line.value.strip().upper() not in values:
            line.refuse(f"{name} has to be {' or '.join(values)} if it is given")
    for block in calendar.blocks:
        is_known = block.name == "VEVENT" or block.name in _IGNORED_BLOCKS
        if not is_known and not block.name.startswith("X-"):
            block.refuse("it is not understood: freezes are made of VEVENT")
