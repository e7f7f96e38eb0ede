"""Reads two years' events from an iCalendar file (RFC 5545), as freezes.

What is not understood is an error: a freeze would be missing. CPU time is limited.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

from rollout.adapters.calendar.events import CalendarEvent
from rollout.adapters.calendar.lines import Block, ContentLine, TimeLimit, read_calendar_block
from rollout.adapters.calendar.zones import read_zones
from rollout.adapters.input_files import Trust, read_input
from rollout.errors import UsageError
from rollout.planning.eligibility.windows import Interval, join_overlapping

_LOOK_BACK = timedelta(days=2)
_LOOK_AHEAD = timedelta(days=731)
_CPU_SECONDS = 20.0
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


def read_calendar(
    path: Path, now: datetime, zone: tzinfo, *, seconds: float = _CPU_SECONDS
) -> tuple[str, ...]:
    """Return the events around and after `now`, in the form of `gates.freeze`.

    `zone` is for a calendar that names none. `UsageError` if the file is invalid.
    """
    try:
        content = read_input(path, most=_LARGEST, trust=Trust.OPERATOR)
    except OSError as error:
        message = f"cannot read the calendar {path}: {error.strerror}"
        raise UsageError(message, hint=_HINT) from error
    horizon = Interval(now - _LOOK_BACK, now + _LOOK_AHEAD)
    try:
        freezes = join_overlapping(_read_occurrences(content, horizon, zone, TimeLimit.of(seconds)))
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        # A CalendarError is a ValueError; libraries raise the others for invalid files.
        raise UsageError(f"the calendar {path} cannot be read: {error}", hint=_HINT) from error
    return tuple(
        f"{_round_down(item.begin)}..{_round_down(item.end + _ALMOST_A_MINUTE)}" for item in freezes
    )


def _round_down(moment: datetime) -> str:
    return moment.replace(tzinfo=None).isoformat(timespec="minutes")


def _read_occurrences(
    content: bytes, horizon: Interval, zone: tzinfo, time_limit: TimeLimit
) -> Iterator[Interval]:
    calendar = read_calendar_block(content)
    zones = read_zones(calendar, time_limit, zone)
    _check_calendar(calendar)
    events = [CalendarEvent(block, zones) for block in calendar.blocks if block.name == "VEVENT"]
    for event in events:
        event.check()
        time_limit.check(event.block)
    replaced = _replaced_occurrences(events)
    for event in events:
        replaced_of_event = () if event.replaced else replaced.get(event.uid, ())
        for occurrence in event.occurrences(replaced_of_event, horizon):
            if occurrence is not None and not event.is_cancelled:
                yield occurrence
            time_limit.check(event.block)


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
