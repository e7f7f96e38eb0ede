from datetime import datetime
from pathlib import Path

from rollout.adapters.calendar.child import read_in_child
from rollout.adapters.input_files import Trust, read_input
from rollout.adapters.input_trust import hint_of
from rollout.errors import UsageError

# Ten thousand events: some seconds.
_LARGEST = 4 << 20
_HINT = (
    "gates.calendar takes an iCalendar file (.ics), as calendar programs export it. Without such a"
    " file, use gates.freeze."
)


def read_calendar(path: Path, now: datetime, default_zone: str) -> tuple[str, ...]:
    """Return freezes as `2026-12-24T00:00..2026-12-27T00:00`, or `UsageError`.

    Those from two days before `now` to two years after. `default_zone` is empty for this machine's.
    """
    try:
        content = read_input(path, most=_LARGEST, trust=Trust.NOT_WRITABLE_BY_OTHERS)
        answer = read_in_child(content, now, default_zone)
    except OSError as error:
        message = f"cannot read the calendar {path}: {error.strerror}"
        raise UsageError(message, hint=hint_of(error, _HINT)) from error
    if answer.problem:
        message = f"the calendar {path} cannot be read: {answer.problem}"
        raise UsageError(message, hint=answer.hint or _HINT)
    return answer.freezes
