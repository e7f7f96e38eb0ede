"""The days of a window or a freeze: `mon-fri`, `last sun`, `2026-12-20..2027-01-04`, and each year `12-20..01-04`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Protocol

from rollout.errors import UsageError

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_LAST = -1
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "last": _LAST}
_DATE = re.compile(r"(?:\d{4}-)?\d{2}-\d{2}")
_ANY_LEAP_YEAR = "2024-"
_HINT = "Days are mon-fri, sat,sun, last sun, 2026-12-20, 2026-12-20..2027-01-04, or each year 12-20..01-04."


class Days(Protocol):
    """Some days of the calendar."""

    def has(self, day: date) -> bool:
        """Whether this is one of them."""
        ...


@dataclass(frozen=True, slots=True)
class Weekdays:
    """Days of each week; `numbers` count from Monday, 0."""

    numbers: frozenset[int]

    def has(self, day: date) -> bool:
        """Whether this is one of them."""
        return day.weekday() in self.numbers


@dataclass(frozen=True, slots=True)
class OrdinalWeekday:
    """One day of each month: its first, …, its fourth, or its last of that weekday."""

    ordinal: int
    number: int

    def has(self, day: date) -> bool:
        """Whether this is it."""
        if day.weekday() != self.number:
            return False
        if self.ordinal == _LAST:
            return (day + timedelta(days=7)).month != day.month
        return (day.day + 6) // 7 == self.ordinal


@dataclass(frozen=True, slots=True)
class Dates:
    """All days from the first to the last, as ISO 8601 writes them; without their years, those of each year."""

    first: str
    last: str

    def has(self, day: date) -> bool:
        """Whether this is one of them."""
        written = day.isoformat()[-len(self.first) :]
        if self.first <= self.last:
            return self.first <= written <= self.last
        return written >= self.first or written <= self.last


EVERY_DAY = Weekdays(frozenset(range(7)))


def parse_days(written: str, where: str) -> tuple[Days, ...]:
    """Read what separates by commas; `where` is what they are of, for the `UsageError` that says what is wrong."""
    days = tuple(_part(part.strip(), where) for part in written.split(","))
    if any(isinstance(item, OrdinalWeekday) for item in days) and any(isinstance(item, Weekdays) for item in days):
        raise UsageError(
            f"{where} has days of each week beside days of the month",
            hint="Write the word before each: first sat,first sun. If every sun is meant, write it as another one.",
        )
    return days


def _part(part: str, where: str) -> Days:
    if part[:1].isdigit():
        return _dates(part, where)
    word, _, weekday = part.partition(" ")
    if ordinal := _ORDINALS.get(word.lower()):
        return OrdinalWeekday(ordinal, _number(weekday.strip(), where))
    return Weekdays(frozenset(_range(part, where)))


def _dates(part: str, where: str) -> Dates:
    first, dots, last = (piece.strip() for piece in part.partition(".."))
    dates = Dates(first, last if dots else first)
    for written in (dates.first, dates.last):
        _check_date(written, where)
    has_years = len(dates.first) == len(date.min.isoformat())
    if len(dates.first) != len(dates.last):
        raise UsageError(f"{part!r} in {where} has one year", hint="Write both, or neither for each year.")
    if has_years and dates.first > dates.last:
        raise UsageError(f"{part!r} in {where} ends before it begins", hint="Write the earlier date first.")
    return dates


def _check_date(written: str, where: str) -> None:
    try:
        is_date = bool(_DATE.fullmatch(written))
        date.fromisoformat(written if len(written) > len("MM-DD") else _ANY_LEAP_YEAR + written)
    except ValueError:
        is_date = False
    if not is_date:
        raise UsageError(f"{written!r} in {where} is not a date", hint=_HINT)


def _range(part: str, where: str) -> Iterator[int]:
    first, dash, last = (piece.strip() for piece in part.partition("-"))
    begin, end = _number(first, where), _number(last if dash else first, where)
    return ((begin + step) % 7 for step in range((end - begin) % 7 + 1))


def _number(name: str, where: str) -> int:
    numbers = [index for index, day in enumerate(WEEKDAYS) if name.lower() in (day, day[:3])]
    if not numbers:
        raise UsageError(f"{name!r} in {where} is not a day of the week", hint=_HINT)
    return numbers[0]
