"""Reads two years' events from an iCalendar file, as freezes."""

from datetime import datetime
from pathlib import Path

from rollout.adapters.calendar.child import read_in_child
from rollout.adapters.input_files import Trust, read_input
from rollout.adapters.input_trust import hint_of
from rollout.errors import UsageError

# Ten thousand events, which take some seconds.
_LARGEST = 4 << 20
_HINT = (
    "gates.calendar takes an iCalendar file (.ics), as calendars export it. Without one:"
    " gates.freeze."
)


def read_calendar(path: Path, now: datetime, zone: str) -> tuple[str, ...]:
    """Return the events around and after `now`, in the form of `gates.freeze`.

    `zone` is for a calendar that names none; empty for this machine's. `UsageError` if the file is
    invalid.
    """
    try:
        content = read_input(path, most=_LARGEST, trust=Trust.NOT_WRITABLE_BY_OTHERS)
        answer = read_in_child(content, now, zone)
    except OSError as error:
        message = f"cannot read the calendar {path}: {error.strerror}"
        raise UsageError(message, hint=hint_of(error, _HINT)) from error
    if answer.problem:
        problem = f"the calendar {path} cannot be read: {answer.problem}"
        raise UsageError(problem, hint=answer.hint or _HINT)
    return answer.freezes
