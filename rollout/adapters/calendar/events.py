"""Evaluates VEVENTs (RFC 5545, 3.6.1)."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cached_property
from heapq import merge
from typing import cast

from msgspec import Struct

from rollout.adapters.calendar.lines import Block, ContentLine
from rollout.adapters.calendar.repeats import RecurrenceRule, read_rule
from rollout.adapters.calendar.zones import Zones, is_known_zone
from rollout.model.timestamps import Interval

_DATE = r"\d{8}"
_TIME = r"\d{8}T\d{6}Z?"
_DURATION = (
    r"\+?P(?=\d|T\d)(?:\d{1,6}W)?(?:\d{1,6}D)?(?:T(?=\d)(?:\d{1,6}H)?(?:\d{1,6}M)?(?:\d{1,6}S)?)?"
)
# By the parameter VALUE.
_VALUE_PATTERNS = {
    "": rf"{_DATE}|{_TIME}",
    "DATE": _DATE,
    "DATE-TIME": _TIME,
    "PERIOD": rf"{_TIME}/(?:{_TIME}|{_DURATION})",
    "DURATION": _DURATION,
}
_VALUE_LIST_PATTERNS = {
    kind: re.compile(rf"(?:{value})(?:,(?:{value}))*", re.ASCII)
    for kind, value in _VALUE_PATTERNS.items()
}
_USUAL_KINDS = ("", "DATE", "DATE-TIME")
_SPECIAL_KINDS = {"RDATE": (*_USUAL_KINDS, "PERIOD"), "DURATION": ("DURATION",)}
_TIME_PROPERTIES = frozenset(
    {"DTSTART", "DTEND", "DURATION", "RRULE", "RDATE", "EXDATE", "RECURRENCE-ID"}
)
_AT_MOST_ONCE = ("DTSTART", "DTEND", "DURATION", "RECURRENCE-ID", "STATUS", "UID")
_LIST_PROPERTIES = frozenset({"RDATE", "EXDATE"})
# In RFC 5545, 7986, 9073 and 9253.
_PROPERTIES_WITHOUT_EFFECT = frozenset(
    {
        *("ATTACH", "ATTENDEE", "CALENDAR-ADDRESS", "CATEGORIES", "CLASS", "COLOR", "COMMENT"),
        *("CONCEPT", "CONFERENCE", "CONTACT", "CREATED", "DESCRIPTION", "DTSTAMP", "GEO", "IMAGE"),
        *("LAST-MODIFIED", "LINK", "LOCATION", "LOCATION-TYPE", "NAME", "ORGANIZER"),
        *("PARTICIPANT-TYPE", "PERCENT-COMPLETE", "PRIORITY", "REFID", "RELATED-TO"),
        *("REQUEST-STATUS", "RESOURCE-TYPE", "RESOURCES", "SEQUENCE", "SOURCE", "STATUS"),
        *("STRUCTURED-DATA", "STYLED-DESCRIPTION", "SUMMARY", "TRANSP", "UID", "URL"),
    }
)
_INNER_BLOCKS = frozenset({"VALARM", "PARTICIPANT", "VLOCATION", "VRESOURCE"})
_DAY = timedelta(days=1)
_LAST_OF_DAY = _DAY - timedelta.resolution
# Zones must not leave `datetime`'s range.
_EARLIEST = datetime(1, 1, 3, tzinfo=UTC)
_LATEST = datetime(9999, 1, 1, tzinfo=UTC)

Period = tuple[datetime, datetime | timedelta]
Value = date | timedelta | Period
_FoldKey = tuple[datetime, int]


class CalendarEvent(Struct, frozen=True, dict=True):
    """An event, which may recur."""

    block: Block
    zones: Zones

    def check(self) -> None:
        """Raise `CalendarError` for what is not understood."""
        for inner in self.block.blocks:
            if inner.name not in _INNER_BLOCKS and not inner.name.startswith("X-"):
                inner.refuse("a VEVENT cannot contain this component")
        for line in self.block.lines:
            if (
                line.name not in _TIME_PROPERTIES | _PROPERTIES_WITHOUT_EFFECT
                and not line.name.startswith("X-")
            ):
                line.refuse("this property is unknown or not supported")
        for name in _AT_MOST_ONCE:
            self.block.one(name)
        if self.block.one("DTSTART") is None:
            self.block.refuse("it has no DTSTART")
        end = self.block.one("DTEND")
        if end and self.block.one("DURATION"):
            end.refuse("only one of DTEND and DURATION is allowed")
        if self.recurrence_id:
            self._values_of(self.recurrence_id)
            if not self.uid:
                self.block.refuse("it has a RECURRENCE-ID, but no UID")
        self._check_length()

    @property
    def uid(self) -> str:
        """Return the UID, which replacing events share, or empty."""
        line = self.block.one("UID")
        return line.value if line else ""

    @property
    def is_cancelled(self) -> bool:
        """Whether the event is canceled."""
        line = self.block.one("STATUS")
        return line is not None and line.value.strip().upper() == "CANCELLED"

    @property
    def recurrence_id(self) -> ContentLine | None:
        """Return the start of the occurrence that this event replaces, or None."""
        return self.block.one("RECURRENCE-ID")

    @cached_property
    def start(self) -> date:
        """The first start; a plain date for whole days."""
        return self._single_date(next(self.block.all("DTSTART")))

    @property
    def _is_whole_days(self) -> bool:
        return not isinstance(self.start, datetime)

    @property
    def _zone(self) -> tzinfo:
        return self._own_zone or self.zones.of_calendar

    @property
    def _own_zone(self) -> tzinfo | None:
        return self.start.tzinfo if isinstance(self.start, datetime) else None

    def _local_times_of(self, line: ContentLine) -> Sequence[datetime]:
        return [
            _local_time(self._check_form(line, value), self._zone)
            for value in self._values_of(line)
        ]

    def occurrences(self, replaced: Iterable[ContentLine], horizon: Interval) -> Iterator[Interval]:
        """Yield the occurrences that are not replaced."""
        first = _local_time(self.start, self._zone)
        horizon_end = _local_time(horizon.end, self._zone)
        length_by_clocks = self._first_end - first
        period_ends = self._period_ends()
        for local_begin in self._occurrence_starts(first, period_ends, replaced):
            # In order, maybe endless.
            if local_begin > horizon_end:
                return
            begin = _to_utc(local_begin, self._zone)
            ends = [*period_ends.get(_fold_key(local_begin), ())]
            # If clocks change meanwhile, the longer of both counts.
            ends.append(_to_utc(_add_clamped(local_begin, length_by_clocks), self._zone))
            if not self._is_whole_days:
                ends.append(begin + min(self._elapsed_length, _LATEST - begin))
            end = max(ends)
            if begin < end and begin < horizon.end and horizon.begin < end:
                yield Interval(begin, end)

    def _occurrence_starts(
        self, first: datetime, periods: Iterable[_FoldKey], replaced: Iterable[ContentLine]
    ) -> Iterator[datetime]:
        rules = list(self._starts_by_rule(first))
        dates = [first, *(begin for begin, _ in periods)]
        for line in self.block.all("RDATE"):
            if not _is_period(line):
                dates += self._local_times_of(line)
        excluded = {
            _fold_key(begin)
            for line in (*self.block.all("EXDATE"), *replaced)
            for begin in self._local_times_of(line)
        }
        # dateutil's rruleset drops one of two equal local times.
        for begin in merge(sorted(dates, key=_fold_key), *rules, key=_fold_key):
            if _fold_key(begin) not in excluded:
                yield begin

    def _starts_by_rule(self, first: datetime) -> Iterator[Iterable[datetime]]:
        from dateutil.rrule import rrulestr  # noqa: PLC0415 - slow to import

        for line in self.block.all("RRULE"):
            rule = read_rule(line, is_whole_days=self._is_whole_days)
            starts = rrulestr(rule.text, dtstart=first)
            # dateutil refuses an UNTIL unlike DTSTART.
            if rule.until:
                starts = starts.replace(until=self._rule_end(line, rule))
            yield starts

    def _period_ends(self) -> dict[_FoldKey, list[datetime]]:
        """Return UTC ends of RDATE's periods, by local start."""
        ends = defaultdict[_FoldKey, list[datetime]](list)
        for line in filter(_is_period, self.block.all("RDATE")):
            for begin, end_or_length in cast("Sequence[Period]", self._values_of(line)):
                self._check_form(line, begin)
                key = _fold_key(_local_time(begin, self._zone))
                ends[key] += self._ends_of_period(line, begin, end_or_length)
        return ends

    def _ends_of_period(
        self, line: ContentLine, begin: datetime, end_or_length: datetime | timedelta
    ) -> Iterator[datetime]:
        """Yield the end; for a length, by elapsed and by clock time."""
        end = end_or_length
        if isinstance(end, timedelta):
            elapsed_end = _add_clamped(_instant_in_utc(begin, self._zone), end)
            yield min(elapsed_end, _LATEST)
            end = _add_clamped(begin, end)
        if (begin.tzinfo is None) != (end.tzinfo is None):
            line.refuse("only one end of the period has a time zone")
        if end <= begin:
            line.refuse("the period ends before it begins")
        yield _instant_in_utc(end, self._zone)

    def _rule_end(self, line: ContentLine, rule: RecurrenceRule) -> datetime:
        """Return UNTIL as a local time.

        If it is unlike DTSTART, the latest possible: Google and Outlook write dates for times,
        Exchange times for whole days.
        """
        if not _VALUE_LIST_PATTERNS[""].fullmatch(rule.until) or "," in rule.until:
            line.refuse("UNTIL is neither a date nor a time")
        (until,) = _parse_values(line, rule.until, zone=None)
        if not isinstance(until, datetime):
            day = _local_time(cast("date", until), self._zone)
            return day if self._is_whole_days else _add_clamped(day, _LAST_OF_DAY)
        as_written = until.replace(tzinfo=None)
        by_clocks = _local_time(until.replace(tzinfo=until.tzinfo or UTC), self._zone)
        if by_clocks.fold:
            # In a repeated hour, whose first pass is before UNTIL.
            repeated = by_clocks.replace(fold=0)
            by_clocks += _to_utc(by_clocks, self._zone) - _to_utc(repeated, self._zone)
        if self._is_whole_days:
            return max(as_written, by_clocks)
        if until.tzinfo:
            return by_clocks
        return max(as_written, by_clocks) if self._own_zone else as_written

    def _check_form(self, line: ContentLine, value: Value) -> date:
        """`CalendarError` if the value is unlike DTSTART."""
        is_time = isinstance(value, datetime)
        if not isinstance(value, date) or is_time is self._is_whole_days:
            line.refuse("it must be a date if DTSTART is a date, and a time if DTSTART is a time")
        if self._own_zone and isinstance(value, datetime) and not value.tzinfo:
            line.refuse("it has no time zone, but DTSTART has one")
        return value

    @cached_property
    def _first_end(self) -> datetime:
        """Local, without a `tzinfo`."""
        first = _local_time(self.start, self._zone)
        line = self.block.one("DTEND")
        if line:
            return _local_time(self._check_form(line, self._single_date(line)), self._zone)
        line = self.block.one("DURATION")
        if line:
            length = cast("timedelta", self._values_of(line)[0])
            if length % _DAY and self._is_whole_days:
                line.refuse("an all-day event must last whole days")
            return _add_clamped(first, length)
        return _add_clamped(first, _DAY) if self._is_whole_days else first

    @cached_property
    def _elapsed_length(self) -> timedelta:
        """Return the time that passes, even if clocks change."""
        line = self.block.one("DURATION")
        if line:
            return cast("timedelta", self._values_of(line)[0])
        line = self.block.one("DTEND")
        end = self._single_date(line) if line else self._first_end
        return _instant_in_utc(end, self._zone) - _instant_in_utc(self.start, self._zone)

    def _check_length(self) -> None:
        line = self.block.one("DTEND") or self.block.one("DURATION")
        if line is None:
            return
        _ = self._first_end
        if self._elapsed_length < timedelta():
            line.refuse("the event ends before it begins")
        if not self._elapsed_length and self._is_whole_days:
            line.refuse("the all-day event has no days: DTEND must be the day after the last day")

    def _single_date(self, line: ContentLine) -> date:
        return cast("date", self._values_of(line)[0])

    def _values_of(self, line: ContentLine) -> Sequence[Value]:
        default = "DURATION" if line.name == "DURATION" else ""
        kind = line.parameters.get("VALUE", default).upper()
        zone = line.parameters.get("TZID")
        for name in line.parameters:
            if name not in ("VALUE", "TZID") and not name.startswith("X-"):
                line.refuse(f"the parameter {name} is not supported here")
        kinds = _SPECIAL_KINDS.get(line.name, _USUAL_KINDS)
        if kind not in kinds or not _VALUE_LIST_PATTERNS[kind].fullmatch(line.value):
            line.refuse(f"this is not a valid value of {line.name}")
        if "," in line.value and line.name not in _LIST_PROPERTIES:
            line.refuse("only one value is allowed")
        if zone is not None:
            self._check_zone(line, zone)
        return _parse_values(line, line.value, zone)

    def _check_zone(self, line: ContentLine, zone: str) -> None:
        if not is_known_zone(zone.strip("/"), self.zones.defined_in_file):
            line.refuse(f"the time zone {zone!r} is not known")
        if "Z" in line.value:
            line.refuse("a time in UTC cannot have a TZID")
        if re.fullmatch(_DATE, line.value.split(",")[0]):
            line.refuse("a date cannot have a time zone")


