"""Checks a CronJob's schedule in the API server's dialect.

`?` means `*`, Sunday is never 7; L, W and # are unknown.
"""

import calendar
import re
from collections.abc import Mapping

from msgspec import Struct, field

_MACROS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_EVERY = re.compile(r"@every (?:[0-9]+[hms])+")
_NUMBER = re.compile("[0-9]{1,9}")
_ANY = ("*", "?")
_EXAMPLE = "Write minute, hour, day of month, month and day of week, such as '0 1 * * 1-5'."
# Its February is longest.
_LEAP_YEAR = 2024


class _CronField(Struct, frozen=True):
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
    """Return the stripped schedule.

    Raises `ValueError` if it is invalid or never runs.
    """
    schedule = text.strip()
    if "TZ" in schedule:
        raise ValueError(
            f"{text!r} contains a time zone, which a CronJob does not accept here."
            " Use --time-zone instead."
        )
    if schedule.startswith("@"):
        return _check_macro(schedule)
    parts = schedule.split()
    if len(parts) != len(_FIELDS):
        raise ValueError(f"{text!r} has {len(parts)} fields, and a schedule has five. {_EXAMPLE}")
    _minutes, _hours, days, months, _weekdays = [
        _parse_field(part, cron_field) for part, cron_field in zip(parts, _FIELDS, strict=True)
    ]
    longest_month = max(calendar.monthrange(_LEAP_YEAR, month)[1] for month in months)
    has_no_such_day = min(days) > longest_month
    # With weekdays, it runs on these, too.
    is_any_weekday = parts[-1] in _ANY
    if has_no_such_day and is_any_weekday:
        raise ValueError(f"{text!r} never runs: the month has no day {min(days)}.")
    return schedule


def _check_macro(schedule: str) -> str:
    if schedule in _MACROS or _EVERY.fullmatch(schedule):
        return schedule
    raise ValueError(
        f"{schedule!r} is not a schedule. Use one of {', '.join(_MACROS)}, or '@every 12h'."
    )


def _parse_field(text: str, cron_field: _CronField) -> set[int]:
    numbers = set[int]()
    for part in text.split(","):
        numbers.update(_parse_range(part, cron_field))
    return numbers


def _parse_range(text: str, cron_field: _CronField) -> range:
    span, has_step, step_text = text.partition("/")
    step = 1
    if has_step:
        step = _parse_number(step_text, text, _CronField("step", 1, cron_field.most))
    if span in _ANY:
        return range(cron_field.least, cron_field.most + 1, step)
    first_text, has_end, last_text = span.partition("-")
    first = _parse_number(first_text, text, cron_field)
    last = first
    if has_end:
        last = _parse_number(last_text, text, cron_field)
    elif has_step:
        # 5/10 means every tenth from 5.
        last = cron_field.most
    if first > last:
        raise ValueError(f"{cron_field.title} {text!r}: the range ends before it begins.")
    return range(first, last + 1, step)


def _parse_number(text: str, part: str, cron_field: _CronField) -> int:
    """Errors quote `part`."""
    number = cron_field.names.get(text.lower())
    if number is not None:
        return number
    least = cron_field.least
    most = cron_field.most
    if _NUMBER.fullmatch(text) and least <= int(text) <= most:
        return int(text)
    expected = f"a number from {least} to {most}"
    if cron_field.names:
        names = list(cron_field.names)
        expected += f" or {names[0]} to {names[-1]}"
    raise ValueError(f"{cron_field.title} {part!r}: {text!r} is not {expected}.")
