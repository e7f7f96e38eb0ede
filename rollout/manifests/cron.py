"""The schedules that a CronJob's `spec.schedule` may hold.

The API server has its own dialect of cron: `?` means `*`, Sunday is 0 and never 7, and there is no
L, W or #.
"""

import calendar
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_MACROS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_EVERY = re.compile(r"@every (?:[0-9]+[hms])+")
_NUMBER = re.compile("[0-9]{1,9}")
_ANY = ("*", "?")
_EXAMPLE = "Write minute, hour, day of month, month and day of week, such as '0 1 * * 1-5'."
# A leap year: its February has the most days.
_LEAP_YEAR = 2024


@dataclass(frozen=True, slots=True)
class _CronField:
    """One of the five fields, from its least to its greatest number, with the names of some."""

    title: str
    least: int
    most: int
    names: Mapping[str, int] = field(default_factory=dict)


_MONTHS = {calendar.month_abbr[number].lower(): number for number in range(1, 13)}
_DAYS = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
_FIELDS = (
    _CronField("minute", 0, 59),
    _CronField("hour", 0, 23),
    _CronField("day of month", 1, 31),
    _CronField("month", 1, 12, _MONTHS),
    _CronField("day of week", 0, 6, _DAYS),
)


def check_schedule(text: str) -> str:
    """Return the schedule without the spaces around it; `ValueError` if the API server would refuse it."""
    schedule = text.strip()
    if "TZ" in schedule:
        raise ValueError(
            f"{text!r} names a timezone, which a CronJob refuses here. Use --time-zone instead."
        )
    if schedule.startswith("@"):
        return _check_macro(schedule)
    parts = schedule.split()
    if len(parts) != len(_FIELDS):
        raise ValueError(f"{text!r} has {len(parts)} fields, and a schedule has five. {_EXAMPLE}")
    numbers = {of.title: _numbers(part, of) for part, of in zip(parts, _FIELDS, strict=True)}
    days = numbers["day of month"]
    months = numbers["month"]
    if parts[4] in _ANY and min(days) > max(_days_in(month) for month in months):
        raise ValueError(f"{text!r} never runs: the month has no day {min(days)}.")
    return schedule


def _check_macro(schedule: str) -> str:
    if schedule in _MACROS or _EVERY.fullmatch(schedule):
        return schedule
    raise ValueError(
        f"{schedule!r} is not a schedule. Write one of {', '.join(_MACROS)}, or '@every 12h'."
    )


def _days_in(month: int) -> int:
    return calendar.monthrange(_LEAP_YEAR, month)[1]


def _numbers(text: str, of: _CronField) -> frozenset[int]:
    """Return every number that a field names: a list of *, numbers and ranges, each with a step or without."""
    return frozenset(number for part in text.split(",") for number in _range(part, of))


def _range(text: str, of: _CronField) -> range:
    span, has_step, step_text = text.partition("/")
    step = _number(step_text, text, _CronField("step", 1, of.most)) if has_step else 1
    if span in _ANY:
        return range(of.least, of.most + 1, step)
    first_text, has_end, last_text = span.partition("-")
    first = _number(first_text, text, of)
    # 5/10 means from 5 on
    last = _number(last_text, text, of) if has_end else of.most if has_step else first
    if first > last:
        raise ValueError(f"{of.title} {text!r}: the range ends before it begins.")
    return range(first, last + 1, step)


def _number(text: str, part: str, of: _CronField) -> int:
    if (number := of.names.get(text.lower())) is not None:
        return number
    if _NUMBER.fullmatch(text) and of.least <= int(text) <= of.most:
        return int(text)
    names = f" or {next(iter(of.names))} to {list(of.names)[-1]}" if of.names else ""
    raise ValueError(
        f"{of.title} {part!r}: {text!r} is not a number from {of.least} to {of.most}{names}."
    )
