"""Checks recurrence rules (RFC 5545, 3.3.10).

dateutil accepts a month 13, and an endless interval of 0.
"""

import re
from collections.abc import Mapping

from msgspec import Struct

from rollout.adapters.calendar.lines import ContentLine

_FREQUENCIES = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY")
_DAY = "MO|TU|WE|TH|FR|SA|SU"
# `-1FR`: the last Friday.
_WEEKDAY = re.compile(rf"(?:[+-]?(?P<ordinal>\d{{1,2}}))?(?:{_DAY})", re.ASCII)
_NUMBER = re.compile(r"[+-]?\d{1,3}", re.ASCII)
_POSITIVE = re.compile(r"0*[1-9]\d{0,8}", re.ASCII)
_HIGHEST_ORDINALS = {"YEARLY": 53, "MONTHLY": 5}
_MOST_PER_DAY = 24


class _NumberRange(Struct, frozen=True):
    least: int
    most: int
    may_count_back: bool = False
    frequencies: tuple[str, ...] = _FREQUENCIES

    def allows(self, written: str) -> bool:
        if not _NUMBER.fullmatch(written):
            return False
        number = abs(int(written)) if self.may_count_back else int(written)
        return self.least <= number <= self.most


_LISTS: Mapping[str, _NumberRange] = {
    "BYMONTH": _NumberRange(1, 12),
    "BYWEEKNO": _NumberRange(1, 53, may_count_back=True, frequencies=("YEARLY",)),
    "BYYEARDAY": _NumberRange(1, 366, may_count_back=True, frequencies=("YEARLY",)),
    "BYMONTHDAY": _NumberRange(
        1, 31, may_count_back=True, frequencies=("YEARLY", "MONTHLY", "DAILY")
    ),
    "BYHOUR": _NumberRange(0, 23),
    "BYMINUTE": _NumberRange(0, 59),
    "BYSECOND": _NumberRange(0, 59),
    "BYSETPOS": _NumberRange(1, 366, may_count_back=True),
}


class RecurrenceRule(Struct, frozen=True):
    """A valid recurrence rule."""

    # Without UNTIL.
    text: str
    # As written, or empty.
    until: str


def read_rule(
    line: ContentLine, frequencies: tuple[str, ...] = _FREQUENCIES, *, is_whole_days: bool = False
) -> RecurrenceRule:
    """Return the rule, or raise `CalendarError`. `is_whole_days`: of DTSTART."""
    parts = _split_parts(line)
    frequency = parts.get("FREQ", "")
    if frequency not in frequencies:
        line.refuse(f"FREQ is not one of {', '.join(frequencies)}")
    _check_repetition(line, parts)
    for name, value in parts.items():
        if name in _LISTS:
            _check_numbers(line, name, value.split(","), frequency)
    _check_weekdays(line, parts, frequency)
    _check_set_position(line, parts)
    _check_times(line, parts, is_whole_days=is_whole_days)
    text = ";".join(f"{name}={value}" for name, value in parts.items() if name != "UNTIL")
    return RecurrenceRule(text, parts.get("UNTIL", ""))


def _check_repetition(line: ContentLine, parts: Mapping[str, str]) -> None:
    for name in ("INTERVAL", "COUNT"):
        if name in parts and not _POSITIVE.fullmatch(parts[name]):
            line.refuse(f"{name} is not a number from 1 to 999999999")
    if "COUNT" in parts and "UNTIL" in parts:
        line.refuse("only one of COUNT and UNTIL is allowed")
    if not re.fullmatch(_DAY, parts.get("WKST", "MO")):
        line.refuse("WKST is not a day of the week")


def _check_set_position(line: ContentLine, parts: Mapping[str, str]) -> None:
    lists = [name for name in parts if name.startswith("BY")]
    if lists == ["BYSETPOS"]:
        line.refuse("BYSETPOS requires another BY… part")


def _check_times(line: ContentLine, parts: Mapping[str, str], *, is_whole_days: bool) -> None:
    times_a_day = 1
    for name in ("BYHOUR", "BYMINUTE", "BYSECOND"):
        if name in parts and is_whole_days:
            line.refuse(f"{name} cannot be used in an all-day event")
        times_a_day *= parts.get(name, "").count(",") + 1
    if times_a_day > _MOST_PER_DAY:
        line.refuse(f"it repeats more than {_MOST_PER_DAY} times a day")


def _split_parts(line: ContentLine) -> Mapping[str, str]:
    known = {"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", *_LISTS}
    parts = dict[str, str]()
    for written in line.value.upper().removesuffix(";").split(";"):
        name, _, value = written.partition("=")
        if name not in known:
            line.refuse(f"{name or 'an empty part'} is not supported")
        if name in parts:
            line.refuse(f"{name} is specified twice")
        parts[name] = value
    return parts


def _check_numbers(line: ContentLine, name: str, values: list[str], frequency: str) -> None:
    valid = _LISTS[name]
    if frequency not in valid.frequencies:
        line.refuse(f"{name} cannot be used with FREQ={frequency}")
    back = f", or from -{valid.most} to -{valid.least}" if valid.may_count_back else ""
    for value in values:
        if not valid.allows(value):
            line.refuse(f"{value!r} in {name} is not from {valid.least} to {valid.most}{back}")


def _check_weekdays(line: ContentLine, parts: Mapping[str, str], frequency: str) -> None:
    most = _HIGHEST_ORDINALS.get(frequency, 0)
    if "BYMONTH" in parts:
        # Ordinals then count within a month.
        most = min(most, _HIGHEST_ORDINALS["MONTHLY"])
    if "BYWEEKNO" in parts:
        most = 0
    days = parts["BYDAY"].split(",") if "BYDAY" in parts else ()
    for written in days:
        match = _WEEKDAY.fullmatch(written)
        if match is None:
            line.refuse(f"{written!r} in BYDAY is not a day of the week")
        ordinal = match["ordinal"]
        if ordinal is not None and not 1 <= int(ordinal) <= most:
            line.refuse(f"{written!r} in BYDAY cannot be used with FREQ={frequency}")
