"""Maintenance windows and freezes.

A window's duration (`[DAYS] HH:MM DURATION [ZONE]`) is real time. If clocks skip its start, it
starts as much later; if they show it twice, at the first. The default zone is UTC, on every
machine.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Self
from zoneinfo import ZoneInfo

from msgspec import Struct, field
from msgspec.structs import replace

from rollout.errors import UsageError
from rollout.model.gates import WindowPolicy
from rollout.model.policy import Policy
from rollout.model.quantity import Duration
from rollout.model.timestamps import Interval

if TYPE_CHECKING:
    from rollout.model.finding import NoWindowAhead, WindowClosed

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
    "Write it as [DAYS] HH:MM DURATION [ZONE]: 'mon-fri 22:00 6h Europe/Berlin', or '02:00 3h'"
    " for UTC."
)
_FREEZE_HINT = (
    "Write it as DAYS [HH:MM DURATION] [ZONE]: '2026-12-20..2027-01-04 Europe/Berlin', or 'last"
    " fri'."
)


class Weekdays(Struct, frozen=True):
    """Days of each week (Monday is 0) or, with an ordinal, of each month.

    The ordinal says which weekday of the month; -1 is the last.
    """

    numbers: frozenset[int]
    ordinal: int | None = None

    @property
    def is_monthly(self) -> bool:
        return self.ordinal is not None

    def includes(self, day: date) -> bool:
        if day.weekday() not in self.numbers:
            return False
        if not self.is_monthly:
            return True
        if self.ordinal == _LAST:
            a_week_later = day + timedelta(days=7)
            return a_week_later.month != day.month
        ordinal_of_day = (day.day + 6) // 7
        return ordinal_of_day == self.ordinal


class Dates(Struct, frozen=True):
    """In ISO 8601. Without a year, the days are in each year."""

    first: str
    last: str

    def includes(self, day: date) -> bool:
        has_year = len(self.first) > len("MM-DD")
        written = day.isoformat() if has_year else f"{day:%m-%d}"
        if self.first <= self.last:
            return self.first <= written <= self.last
        # Dates such as 12-20..01-04 pass the turn of the year.
        return written >= self.first or written <= self.last


Days = Weekdays | Dates
EVERY_DAY = Weekdays(frozenset(range(7)))


class Window(Struct, frozen=True):
    days: tuple[Days, ...]
    start: time
    # None for the whole day.
    length: Duration | None
    zone: ZoneInfo

    @staticmethod
    def parse(text: str) -> "Window":
        """Parse `mon-fri 22:00 6h Europe/Berlin`."""
        match = _WINDOW.fullmatch(text.strip())
        if match is None:
            raise UsageError(f"{text!r} is not a window", hint=_HINT)
        return _timed_window(match, f"the window {text!r}")

    def intervals(self, begin: datetime, end: datetime) -> Iterator[Interval]:
        day = begin.astimezone(self.zone).date()
        last_day = end.astimezone(self.zone).date()
        while day <= last_day:
            if any(days.includes(day) for days in self.days):
                yield Interval(self._begin(day), self._end(day))
            day += timedelta(days=1)

    def _begin(self, day: date) -> datetime:
        return datetime.combine(day, self.start, self.zone).astimezone(UTC)

    def _end(self, day: date) -> datetime:
        if self.length is None:
            return self._begin(day + timedelta(days=1))
        return self._begin(day) + timedelta(seconds=self.length)


class DatedFreeze(Struct, frozen=True):
    interval: Interval
    zone: ZoneInfo

    def intervals(self, begin: datetime, end: datetime) -> Iterator[Interval]:
        begins_by_end = self._day(self.interval.begin) <= self._day(end)
        ends_after_begin = self._day(self.interval.end) >= self._day(begin)
        if begins_by_end and ends_after_begin:
            yield self.interval

    def _day(self, moment: datetime) -> date:
        return moment.astimezone(self.zone).date()


Period = Window | DatedFreeze


def parse_freeze(text: str) -> Period:
    """Parse `2026-12-20..2027-01-04 Europe/Berlin`, `last fri` or `fri 12:00 3d`."""
    rule = f"the freeze {text!r}"
    moments = _MOMENTS.fullmatch(text.strip())
    if moments:
        return _parse_dated_freeze(moments, rule)
    days_and_times = _WINDOW.fullmatch(text.strip())
    if days_and_times:
        return _timed_window(days_and_times, rule)
    days = text.strip()
    zone = "UTC"
    # The last word is the zone, unless it is part of the days.
    before_last_word, _, last_word = days.rpartition(" ")
    is_zone = "/" in last_word or last_word in _zone_names()
    if before_last_word and is_zone:
        days = before_last_word
        zone = last_word
    if not days:
        raise UsageError(f"{text!r} is not a freeze", hint=_FREEZE_HINT)
    return Window(parse_days(days, rule), start=time(), length=None, zone=_parse_zone(zone, rule))


def _timed_window(match: re.Match[str], rule: str) -> Window:
    days = parse_days(match["days"], rule) if match["days"] else (EVERY_DAY,)
    return Window(
        days,
        _parse_time(int(match["hour"]), int(match["minute"]), rule),
        _parse_length(match["length"], rule),
        _parse_zone(match["zone"] or "UTC", rule),
    )


def _parse_dated_freeze(match: re.Match[str], rule: str) -> DatedFreeze:
    """Parse `2026-12-24T12:00..2026-12-27T06:00 UTC`."""
    zone = _parse_zone(match["zone"] or "UTC", rule)
    try:
        begin = datetime.fromisoformat(match["begin"]).replace(tzinfo=zone)
        end = datetime.fromisoformat(match["end"]).replace(tzinfo=zone)
        interval = Interval(begin.astimezone(UTC), end.astimezone(UTC))
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"{rule} contains a time that does not exist: {error}", hint=_FREEZE_HINT
        ) from error
    if interval.begin >= interval.end:
        raise UsageError(f"{rule} ends before it begins", hint="Write the earlier moment first.")
    return DatedFreeze(interval, zone)


def join_overlapping(intervals: Iterable[Interval]) -> list[Interval]:
    """Join overlapping or adjacent intervals; return them in order."""
    joined: list[Interval] = []
    for interval in sorted(intervals):
        last = joined[-1] if joined else None
        if last is not None and interval.begin <= last.end:
            joined[-1] = Interval(last.begin, max(last.end, interval.end))
        else:
            joined.append(interval)
    return joined


def _parse_time(hour: int, minute: int, rule: str) -> time:
    try:
        return time(hour, minute)
    except ValueError as error:
        raise UsageError(
            f"{hour}:{minute:02} in {rule} is not a time of day", hint=_HINT
        ) from error


def _parse_length(written: str, rule: str) -> Duration:
    length = Duration.parse(written)
    if not 0 < length <= LONGEST:
        raise UsageError(f"{rule} must last longer than 0s and at most a week", hint=_HINT)
    return length


def check_zone(name: str, rule: str = "") -> str:
    """Raise a `UsageError` that names the rule if the name is no IANA zone."""
    if name not in _zone_names():
        close = get_close_matches(name, _zone_names(), n=1, cutoff=0.9)
        hint = "Use a name from the IANA database, such as Europe/Berlin or UTC."
        if close:
            hint = f"Did you mean {close[0]}?"
        in_rule = f" in {rule}" if rule else ""
        raise UsageError(f"{name!r}{in_rule} is not in the IANA time zone database", hint=hint)
    return name


def _parse_zone(name: str, rule: str) -> ZoneInfo:
    return ZoneInfo(check_zone(name, rule))


@cache
def _zone_names() -> frozenset[str]:
    return frozenset(
        resources.files("tzdata").joinpath("zones").read_text(encoding="ascii").split()
    )


def parse_days(written: str, rule: str) -> tuple[Days, ...]:
    """Parse `mon-fri,12-24`; a `UsageError` names the rule."""
    days = tuple(_parse_days_or_dates(part.strip(), rule) for part in written.split(","))
    weekdays = [item for item in days if isinstance(item, Weekdays)]
    has_monthly = any(item.is_monthly for item in weekdays)
    has_weekly = any(not item.is_monthly for item in weekdays)
    if has_monthly and has_weekly:
        raise UsageError(
            f"{rule} mixes weekly days with days of the month",
            hint=(
                "Repeat the word before each day: first sat,first sun. For every Sunday, add a"
                " second window."
            ),
        )
    return days


def _parse_days_or_dates(part: str, rule: str) -> Days:
    if part[:1].isdigit():
        return _parse_dates(part, rule)
    first_word, _, weekday = part.partition(" ")
    ordinal = _ORDINALS.get(first_word.lower())
    if ordinal:
        return Weekdays(frozenset({_weekday_number(weekday.strip(), rule)}), ordinal)
    return Weekdays(frozenset(_parse_weekdays(part, rule)))


def _parse_dates(part: str, rule: str) -> Dates:
    """Parse `2026-12-20`, `2026-12-20..2027-01-04` or, for each year, `12-20..01-04`."""
    first, dots, last = (piece.strip() for piece in part.partition(".."))
    dates = Dates(first, last if dots else first)
    for written in (dates.first, dates.last):
        _check_date(written, rule)
    if len(dates.first) != len(dates.last):
        raise UsageError(
            f"{part!r} in {rule} has a year on only one side",
            hint="Specify the year in both dates, or in neither to repeat it every year.",
        )
    has_years = len(dates.first) == len(date.min.isoformat())
    if has_years and dates.first > dates.last:
        raise UsageError(
            f"{part!r} in {rule} ends before it begins", hint="Write the earlier date first."
        )
    return dates


def _check_date(written: str, rule: str) -> None:
    has_year = len(written) > len("MM-DD")
    dated = written if has_year else f"{_ANY_LEAP_YEAR}-{written}"
    if not _DATE.fullmatch(written) or not _is_in_calendar(dated):
        raise UsageError(f"{written!r} in {rule} is not a date", hint=_DAYS_HINT)


def _is_in_calendar(day: str) -> bool:
    try:
        date.fromisoformat(day)
    except ValueError:
        return False
    return True


def _parse_weekdays(part: str, rule: str) -> Iterator[int]:
    """Return 4, 5, 6, 0 for `fri-mon`."""
    first, dash, last = (piece.strip() for piece in part.partition("-"))
    first_number = _weekday_number(first, rule)
    last_number = _weekday_number(last if dash else first, rule)
    day_count = (last_number - first_number) % 7 + 1
    return ((first_number + step) % 7 for step in range(day_count))


def _weekday_number(name: str, rule: str) -> int:
    for number, day in enumerate(WEEKDAYS):
        abbreviation = day[:3]
        if name.lower() in (day, abbreviation):
            return number
    raise UsageError(f"{name!r} in {rule} is not a day of the week", hint=_DAYS_HINT)


_DAYS_FOR_WEEKLY = 9
_DAYS_FOR_MONTHLY = 62
_DAYS_FOR_DATED = 800
# A window lasts a week at most; the rest allows for whole days and time zones.
_LOOK_BACK = timedelta(days=9)


class Schedule(Struct, frozen=True):
    """When nodes may be started: in windows, and never in freezes.

    Without windows, nodes may start at any time. Nodes of a pool with windows also need one of the
    rollout's. An opening is a time in which nodes may start.
    """

    windows: tuple[Period, ...] = ()
    # By the texts of the settings.
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

    def current_opening(self, now: datetime) -> Interval | None:
        openings = self._openings_within(now, _DAYS_FOR_WEEKLY)
        return next((opening for opening in openings if opening.includes(now)), None)

    def next_opening(self, now: datetime) -> Interval | None:
        return self._find_first(now, lambda opening: opening.begin > now)

    def fits_ever(self, now: datetime, seconds: float) -> bool:
        """An opening that has not ended must last for this long."""

        def is_long_enough(opening: Interval) -> bool:
            return opening.end > now and opening.seconds >= seconds

        return self._find_first(now, is_long_enough) is not None

    def next_freeze(self, now: datetime) -> Interval | None:
        if not self.freezes:
            return None
        freezes_as_windows = Schedule(windows=tuple(self.freezes.values()))
        return freezes_as_windows.next_opening(now)

    def active_freezes(self, now: datetime) -> tuple[str, ...]:
        active = list[str]()
        for text, freeze in self.freezes.items():
            intervals = _intervals_of([freeze], now - _LOOK_BACK, now)
            if any(interval.includes(now) for interval in intervals):
                active.append(text)
        return tuple(active)

    def why_closed(self, now: datetime) -> "WindowClosed | NoWindowAhead | None":
        # Each start imports this module, without findings.
        from rollout.model.finding import NoWindowAhead, WindowClosed  # noqa: PLC0415

        has_rules = bool(self)
        if not has_rules or self.current_opening(now):
            return None
        freezes = self.active_freezes(now)
        opens_at = self.next_opening_text(now)
        return WindowClosed(freezes, opens_at) if opens_at else NoWindowAhead(freezes)

    def next_opening_text(self, now: datetime) -> str:
        """Return empty if none is within two years."""
        opening = self.next_opening(now)
        return self.written_time(opening.begin) if opening else ""

    def written_time(self, moment: datetime) -> str:
        """Return `Mon 2026-11-30 22:00 CET`, in the first setting's zone."""
        zone = (*self.pool_windows, *self.windows, *self.freezes.values())[0].zone
        return f"{moment.astimezone(zone):%a %Y-%m-%d %H:%M %Z}"

    def openings_ahead(self, now: datetime) -> list[Interval]:
        openings = self._openings_within(now, _DAYS_FOR_DATED)
        return [opening for opening in openings if opening.end > now]

    def openings(self, begin: datetime, end: datetime) -> list[Interval]:
        """Return the openings in this time; some may begin or end outside."""
        start = begin - _LOOK_BACK
        openings = [Interval(start, end)]
        if self.windows:
            openings = _intervals_of(self.windows, start, end)
        if self.pool_windows:
            openings = _intersect(openings, _intervals_of(self.pool_windows, start, end))
        # Openings may begin before `start` and last after `end`.
        freezes = _intervals_of(self.freezes.values(), start - _LOOK_BACK, end + _LOOK_BACK)
        return _subtract(openings, freezes)

    def _openings_within(self, now: datetime, days: int) -> list[Interval]:
        return self.openings(now, now + timedelta(days=days))

    def _find_first(self, now: datetime, condition: Callable[[Interval], bool]) -> Interval | None:
        # Most openings are near, and looking ahead takes time.
        for days in (_DAYS_FOR_WEEKLY, _DAYS_FOR_MONTHLY, _DAYS_FOR_DATED):
            for opening in self._openings_within(now, days):
                if condition(opening):
                    return opening
        return None


def _intervals_of(periods: Iterable[Period], begin: datetime, end: datetime) -> list[Interval]:
    return join_overlapping(
        interval for period in periods for interval in period.intervals(begin, end)
    )


def _intersect(intervals: Sequence[Interval], others: Sequence[Interval]) -> list[Interval]:
    outside_others = _subtract(intervals, others)
    return _subtract(intervals, outside_others)


def _subtract(intervals: Iterable[Interval], removed: Sequence[Interval]) -> list[Interval]:
    """Both must be sorted."""
    parts = list[Interval]()
    for interval in intervals:
        parts += _remaining_parts(interval, removed)
    return parts


def _remaining_parts(interval: Interval, removed: Sequence[Interval]) -> Iterator[Interval]:
    """`removed` must be sorted."""
    part_begin = interval.begin
    for gap in removed:
        if gap.begin >= interval.end:
            break
        if part_begin < gap.begin:
            yield Interval(part_begin, gap.begin)
        part_begin = max(part_begin, gap.end)
    if part_begin < interval.end:
        yield Interval(part_begin, interval.end)
