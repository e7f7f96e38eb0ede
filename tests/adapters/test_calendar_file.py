"""Calendars as programs export them, read as freezes."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from rollout.adapters.calendar_file import read_calendar
from rollout.errors import UsageError

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
BERLIN = "X-WR-TIMEZONE:Europe/Berlin"


def read(tmp_path: Path, *events: str, head: str = "") -> tuple[str, ...]:
    wrapped = (f"BEGIN:VEVENT\r\nUID:{number}\r\n{event}\r\nEND:VEVENT" for number, event in enumerate(events))
    path = tmp_path / "holidays.ics"
    path.write_text("\r\n".join(filter(None, ("BEGIN:VCALENDAR", "VERSION:2.0", head, *wrapped, "END:VCALENDAR\r\n"))))
    return read_calendar(path, NOW)


@pytest.mark.parametrize(
    ("event", "freezes"),
    [
        # all day, by the calendar's clocks; its end is the day after
        (
            "DTSTART;VALUE=DATE:20261220\r\nDTEND;VALUE=DATE:20270105",
            ("2026-12-19T23:00..2027-01-04T23:00",),
        ),
        ("DTSTART;VALUE=DATE:20261224", ("2026-12-23T23:00..2026-12-24T23:00",)),
        # free time counts, for holidays are often so; cancelled does not; nor what is over, or no time at all
        ("DTSTART;VALUE=DATE:20261224\r\nTRANSP:TRANSPARENT", ("2026-12-23T23:00..2026-12-24T23:00",)),
        ("DTSTART;VALUE=DATE:20261224\r\nSTATUS:CANCELLED", ()),
        ("DTSTART;VALUE=DATE:20201224", ()),
        ("DTSTART:20261224T100000Z", ()),
        # times of a timezone, of none, and of UTC; parts of minutes are frozen whole
        ("DTSTART;TZID=America/New_York:20261127T000000\r\nDURATION:PT4H", ("2026-11-27T05:00..2026-11-27T09:00",)),
        ("DTSTART:20261127T000000\r\nDTEND:20261127T040000", ("2026-11-26T23:00..2026-11-27T03:00",)),
        ("DTSTART:20261127T000030Z\r\nDTEND:20261127T040001Z", ("2026-11-27T00:00..2026-11-27T04:01",)),
        # every year but one
        (
            "DTSTART;VALUE=DATE:20201220\r\nRRULE:FREQ=YEARLY\r\nEXDATE;VALUE=DATE:20261220",
            ("2027-12-19T23:00..2027-12-20T23:00",),
        ),
        # the last friday, at the wall clock's time over the change of clocks
        (
            "DTSTART;TZID=Europe/Berlin:20261030T220000\r\nDURATION:PT2H\r\nRRULE:FREQ=MONTHLY;BYDAY=-1FR;COUNT=7",
            (
                *("2026-11-27T21:00..2026-11-27T23:00", "2026-12-25T21:00..2026-12-25T23:00"),
                *("2027-01-29T21:00..2027-01-29T23:00", "2027-02-26T21:00..2027-02-26T23:00"),
                *("2027-03-26T21:00..2027-03-26T23:00", "2027-04-30T20:00..2027-04-30T22:00"),
            ),
        ),
    ],
)
def test_an_event_freezes_as_long_as_it_lasts(event: str, freezes: tuple[str, ...], tmp_path: Path) -> None:
    assert read(tmp_path, event, head=BERLIN) == freezes


def test_events_that_touch_are_one_freeze(tmp_path: Path) -> None:
    days = [f"DTSTART;VALUE=DATE:202612{day}" for day in range(20, 32)]
    assert read(tmp_path, *days, "DTSTART;VALUE=DATE:20261225") == ("2026-12-20T00:00..2027-01-01T00:00",)


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ("SUMMARY:no start", "DTSTART"),
        ("DTSTART:20261224T100000Z\r\nDTEND:20261223T100000Z", "ends before"),
        ("DTSTART:20261224T100000Z\r\nDTEND;VALUE=DATE:20261225", ""),
        ("DTSTART:yesterday", "yesterday"),
        ("DTSTART:20261224T100000Z\r\nDURATION:PT1H\r\nRRULE:FREQ=SOMETIMES", ""),
        ("DTSTART:20261224T100000Z\r\nDURATION:PT1H\r\nRRULE:FREQ=SECONDLY", "repeats more often than daily"),
    ],
)
def test_an_event_that_cannot_be_read_is_an_error(event: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the calendar .*holidays.ics .*") as refused:
        read(tmp_path, event)
    assert why in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"hello", b"<html>", b"BEGIN:VCALENDAR"])
def test_what_is_no_calendar_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.ics").write_bytes(content)
    with pytest.raises(UsageError, match="the calendar"):
        read_calendar(tmp_path / "a.ics", NOW)
    with pytest.raises(UsageError, match="X-WR-TIMEZONE"):
        read(tmp_path, head="X-WR-TIMEZONE:Middle/Earth")
