"""Maintenance windows and freezes.

A window `[DAYS] HH:MM DURATION [TIMEZONE]` lasts so long in real time. If the clocks skip its
beginning, it begins as much later; if they repeat it, at the first. The default zone is UTC, so
that a plan means the same on every machine.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Self
from zoneinfo import ZoneInfo

from rollout.errors import UsageError
from rollout.model.gates import WindowPolicy
from rollout.model.policy import Policy
from rollout.model.quantity import Duration

if TYPE_CHECKING:
    from rollout.model.finding import WindowClosed

LONGEST = Duration(7 * 86400)
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_LAST = -1
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "last": _LAST}
_DATE = re.compile(r"(?:\d{4}-)?\d{2}-\d{2}")
_ANY_LEAP_YEAR = 2024
_DAYS_HINT = (
    "Days are mon-fri, sat,sun, last sun, 2026-12-20, 2026-12-20..2027-01-04, or each year"
    " 12-20..01-04."
)

_DAYS = r"(?P<days>[A-Za-z0-9][A-Za-z0-9.,\s-]*?)"
_WINDOW = re.compile(
    rf"(?:{_DAYS}\s+)?(?P<hour>\d{{1,2}}):(?P<minute>\d{{2}})"
    r"\s+(?P<length>\S+)(?:\s+(?P<zone>\S+))?"
)
_MOMENT = r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}"
_MOMENTS = re.compile(rf"(?P<begin>{_MOMENT})\.\.(?P<end>{_MOMENT})(?:\s+(?P<zone>\S+))?")
_HINT = (
    "Write it as [DAYS] HH:MM DURATION [TIMEZONE]: 'mon-fri 22:00 6h Europe/Berlin', or '02:00 3h'"
    " for UTC."
)
_FREEZE_HINT = (
    "Write it as DAYS [HH:MM DURATION] [TIMEZONE]: '2026-12-20..2027-01-04 Europe/Berlin', or 'last"
    " fri'."
)


@dataclass(frozen=True, slots=True)
class Weekdays:
    """Monday is 0; `ordinal` is which ones of a month, 0 for all."""

    numbers: frozenset[int]
    ordinal: int = 0

    def includes(self, day: date) -> bool:
        if day.weekday() not in self.numbers:
            return False
        if self.ordinal == _LAST:
            return (day + timedelta(days=7)).month != day.month
        return self.ordinal in (0, (day.day + 6) // 7)


@dataclass(frozen=True, slots=True)
class Dates:
    """The days from the first to the last (ISO 8601), each year if they have no year."""

    first: str
    last: str

    def includes(self, day: date) -> bool:
        written = day.isoformat()[-len(self.first) :]
        if self.first <= self.last:
            return self.first <= written <= self.last
        return written >= self.first or written <= self.last


Days = Weekdays | Dates
EVERY_DAY = Weekdays(frozenset(range(7)))


@dataclass(frozen=True, slots=True, order=True)
class Opening:
    begin: datetime
    end: datetime

    def holds(self, moment: datetime) -> bool:
        return self.begin <= moment < self.end


@dataclass(frozen=True, slots=True)
class Window:
    """A window or freeze as written. Without a `length` it covers the whole day."""

    days: tuple[Days, ...]
    start: time
    length: Duration | None
    zone: ZoneInfo

    @staticmethod
    def parse(text: str) -> "Window":
        match = _WINDOW.fullmatch(text.strip())
        if match is None:
            raise UsageError(f"{text!r} is not a window", hint=_HINT)
        return _timed_window(match, f"the window {text!r}")

    def openings(self, begin: datetime, end: datetime) -> Iterator[Opening]:
        day = begin.astimezone(self.zone).date()
        last = end.astimezone(self.zone).date()
        while day <= last:
            if any(days.includes(day) for days in self.days):
                yield Opening(self._begin(day), self._end(day))
            day += timedelta(days=1)

    def _begin(self, day: date) -> datetime:
        return datetime.combine(day, self.start, self.zone).astimezone(UTC)

    def _end(self, day: date) -> datetime:
        if self.length is None:
            return self._begin(day + timedelta(days=1))
        return self._begin(day) + timedelta(seconds=self.length)


@dataclass(frozen=True, slots=True)
class DatedFreeze:
    opening: Opening
    zone: ZoneInfo

    def openings(self, begin: datetime, end: datetime) -> Iterator[Opening]:
        def day_of(moment: datetime) -> date:
            return moment.astimezone(self.zone).date()

        begins_in_time = day_of(self.opening.begin) <= day_of(end)
        if begins_in_time and day_of(begin) <= day_of(self.opening.end):
            yield self.opening


Period = Window | DatedFreeze


def parse_freeze(text: str) -> Period:
    where = f"the freeze {text!r}"
    match = _MOMENTS.fullmatch(text.strip())
    if match:
        return _parse_dated_freeze(match, where)
    match = _WINDOW.fullmatch(text.strip())
    if match:
        return _timed_window(match, where)
    # The last word is the time zone, unless it is part of the days.
    days, _, zone = text.strip().rpartition(" ")
    if not days or not ("/" in zone or zone in _zone_names()):
        days = text.strip()
        zone = "UTC"
    if not days:
        raise UsageError(f"{text!r} is not a freeze", hint=_FREEZE_HINT)
    return Window(parse_days(days, where), time(), None, _parse_zone(zone, where))


def _timed_window(match: re.Match[str], where: str) -> Window:
    days = parse_days(match["days"], where) if match["days"] else (EVERY_DAY,)
    return Window(
        days,
        _parse_time(int(match["hour"]), int(match["minute"]), where),
        _parse_length(match["length"], where),
        _parse_zone(match["zone"] or "UTC", where),
    )


def _parse_dated_freeze(match: re.Match[str], where: str) -> DatedFreeze:
    zone = _parse_zone(match["zone"] or "UTC", where)
    try:
        begin = datetime.fromisoformat(match["begin"]).replace(tzinfo=zone)
        end = datetime.fromisoformat(match["end"]).replace(tzinfo=zone)
        opening = Opening(begin.astimezone(UTC), end.astimezone(UTC))
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"{where} has a moment that does not exist: {error}", hint=_FREEZE_HINT
        ) from error
    if opening.begin >= opening.end:
        raise UsageError(f"{where} ends before it begins", hint="Write the earlier moment first.")
    return DatedFreeze(opening, zone)


def join_overlapping(openings: Iterable[Opening]) -> list[Opening]:
    joined: list[Opening] = []
    for opening in sorted(openings):
        if joined and opening.begin <= joined[-1].end:
            joined[-1] = Opening(joined[-1].begin, max(joined[-1].end, opening.end))
        else:
            joined.append(opening)
    return joined


def _parse_time(hour: int, minute: int, where: str) -> time:
    try:
        return time(hour, minute)
    except ValueError as error:
        raise UsageError(
            f"{hour}:{minute:02} in {where} is not a time of day", hint=_HINT
        ) from error


def _parse_length(written: str, where: str) -> Duration:
    length = Duration.parse(written)
    if not 0 < length <= LONGEST:
        raise UsageError(f"{where} must last longer than 0s and at most a week", hint=_HINT)
    return length


def check_zone(name: str, where: str = "") -> str:
    """Return the name of an IANA time zone, or raise `UsageError` with `where`."""
    if name not in _zone_names():
        close = get_close_matches(name, _zone_names(), n=1, cutoff=0.9)
        hint = "Write it as in the IANA database: Europe/Berlin, UTC."
        if close:
            hint = f"Did you mean {close[0]}?"
        raise UsageError(f"{name!r}{where} is not in the IANA time zone database", hint=hint)
    return name


def _parse_zone(name: str, where: str) -> ZoneInfo:
    return ZoneInfo(check_zone(name, f" in {where}"))


@cache
def _zone_names() -> frozenset[str]:
    return frozenset(
        resources.files("tzdata").joinpath("zones").read_text(encoding="ascii").split()
    )


def parse_days(written: str, where: str) -> tuple[Days, ...]:
    days = tuple(_parse_days_or_dates(part.strip(), where) for part in written.split(","))
    if len({bool(item.ordinal) for item in days if isinstance(item, Weekdays)}) > 1:
        raise UsageError(
            f"{where} has days of each week beside days of the month",
            hint=(
                "Write the word before each: first sat,first sun. If every sun is meant, write it"
                " as another one."
            ),
        )
    return days


def _parse_days_or_dates(part: str, where: str) -> Days:
    if part[:1].isdigit():
        return _parse_dates(part, where)
    word, _, weekday = part.partition(" ")
    ordinal = _ORDINALS.get(word.lower())
    if ordinal:
        return Weekdays(frozenset({_weekday_number(weekday.strip(), where)}), ordinal)
    return Weekdays(frozenset(_parse_weekdays(part, where)))


def _parse_dates(part: str, where: str) -> Dates:
    first, dots, last = (piece.strip() for piece in part.partition(".."))
    dates = Dates(first, last if dots else first)
    for written in (dates.first, dates.last):
        _check_date(written, where)
    if len(dates.first) != len(dates.last):
        raise UsageError(
            f"{part!r} in {where} has one year", hint="Write both, or neither for each year."
        )
    has_years = len(dates.first) == len(date.min.isoformat())
    if has_years and dates.first > dates.last:
        raise UsageError(
            f"{part!r} in {where} ends before it begins", hint="Write the earlier date first."
        )
    return dates


def _check_date(written: str, where: str) -> None:
    has_year = len(written) > len("MM-DD")
    dated = written if has_year else f"{_ANY_LEAP_YEAR}-{written}"
    if not _DATE.fullmatch(written) or not _exists(dated):
        raise UsageError(f"{written!r} in {where} is not a date", hint=_DAYS_HINT)


def _exists(day: str) -> bool:
    try:
        date.fromisoformat(day)
    except ValueError:
        return False
    return True


def _parse_weekdays(part: str, where: str) -> Iterator[int]:
    first, dash, last = (piece.strip() for piece in part.partition("-"))
    begin = _weekday_number(first, where)
    end = _weekday_number(last if dash else first, where)
    number = (end - begin) % 7 + 1
    return ((begin + step) % 7 for step in range(number))


def _weekday_number(name: str, where: str) -> int:
    numbers = [index for index, day in enumerate(WEEKDAYS) if name.lower() in (day, day[:3])]
    if not numbers:
        raise UsageError(f"{name!r} in {where} is not a day of the week", hint=_DAYS_HINT)
    return numbers[0]


# For weekly windows, monthly ones, and those with dates.
_DAYS_AHEAD = (9, 62, 800)
# A window lasts a week at most.
_DAYS_BACK = timedelta(days=9)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Windows, and freezes by their texts, which win over them."""

    windows: tuple[Period, ...] = ()
    freezes: Mapping[str, Period] = field(default_factory=dict)
    pool_windows: tuple[Period, ...] = ()

    @classmethod
    def of(cls, policy: WindowPolicy) -> Self:
        return cls(
            tuple(map(Window.parse, policy.windows)),
            {text: parse_freeze(text) for text in policy.freezes},
        )

    def in_pool(self, policy: Policy, pool: str) -> Self:
        written = next((rules.window for rules in policy.pools if rules.name == pool), ())
        return replace(self, pool_windows=tuple(map(Window.parse, written)))

    def __bool__(self) -> bool:
        return bool(self.windows or self.freezes or self.pool_windows)

    def current(self, now: datetime) -> Opening | None:
        """Return the current opening, joined with adjacent ones, or None."""
        return next(
            (opening for opening in self._around(now, _DAYS_AHEAD[0]) if opening.holds(now)), None
        )

    def following(self, now: datetime) -> Opening | None:
        return self._find_first(now, lambda opening: opening.begin > now)

    def fits_ever(self, now: datetime, seconds: float) -> bool:
        long_enough = self._find_first(
            now, lambda opening: (opening.end - opening.begin).total_seconds() >= seconds
        )
        return long_enough is not None

    def next_freeze(self, now: datetime) -> Opening | None:
        return Schedule(tuple(self.freezes.values())).following(now) if self.freezes else None

    def active_freezes(self, now: datetime) -> tuple[str, ...]:
        active = list[str]()
        for text, freeze in self.freezes.items():
            openings = _openings_near([freeze], now - _DAYS_BACK, now)
            if any(opening.holds(now) for opening in openings):
                active.append(text)
        return tuple(active)

    def why_closed(self, now: datetime) -> "WindowClosed | None":
        # Each start imports this module, and needs no findings.
        from rollout.model.finding import WindowClosed  # noqa: PLC0415

        if not self or self.current(now):
            return None
        return WindowClosed(self.active_freezes(now), self.next_opening(now))

    def next_opening(self, now: datetime) -> str:
        upcoming = self.following(now)
        return self.written_time(upcoming.begin) if upcoming else ""

    def written_time(self, moment: datetime) -> str:
        zone = (*self.pool_windows, *self.windows, *self.freezes.values())[0].zone
        return f"{moment.astimezone(zone):%a %Y-%m-%d %H:%M %Z}"

    def ahead(self, now: datetime) -> list[Opening]:
        return [opening for opening in self._around(now, _DAYS_AHEAD[-1]) if opening.end > now]

    def openings(self, begin: datetime, end: datetime) -> list[Opening]:
        start = begin - _DAYS_BACK
        opened = _openings_near(self.windows, start, end) if self.windows else [Opening(start, end)]
        if self.pool_windows:
            opened_for_pool = _openings_near(self.pool_windows, start, end)
            closed_for_pool = _subtract(opened, opened_for_pool)
            opened = _subtract(opened, closed_for_pool)
        freezes = _openings_near(self.freezes.values(), start - _DAYS_BACK, end + _DAYS_BACK)
        return _subtract(opened, freezes)

    def _around(self, now: datetime, days: int) -> list[Opening]:
        return self.openings(now, now + timedelta(days=days))

    def _find_first(self, now: datetime, condition: Callable[[Opening], bool]) -> Opening | None:
        # Most openings are near, and a longer look ahead takes longer.
        openings = (opening for days in _DAYS_AHEAD for opening in self._around(now, days))
        return next(filter(condition, openings), None)


def _openings_near(periods: Iterable[Period], begin: datetime, end: datetime) -> list[Opening]:
    return join_overlapping(
        opening for period in periods for opening in period.openings(begin, end)
    )


def _subtract(openings: Iterable[Opening], closed: Sequence[Opening]) -> list[Opening]:
    return [part for opening in openings for part in _open_parts(opening, closed)]


def _open_parts(opening: Opening, closed: Sequence[Opening]) -> Iterator[Opening]:
    begin = opening.begin
    for period in closed:
        if begin < period.begin < opening.end:
            yield Opening(begin, period.begin)
        if period.begin < opening.end:
            begin = max(begin, period.end)
    if begin < opening.end:
        yield Opening(begin, opening.end)
