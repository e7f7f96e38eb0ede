"""Freezes from an iCalendar file (RFC 5545): every event that is not cancelled, for two years ahead.

An all-day event is of the calendar's own timezone (X-WR-TIMEZONE), and of UTC where it has none; so are times without
one. Overlapping events are one freeze. What cannot be read is an error, never a freeze less.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from rollout.errors import UsageError
from rollout.planning.eligibility.windows import Opening, checked_zone, join

if TYPE_CHECKING:
    from icalendar import Event

_BEHIND, _AHEAD = timedelta(days=2), timedelta(days=731)
_TOO_OFTEN = ("SECONDLY", "MINUTELY", "HOURLY")
_READ = frozenset({"DTSTART", "DTEND", "DURATION", "RRULE", "RDATE", "EXDATE", "RECURRENCE-ID", "STATUS"})
_HINT = "gates.calendar takes an iCalendar file (.ics), as calendars export it. Without one: gates.freeze."


def read_calendar(path: Path, now: datetime) -> tuple[str, ...]:
    """Return the events around and after `now`, as freezes are written; `UsageError` says what cannot be read."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the calendar {path}: {error.strerror}", hint=_HINT) from error
    horizon = Opening(now - _BEHIND, now + _AHEAD)
    try:
        freezes = join(_openings(content, horizon))
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        # icalendar's own errors are ValueErrors; the others are what it meets in a file that none has made
        raise UsageError(f"the calendar {path} cannot be read: {error}", hint=_HINT) from error
    return tuple(f"{_minute(item.begin)}..{_minute(item.end + timedelta(seconds=59))}" for item in freezes)


def _minute(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M}"


def _openings(content: bytes, horizon: Opening) -> Iterator[Opening]:
    from icalendar import Calendar  # noqa: PLC0415 - read where there is a calendar, and nowhere else

    calendar = Calendar.from_ical(content.decode("utf-8-sig"))
    zone = ZoneInfo(checked_zone(str(calendar.get("X-WR-TIMEZONE", "UTC")), " (X-WR-TIMEZONE)"))
    # the occurrences that have events of their own, by the UID of the event that repeats
    replaced = defaultdict[str, list[date]](list)
    for event in calendar.events:
        if "RECURRENCE-ID" in event:
            replaced[str(event.get("UID", ""))].append(event.decoded("RECURRENCE-ID"))
    for event in calendar.events:
        name = f"the event {str(event.get('SUMMARY', ''))[:60]!r}"
        if broken := [error for name, error in event.errors if name in _READ]:
            raise ValueError(f"{name}: {broken[0]}")
        if str(event.get("STATUS", "")).upper() != "CANCELLED":
            own = () if "RECURRENCE-ID" in event else replaced.get(str(event.get("UID", "")), ())
            yield from _times(event, zone, own, horizon)


def _times(event: "Event", calendars: ZoneInfo, replaced: Iterable[date], horizon: Opening) -> Iterator[Opening]:
    """When it takes place within the horizon. Occurrences follow the wall clocks of its own timezone."""
    start, end = event.start, event.end
    zone = (isinstance(start, datetime) and start.tzinfo) or calendars
    first, days = _wall(start, zone), end - start
    if days < timedelta():
        raise ValueError(f"an event of {start} ends before it begins")
    # of a day, its midnights count; of a time, how long it really lasts
    lasts = days if not isinstance(start, datetime) else _moment(_wall(end, zone), zone) - _moment(first, zone)
    for begin in _occurrences(event, first, zone, replaced, horizon):
        opening = _moment(begin, zone)
        ending = opening + lasts if isinstance(start, datetime) else _moment(begin + days, zone)
        if opening < ending and opening < horizon.end and horizon.begin < ending:
            yield Opening(opening, ending)


def _occurrences(
    event: "Event", first: datetime, zone: tzinfo, replaced: Iterable[date], horizon: Opening
) -> Iterator[datetime]:
    from dateutil.rrule import rruleset, rrulestr  # noqa: PLC0415

    times = rruleset()
    times.rdate(first)
    for rule in event.rrules:
        if any(word in _TOO_OFTEN for word in rule.get("FREQ", ())):
            raise ValueError(f"{rule.to_ical().decode()!r} repeats more often than daily")
        until = rule.pop("UNTIL", None)
        repeats = rrulestr(rule.to_ical().decode(), dtstart=first)
        times.rrule(repeats.replace(until=_wall(until[0], zone, latest=True)) if until else repeats)
    for added in event.rdates:
        times.rdate(_wall(added[0] if isinstance(added, tuple) else added, zone))
    for left_out in (*event.exdates, *replaced):
        times.exdate(_wall(left_out, zone))
    last = _wall(horizon.end, zone)
    for begin in times:
        if begin > last:
            return
        yield begin


def _wall(moment: date, zone: tzinfo, *, latest: bool = False) -> datetime:
    """Return what the clocks of the zone show; of a day its midnight, or the `latest` time."""
    if not isinstance(moment, datetime):
        return datetime.combine(moment, datetime.max.time() if latest else datetime.min.time())
    return moment.astimezone(zone).replace(tzinfo=None) if moment.tzinfo else moment


def _moment(wall: datetime, zone: tzinfo) -> datetime:
    return wall.replace(tzinfo=zone).astimezone(UTC)
