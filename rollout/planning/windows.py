"""Maintenance windows: when a node may be begun.

A window is written `[DAYS] HH:MM DURATION [TIMEZONE]`. It begins at that wall time on each of its days and lasts so
long in real time, whatever the clocks do meanwhile: four hours are four hours, also in the night in which the clocks
change. A beginning that the clocks skip comes as much later as they skip; one that they repeat is its first
occurrence. The day is the one on which a window begins; it may last into the next. It is open up to, and not at, its
end. Without a timezone it is UTC: a saved plan means the same on every machine.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from rollout.errors import UsageError
from rollout.model.quantity import Duration

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
LONGEST = Duration(7 * 86400)

_WRITTEN = re.compile(
    r"(?:(?P<days>[A-Za-z][A-Za-z,\s-]*?)\s+)?(?P<hour>\d{1,2}):(?P<minute>\d{2})\s+(?P<length>\S+)(?:\s+(?P<zone>\S+))?"
)
_HINT = "Write it as [DAYS] HH:MM DURATION [TIMEZONE]: 'mon-fri 22:00 6h Europe/Berlin', or '02:00 3h' for UTC."
_AHEAD = timedelta(days=9)


@dataclass(frozen=True, slots=True)
class Window:
    """One window as written. `days` counts from Monday, 0."""

    days: frozenset[int]
    start: time
    length: Duration
    zone: ZoneInfo

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a written window; `UsageError` says what is wrong with it."""
        match = _WRITTEN.fullmatch(text.strip())
        if match is None:
            raise UsageError(f"{text!r} is not a window", hint=_HINT)
        return cls(
            _days(match["days"] or "", text),
            _time(int(match["hour"]), int(match["minute"]), text),
            _length(match["length"], text),
            _zone(match["zone"] or "UTC", text),
        )

    def openings(self, first: date, last: date) -> Iterator["Opening"]:
        """Its openings that begin on the days from `first` to `last`, as this window's clocks count days."""
        day = first
        while day <= last:
            if day.weekday() in self.days:
                begin = datetime.combine(day, self.start, self.zone).astimezone(UTC)
                yield Opening(begin, begin + timedelta(seconds=self.length))
            day += timedelta(days=1)


@dataclass(frozen=True, slots=True, order=True)
class Opening:
    """A stretch of time, in UTC, up to and without its end."""

    begin: datetime
    end: datetime

    def holds(self, moment: datetime) -> bool:
        """Whether the moment lies in it."""
        return self.begin <= moment < self.end


def current(windows: Sequence[Window], now: datetime) -> Opening | None:
    """The opening that `now` lies in, with those that follow it without a gap; None where all are closed."""
    return next((opening for opening in _joined(windows, now) if opening.holds(now)), None)


def following(windows: Sequence[Window], now: datetime) -> Opening | None:
    """The next opening that begins after `now`."""
    return next((opening for opening in _joined(windows, now) if opening.begin > now), None)


def fits_ever(windows: Sequence[Window], now: datetime, seconds: float) -> bool:
    """Whether any opening of the days ahead is long enough for something that takes so many seconds."""
    return any((opening.end - opening.begin).total_seconds() >= seconds for opening in _joined(windows, now))


def _joined(windows: Iterable[Window], now: datetime) -> list[Opening]:
    """Openings around and after `now` in order, those that touch made one."""
    return join(opening for window in windows for opening in _near(window, now))


def join(openings: Iterable[Opening]) -> list[Opening]:
    """The same openings in order, those that touch made one."""
    joined: list[Opening] = []
    for opening in sorted(openings):
        if joined and opening.begin <= joined[-1].end:
            joined[-1] = Opening(joined[-1].begin, max(joined[-1].end, opening.end))
        else:
            joined.append(opening)
    return joined


def _near(window: Window, now: datetime) -> Iterator[Opening]:
    """Openings that can hold `now`, and those of more than a week ahead: each of its days comes at least once."""
    today = now.astimezone(window.zone).date()
    back = timedelta(days=int(window.length // 86400) + 2)
    return window.openings(today - back, today + _AHEAD)


def _days(written: str, text: str) -> frozenset[int]:
    if not written:
        return frozenset(range(7))
    return frozenset(day for part in written.split(",") for day in _range(part.strip(), text))


def _range(part: str, text: str) -> Iterator[int]:
    first, dash, last = (piece.strip() for piece in part.partition("-"))
    begin, end = _day(first, text), _day(last if dash else first, text)
    return ((begin + step) % 7 for step in range((end - begin) % 7 + 1))


def _day(name: str, text: str) -> int:
    numbers = [index for index, day in enumerate(DAYS) if name.lower() in (day, day[:3])]
    if not numbers:
        raise UsageError(f"{name!r} in the window {text!r} is not a day of the week", hint=_HINT)
    return numbers[0]


def _time(hour: int, minute: int, text: str) -> time:
    try:
        return time(hour, minute)
    except ValueError as error:
        raise UsageError(f"{hour}:{minute:02} in the window {text!r} is not a time of day", hint=_HINT) from error


def _length(written: str, text: str) -> Duration:
    length = Duration.parse(written)
    if not 0 < length <= LONGEST:
        raise UsageError(f"the window {text!r} must last longer than 0s and at most a week", hint=_HINT)
    return length


def checked_zone(name: str, where: str = "") -> str:
    """The name of a timezone; `UsageError` where the IANA database has none of that name. `where`: what it is of."""
    if name not in _zone_names():
        close = get_close_matches(name, _zone_names(), n=1, cutoff=0.9)
        hint = f"Did you mean {close[0]}?" if close else "Write it as in the IANA database: Europe/Berlin, UTC."
        raise UsageError(f"{name!r}{where} is not in the IANA timezone database", hint=hint)
    return name


def _zone(name: str, text: str) -> ZoneInfo:
    checked_zone(name, f" in the window {text!r}")
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(f"the timezone {name!r} of the window {text!r} cannot be read", hint=_HINT) from error


@cache
def _zone_names() -> frozenset[str]:
    """The IANA database's own names: `localtime`, or what else a machine has of its own, is another time elsewhere."""
    return frozenset(resources.files("tzdata").joinpath("zones").read_text(encoding="ascii").split())