def _parse_values(line: ContentLine, text: str, zone: str | None) -> Sequence[Value]:
    from icalendar import vDDDLists  # noqa: PLC0415 - slow to import

    try:
        values: Sequence[Value] = vDDDLists.from_ical(text, zone)  # type: ignore[no-untyped-call]
    except ValueError as error:
        line.refuse(f"{error}" if error.__cause__ is None else f"{error}: {error.__cause__}")
    return values


def _is_period(line: ContentLine) -> bool:
    return line.parameters.get("VALUE", "").upper() == "PERIOD"


def _local_time(day_or_time: date, zone: tzinfo) -> datetime:
    """Return wall-clock time without a `tzinfo`.

    A date becomes midnight; a time without a zone is local.
    """
    if not isinstance(day_or_time, datetime):
        return datetime.combine(day_or_time, datetime.min.time())
    if day_or_time.tzinfo is None:
        return day_or_time
    try:
        return day_or_time.astimezone(zone).replace(tzinfo=None)
    except OverflowError:
        # Hours do not matter in the years 1 and 9999.
        return day_or_time.replace(tzinfo=None)


def _fold_key(local: datetime) -> _FoldKey:
    """Tell apart two equal local times after a clock change."""
    return local, local.fold


def _add_clamped(begin: datetime, length: timedelta) -> datetime:
    try:
        return begin + length
    except OverflowError:
        return datetime.max.replace(tzinfo=begin.tzinfo)


def _instant_in_utc(day_or_time: date, zone: tzinfo) -> datetime:
    if isinstance(day_or_time, datetime) and day_or_time.tzinfo:
        return _to_utc(day_or_time, day_or_time.tzinfo)
    return _to_utc(_local_time(day_or_time, zone), zone)


def _to_utc(local: datetime, zone: tzinfo) -> datetime:
    """Convert; `fold` is 1 for the second of two equal local times."""
    try:
        return min(max(local.replace(tzinfo=zone).astimezone(UTC), _EARLIEST), _LATEST)
    except OverflowError:
        return _EARLIEST if local.year == _EARLIEST.year else _LATEST
