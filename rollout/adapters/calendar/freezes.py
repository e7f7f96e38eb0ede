"""Reads the next two years' events from an iCalendar file (RFC 5545), as freezes.

What is not understood is an error, because a freeze would be missing. CPU time is limited.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

from rollout.adapters.calendar.events import CalendarEvent
from rollout.adapters.calendar.lines import Block, ContentLine, Patience, read_calendar_block
from rollout.adapters.calendar.zones import read_zones
from rollout.adapters.input_files import Trust, read_input
from rollout.errors import UsageError
from rollout.planning.eligibility.windows import Interval, join_overlapping

_PAST = timedelta(days=2)
_FUTURE = timedelta(days=731)
_SECONDS = 20.0
# Ten thousand events, which take some seconds.
_LARGEST = 4 << 20
_ROUNDS_UP = timedelta(seconds=59)
_HINT = (
    "gates.calendar takes an iCalendar file (.ics), as calendars export it. Without one:"
    " gates.freeze."
)
# Other methods do not list events: they answer or change.
_METHODS = ("PUBLISH", "REQUEST")
_NO_EVENTS = frozenset({"VTIMEZONE", "VTODO", "VJOURNAL"})


def read_calendar(
    path: Path, now: datetime, zone: tzinfo, *, seconds: float = _SECONDS
) -> tuple[str, ...]:
    """Return the events around and after `now`, in the form of `gates.freeze`.

    `zone` is for a calendar that names none. `UsageError` if the file is invalid.
    """
    try:
        content = read_input(path, most=_LARGEST, trust=Trust.OPERATOR)
    except OSError as error:
        message = f"cannot read the calendar {path}: {error.strerror}"
        raise UsageError(message, hint=_HINT) from error
    horizon = Interval(now - _PAST, now + _FUTURE)
    try:
        freezes = join_overlapping(_openings(content, horizon, zone, Patience.of(seconds)))
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        # A CalendarError is a ValueError. Libraries raise the others for invalid files.
        raise UsageError(f"the calendar {path} cannot be read: {error}", hint=_HINT) from error
    return tuple(f"{_minute(item.begin)}..{_minute(item.end + _ROUNDS_UP)}" for item in freezes)


def _minute(moment: datetime) -> str:
    return moment.replace(tzinfo=None).isoformat(timespec="minutes")


def _openings(
    content: bytes, horizon: Interval, zone: tzinfo, patience: Patience
) -> Iterator[Interval]:
    calendar = read_calendar_block(content)
    zones = read_zones(calendar, patience, zone)
    _check_calendar(calendar)
    events = [CalendarEvent(block, zones) for block in calendar.blocks if block.name == "VEVENT"]
    for event in events:
        event.check()
        patience.check(event.block)
    replaced = _replaced_occurrences(events)
    for event in events:
        own = () if event.replaced else replaced.get(event.uid, ())
        for opening in event.openings(own, horizon):
            if opening is not None and not event.is_cancelled:
                yield opening
            patience.check(event.block)


def _replaced_occurrences(events: Sequence[CalendarEvent]) -> dict[str, list[ContentLine]]:
    """Return replaced occurrences by UID."""
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
    allowed = {"VERSION": ("2.0",), "CALSCALE": ("GREGORIAN",), "METHOD": _METHODS}
    for name, values in allowed.items():
        line = calendar.one(name)
        if line and line.value.strip().upper() not in values:
            line.refuse(f"{name} has to be {' or '.join(values)} if it is given")
    for block in calendar.blocks:
        is_known = block.name == "VEVENT" or block.name in _NO_EVENTS
        if not is_known and not block.name.startswith("X-"):
            block.refuse("it is not understood: freezes are made of VEVENT")
