"""Reads events of an iCalendar file.

What is not understood is an error: a freeze would be missing.
"""

from collections.abc import Iterator, Sequence

from rollout.adapters.calendar.events import CalendarEvent
from rollout.adapters.calendar.lines import Block, ContentLine, read_calendar_block
from rollout.adapters.calendar.zones import read_zones
from rollout.model.text import grouped
from rollout.model.timestamps import Interval

_LISTING_METHODS = ("PUBLISH", "REQUEST")
_IGNORED_BLOCKS = frozenset({"VTIMEZONE", "VTODO", "VJOURNAL"})


def read_occurrences(content: bytes, horizon: Interval, default_zone: str) -> Iterator[Interval]:
    """Yield when events take place."""
    calendar = read_calendar_block(content)
    zones = read_zones(calendar, default_zone)
    _check_calendar(calendar)
    events = [CalendarEvent(block, zones) for block in calendar.blocks if block.name == "VEVENT"]
    for event in events:
        with event.block.blamed_for_timeout():
            event.check()
    replaced = _replaced_occurrences(events)
    for event in events:
        replaced_of_event = () if event.recurrence_id else replaced.get(event.uid, ())
        with event.block.blamed_for_timeout():
            occurrences = list(event.occurrences(replaced_of_event, horizon))
        # Evaluated for its errors.
        if not event.is_cancelled:
            yield from occurrences


def _replaced_occurrences(events: Sequence[CalendarEvent]) -> dict[str, list[ContentLine]]:
    replaced = grouped((event.uid, event.recurrence_id) for event in events if event.recurrence_id)
    repeating = set[str]()
    for event in events:
        if event.recurrence_id or event.uid not in replaced:
            continue
        if event.uid in repeating:
            event.block.refuse("two events have the same UID, and a third replaces an occurrence")
        repeating.add(event.uid)
    return replaced


def _check_calendar(calendar: Block) -> None:
    allowed = {"VERSION": ("2.0",), "CALSCALE": ("GREGORIAN",), "METHOD": _LISTING_METHODS}
    for name, values in allowed.items():
        line = calendar.one(name)
        if line and line.value.strip().upper() not in values:
            line.refuse(f"{name} must be {' or '.join(values)} if it is specified")
    for block in calendar.blocks:
        is_known = block.name == "VEVENT" or block.name in _IGNORED_BLOCKS
        if not is_known and not block.name.startswith("X-"):
            block.refuse("it is not supported: freezes are read from VEVENT components")
