"""Calendars as programs export them, read as freezes."""

import time
from datetime import UTC, datetime
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import pytest

from rollout.adapters.calendar import child, freezes
from rollout.adapters.calendar.freezes import read_calendar
from rollout.errors import UsageError

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
BERLIN = "X-WR-TIMEZONE:Europe/Berlin"


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save the start of a process for each case."""
    monkeypatch.setattr(freezes, "read_in_child", child.read_here)


def read(tmp_path: Path, *events: str, head: str = "", zone: str = "UTC") -> tuple[str, ...]:
    """What a calendar of these events freezes. Without a head, the first one's own lines begin in
    line 4.
    """
    wrapped = (f"BEGIN:VEVENT\r\n{event}\r\nEND:VEVENT" for event in events)
    path = tmp_path / "holidays.ics"
    text = "\r\n".join(
        filter(None, ("BEGIN:VCALENDAR", "VERSION:2.0", head, *wrapped, "END:VCALENDAR\r\n"))
    )
    path.write_text(text, errors="surrogateescape")
    return read_calendar(path, NOW, zone)


@pytest.mark.parametrize(
    ("event", "freezes"),
    [
        # all day, by the calendar's clocks; its end is the day after
        (
            "DTSTART;VALUE=DATE:20261220\r\nDTEND;VALUE=DATE:20270105",
            ("2026-12-19T23:00..2027-01-04T23:00",),
        ),
        ("DTSTART;VALUE=DATE:20261224", ("2026-12-23T23:00..2026-12-24T23:00",)),
        # free time counts, for holidays are often so; cancelled does not; nor what is over, or no
        # time at all
        (
            "DTSTART;VALUE=DATE:20261224\r\nTRANSP:TRANSPARENT",
            ("2026-12-23T23:00..2026-12-24T23:00",),
        ),
        ("DTSTART;VALUE=DATE:20261224\r\nSTATUS:CANCELLED", ()),
        ("DTSTART;VALUE=DATE:20201224", ()),
        ("DTSTART:20261224T100000Z", ()),
        # times of a time zone, of none, and of UTC; parts of minutes are frozen whole
        (
            "DTSTART;TZID=America/New_York:20261127T000000\r\nDURATION:PT4H",
            ("2026-11-27T05:00..2026-11-27T09:00",),
        ),
        (
            "DTSTART:20261127T000000\r\nDTEND:20261127T040000",
            ("2026-11-26T23:00..2026-11-27T03:00",),
        ),
        (
            "DTSTART:20261127T000030Z\r\nDTEND:20261127T040001Z",
            ("2026-11-27T00:00..2026-11-27T04:01",),
        ),
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
def test_an_event_freezes_as_long_as_it_lasts(
    event: str, freezes: tuple[str, ...], tmp_path: Path
) -> None:
    assert read(tmp_path, event, head=BERLIN) == freezes


def test_events_that_touch_are_one_freeze(tmp_path: Path) -> None:
    days = [f"DTSTART;VALUE=DATE:202612{day}" for day in range(20, 32)]
    assert read(tmp_path, *days, "DTSTART;VALUE=DATE:20261225") == (
        "2026-12-20T00:00..2027-01-01T00:00",
    )


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ("SUMMARY:no start", "DTSTART"),
        ("DTSTART:20261224T100000Z\r\nDTEND:20261223T100000Z", "ends before"),
        ("DTSTART:20261224T100000Z\r\nDTEND;VALUE=DATE:20261225", ""),
        ("DTSTART:yesterday", "yesterday"),
        ("DTSTART:20261224T100000Z\r\nDURATION:PT1H\r\nRRULE:FREQ=SOMETIMES", ""),
    ],
)
def test_an_event_that_cannot_be_read_is_an_error(event: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the calendar .*holidays.ics .*") as refused:
        read(tmp_path, event)
    assert why in refused.value.message
    assert refused.value.hint


HOUR = "DTSTART:20261224T100000Z\r\nDURATION:PT1H"
DAY = "DTSTART;VALUE=DATE:20261224"
CHRISTMAS = "2026-12-24T00:00..2026-12-25T00:00"
TIMEZONE = (
    "BEGIN:VTIMEZONE\r\nTZID:Office\r\nBEGIN:STANDARD\r\nDTSTART:16010101T000000\r\n"
    "TZOFFSETFROM:+0500\r\nTZOFFSETTO:+0500\r\nEND:STANDARD\r\nEND:VTIMEZONE"
)
SERIES = "UID:series\r\nDTSTART;VALUE=DATE:20261201\r\nRRULE:FREQ=WEEKLY;COUNT=2"


@pytest.mark.parametrize(
    ("event", "freezes"),
    [
        (
            f"{HOUR}\r\nRDATE:20261226T100000Z",
            ("2026-12-24T10:00..2026-12-24T11:00", "2026-12-26T10:00..2026-12-26T11:00"),
        ),
        (
            f"{HOUR}\r\nRDATE;VALUE=PERIOD:20261226T100000Z/PT9H,20261228T100000Z/20261230T100000Z",
            (
                "2026-12-24T10:00..2026-12-24T11:00",
                "2026-12-26T10:00..2026-12-26T19:00",
                "2026-12-28T10:00..2026-12-30T10:00",
            ),
        ),
        (
            "DTSTART;TZID=Office:20261224T100000\r\nDURATION:PT1H",
            ("2026-12-24T05:00..2026-12-24T06:00",),
        ),
        (
            "DTSTART;TZID=W. Europe Standard Time:20261224T100000\r\nDURATION:PT1H",
            ("2026-12-24T09:00..2026-12-24T10:00",),
        ),
        (
            'DTSTART;TZID="/Europe/Berlin":20261224T100000\r\nDURATION:PT1H',
            ("2026-12-24T09:00..2026-12-24T10:00",),
        ),
        # a night in which clocks go back: a day is 25 hours
        (
            "DTSTART;TZID=Europe/Berlin:20271030T120000\r\nDURATION:P1D",
            ("2027-10-30T10:00..2027-10-31T11:00",),
        ),
        # to the end of time, and from its beginning
        (f"{DAY}\r\nDTEND;VALUE=DATE:99991231", ("2026-12-24T00:00..9999-01-01T00:00",)),
        (
            "DTSTART:20261224T000000Z\r\nDTEND:99991231T235959Z",
            ("2026-12-24T00:00..9999-01-01T00:00",),
        ),
        (f"{DAY}\r\nDURATION:P999999W", ("2026-12-24T00:00..9999-01-01T00:00",)),
        (
            "DTSTART;VALUE=DATE:00010101\r\nDTEND;VALUE=DATE:20261224",
            ("0001-01-03T00:00..2026-12-24T00:00",),
        ),
        ("DTSTART;VALUE=DATE:99991231", ()),
        # a fold within a character, as bytes are counted
        ("DTSTART;VALUE=DATE:2026\r\n 1224\r\nSUMMARY:caf\udcc3\r\n \udca9", (CHRISTMAS,)),
        # what does not say when it takes place
        (
            f"{DAY}\r\nX-ANY;X-OTHER=1:thing\r\nCOLOR:red\r\nBEGIN:VALARM\r\nTRIGGER:-P1D\r\nEND:VALARM",
            (CHRISTMAS,),
        ),
        (f"{DAY}\r\nRRULE:FREQ=DAILY;UNTIL=20261225;", ("2026-12-24T00:00..2026-12-26T00:00",)),
        (
            f"{DAY}\r\nRRULE:FREQ=YEARLY;BYMONTH=12;BYDAY=-1SU;COUNT=999999999\r\nEXDATE;VALUE=DATE:20261224",
            ("2026-12-27T00:00..2026-12-28T00:00", "2027-12-26T00:00..2027-12-27T00:00"),
        ),
    ],
)
def test_dates_are_understood_in_every_form(
    event: str, freezes: tuple[str, ...], tmp_path: Path
) -> None:
    assert read(tmp_path, event, head=f"X-WR-TIMEZONE:UTC\r\n{TIMEZONE}") == freezes


BERLINS = "DTSTART;TZID=Europe/Berlin:20261201T220000\r\nDURATION:PT1H"


@pytest.mark.parametrize(
    ("event", "until", "last"),
    [
        # a date, of an event with times, is that whole day by its clocks
        (BERLINS, "20261203", "2026-12-03T21:00..2026-12-03T22:00"),
        (
            "DTSTART:20261201T233000Z\r\nDURATION:PT1H",
            "20261203",
            "2026-12-03T23:30..2026-12-04T00:30",
        ),
        # a time without a time zone: by its clocks, or in UTC, whichever is later
        (BERLINS, "20261203T220000", "2026-12-03T21:00..2026-12-03T22:00"),
        (BERLINS, "20261203T210000", "2026-12-03T21:00..2026-12-03T22:00"),
        (BERLINS, "20261203T205959", "2026-12-02T21:00..2026-12-02T22:00"),
        (BERLINS, "20261203T210000Z", "2026-12-03T21:00..2026-12-03T22:00"),
        # a time, of an event of whole days
        ("DTSTART;VALUE=DATE:20261203", "20261203T000000Z", "2026-12-02T23:00..2026-12-03T23:00"),
        ("DTSTART;VALUE=DATE:20261203", "20261202T230000Z", "2026-12-02T23:00..2026-12-03T23:00"),
        ("DTSTART;VALUE=DATE:20261203", "20261203T000000", "2026-12-02T23:00..2026-12-03T23:00"),
    ],
)
def test_a_rule_ends_where_programs_that_write_its_end_differently_end_it(
    event: str, until: str, last: str, tmp_path: Path
) -> None:
    freezes = read(tmp_path, f"{event}\r\nRRULE:FREQ=DAILY;UNTIL={until}", head=BERLIN)
    assert freezes[-1] == last


def test_an_occurrence_that_is_moved_freezes_where_it_is_now(tmp_path: Path) -> None:
    moved = "UID:series\r\nRECURRENCE-ID;VALUE=DATE:20261208\r\nDTSTART;VALUE=DATE:20261210"
    assert read(tmp_path, SERIES, moved) == (
        "2026-12-01T00:00..2026-12-02T00:00",
        "2026-12-10T00:00..2026-12-11T00:00",
    )
    assert read(tmp_path, SERIES, f"{moved}\r\nSTATUS:CANCELLED") == (
        "2026-12-01T00:00..2026-12-02T00:00",
    )


BERLIN_TIME = "TZID=Europe/Berlin"
HALF_HOUR = f"DURATION:PT30M\r\nDTSTART;{BERLIN_TIME}"


# On 2027-10-31, clocks in Berlin show 02:00 to 03:00 twice, until 01:00 UTC and after that. On
# 2028-03-26 they skip that hour, at 01:00 UTC.
@pytest.mark.parametrize(
    ("event", "freezes"),
    [
        (
            "DTSTART;TZID=Europe/Berlin:20271031T013000\r\nDTEND:20271031T013000Z",
            ("2027-10-30T23:30..2027-10-31T01:30",),
        ),
        (
            f"{HALF_HOUR}:20271031T021500\r\nRDATE:20271031T011500Z",
            ("2027-10-31T00:15..2027-10-31T00:45", "2027-10-31T01:15..2027-10-31T01:45"),
        ),
        (
            f"{HALF_HOUR}:20271031T021500\r\nEXDATE:20271031T011500Z",
            ("2027-10-31T00:15..2027-10-31T00:45",),
        ),
        (
            f"{HALF_HOUR}:20271031T021500\r\nRDATE;VALUE=PERIOD:20271031T011500Z/PT45M",
            ("2027-10-31T00:15..2027-10-31T00:45", "2027-10-31T01:15..2027-10-31T02:00"),
        ),
        (
            f"{HALF_HOUR}:20271030T021500\r\nRRULE:FREQ=DAILY;UNTIL=20271031T010500Z",
            ("2027-10-30T00:15..2027-10-30T00:45", "2027-10-31T00:15..2027-10-31T00:45"),
        ),
        (
            "DTSTART;TZID=Europe/Berlin:20280326T013000\r\nDURATION:PT2H",
            ("2028-03-26T00:30..2028-03-26T02:30",),
        ),
        (f"{HALF_HOUR}:20280326T023000", ("2028-03-26T01:30..2028-03-26T02:00",)),
        (
            f"{HALF_HOUR}:20280325T120000\r\nRDATE;VALUE=PERIOD;{BERLIN_TIME}:20280326T013000/PT2H",
            ("2028-03-25T11:00..2028-03-25T11:30", "2028-03-26T00:30..2028-03-26T02:30"),
        ),
    ],
)
def test_a_freeze_is_not_shorter_when_clocks_change(
    event: str, freezes: tuple[str, ...], tmp_path: Path
) -> None:
    assert read(tmp_path, event) == freezes


NOT_UNDERSTOOD = [
    (f"{HOUR}\r\nRDATE;VALUE=PERIOD:20261226T100000Z/-PT9H", 6),
    (f"{HOUR}\r\nRDATE;VALUE=PERIOD:20261226T100000Z/20261225T100000Z", 6),
    (f"{HOUR}\r\nRDATE;VALUE=PERIOD:20261226T100000/20261227T100000Z", 6),
    (f"{HOUR}\r\nRDATE;VALUE=DATE:20261226", 6),
    (f"{HOUR}\r\nRDATE:20261226T100000", 6),
    (f"{HOUR}\r\nRDATE:", 6),
    (f"{HOUR}\r\nRDATE", 6),
    (f"{HOUR}\r\nRDATE 20261226T100000Z", 6),
    (f"{HOUR}\r\nRDTAE:20261226T100000Z", 6),
    (f"{HOUR}\r\nEXRULE:FREQ=DAILY", 6),
    (f"{HOUR}\r\nEXDATE;VALUE=DATE:20261224", 6),
    (f"{HOUR}\r\nEXDATE:soon", 6),
    (f"{HOUR}\r\nDTSTART:20261225T100000Z", 6),
    (f"{HOUR}\r\nDTEND:20261225T100000Z", 6),
    ("DTSTART;TZID=Nowhere:20261224T100000\r\nDURATION:PT1H", 4),
    ("DTSTART;TZID=/vendor.example/Europe/Berlin:20261224T100000\r\nDURATION:PT1H", 4),
    ("DTSTART;TZID=../../etc/localtime:20261224T100000\r\nDURATION:PT1H", 4),
    ("DTSTART;TZID=Europe/Berlin:20261224T100000Z\r\nDURATION:PT1H", 4),
    ("DTSTART;TZID=Europe/Berlin:20261224", 4),
    ("DTSTART:20261224T100000ZZ\r\nDURATION:PT1H", 4),
    ("DTSTART:20261324T100000Z\r\nDURATION:PT1H", 4),
    ("DTSTART:00000101T000000Z\r\nDURATION:PT1H", 4),
    ("DTSTART;VALUE=PERIOD:20261224T100000Z/PT1H", 4),
    ("DTSTART;FOO=1:20261224T100000Z\r\nDURATION:PT1H", 4),
    ("DTSTART:20261224T100000Z\r\nDURATION:-PT1H", 5),
    ("DTSTART:20261224T100000Z\r\nDURATION:P", 5),
    ("DTSTART:20261224T100000Z\r\nDURATION:P" + "9" * 5000 + "D", 5),
    (f"{DAY}\r\nDURATION:PT1H", 5),
    (f"{DAY}\r\nDTEND;VALUE=DATE:20261224", 5),
    (f"{DAY}\r\nDTEND;VALUE=DATE:20261223", 5),
    ("DTSTART:20261224T100000\r\nDTEND;TZID=Asia/Tokyo:20261224T100000", 5),
    (f"{DAY}\r\nUID:1\r\nRECURRENCE-ID;RANGE=THISANDFUTURE;VALUE=DATE:20261224", 6),
    (f"{DAY}\r\nBEGIN:VEVENT\r\n{DAY}\r\nEND:VEVENT", 5),
    *(
        (f"{DAY}\r\nRRULE:{rule}", 5)
        for rule in (
            "FREQ=DAILY;INTERVAL=0",
            "FREQ=DAILY;INTERVAL=-1",
            "FREQ=DAILY;COUNT=0",
            "FREQ=SECONDLY",
            "FREQ=HOURLY;COUNT=2",
            "COUNT=2",
            "FREQ=DAILY;COUNT=2;UNTIL=20261230",
            "FREQ=DAILY;COUNT=2;COUNT=3",
            "FREQ=DAILY;UNTIL=later",
            "FREQ=DAILY;RSCALE=CHINESE",
            "FREQ=DAILY;COUNT",
            "FREQ=YEARLY;BYMONTH=13",
            "FREQ=YEARLY;BYMONTHDAY=0",
            "FREQ=WEEKLY;BYMONTHDAY=1",
            "FREQ=DAILY;BYWEEKNO=1",
            "FREQ=WEEKLY;BYDAY=1MO",
            "FREQ=MONTHLY;BYDAY=6MO",
            "FREQ=MONTHLY;BYDAY=XX",
            "FREQ=MONTHLY;BYSETPOS=1",
            "FREQ=DAILY;WKST=1",
            # 3.3.10: not of a DTSTART that is a date
            "FREQ=DAILY;BYHOUR=5",
            "FREQ=DAILY;BYMINUTE=0",
            "FREQ=DAILY;BYSECOND=0",
            "FREQ=DAILY;BYHOUR=1,2,3,4,5;BYMINUTE=1,2,3,4,5",
        )
    ),
]


def test_a_number_that_may_count_back_is_refused_with_both_ranges(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="'32' in BYMONTHDAY is not from 1 to 31, or from -31 to -1"
    ):
        read(tmp_path, f"{DAY}\r\nRRULE:FREQ=MONTHLY;BYMONTHDAY=32")


@pytest.mark.parametrize(("event", "line"), NOT_UNDERSTOOD, ids=lambda value: str(value)[-40:])
def test_what_is_not_understood_of_an_event_names_its_line(
    event: str, line: int, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=rf"cannot be read: line {line}: "):
        read(tmp_path, event)


@pytest.mark.parametrize(
    ("head", "line"),
    [
        ("METHOD:CANCEL", 3),
        ("CALSCALE:CHINESE", 3),
        ("X-WR-TIMEZONE:localtime", 3),
        ("BEGIN:VFREEBUSY\r\nFREEBUSY:20261224T100000Z/PT1H\r\nEND:VFREEBUSY", 3),
        ("BEGIN:VEVNT\r\nEND:VEVNT", 3),
        ("BEGIN:VEVENT\r\nEND:VCALENDAR", 4),
        ("END:VCALENDAR\r\nBEGIN:VCALENDAR", 4),
        ("END:VCALENDAR\r\nSUMMARY:lost", 4),
        ("BEGIN:X-A\r\n" * 50, 12),
        ("BEGIN:VTIMEZONE\r\nEND:VTIMEZONE", 3),
        ("BEGIN:VTIMEZONE\r\nTZID:A\r\nEND:VTIMEZONE", 3),
        (f"{TIMEZONE}\r\n{TIMEZONE}", 12),
        (TIMEZONE.replace("END:STANDARD", "RRULE:FREQ=YEARLY;INTERVAL=0\r\nEND:STANDARD"), 9),
        (TIMEZONE.replace("END:STANDARD", "RRULE:FREQ=SECONDLY\r\nEND:STANDARD"), 9),
        (TIMEZONE.replace("+0500", "+5"), 3),
        ("X-A:1\r\n \udcff", 3),
    ],
)
def test_what_is_not_understood_of_a_calendar_names_its_line(
    head: str, line: int, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=rf"cannot be read: line {line}: "):
        read(tmp_path, DAY, head=head)


def test_an_occurrence_that_is_replaced_belongs_to_one_series(tmp_path: Path) -> None:
    moved = "RECURRENCE-ID;VALUE=DATE:20261208\r\nDTSTART;VALUE=DATE:20261210"
    with pytest.raises(UsageError, match="line 8: VEVENT: two events have the same UID"):
        read(tmp_path, SERIES, SERIES, f"UID:series\r\n{moved}")
    with pytest.raises(UsageError, match="line 10: 'RECURRENCE-ID:20261208T000000Z'"):
        read(
            tmp_path,
            SERIES,
            "UID:series\r\nRECURRENCE-ID:20261208T000000Z\r\nDTSTART;VALUE=DATE:20261210",
        )


NEVER = "RRULE:FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30\r\n"


@pytest.mark.parametrize(
    ("body", "line"),
    [
        # many events, and one whose rules dateutil follows to the year 9999
        (
            "BEGIN:VEVENT\r\nDTSTART;VALUE=DATE:19000101\r\nRRULE:FREQ=DAILY\r\nEND:VEVENT\r\n"
            * 1000,
            r"\d+: VEVENT",
        ),
        (
            f"BEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20261201\r\n{NEVER * 100}END:VEVENT\r\n",
            "2: VEVENT",
        ),
        # many definitions of time zones, and one with many parts
        (
            "".join(
                TIMEZONE.replace("Office", f"Office{number}") + "\r\n" for number in range(5000)
            ),
            r"\d+: VTIMEZONE",
        ),
        (
            TIMEZONE.replace(
                "END:VTIMEZONE",
                TIMEZONE.partition("Office\r\n")[2].removesuffix("END:VTIMEZONE") * 20000
                + "END:VTIMEZONE\r\n",
            ),
            "2: VTIMEZONE",
        ),
    ],
    ids=["events", "rules", "zones", "parts"],
)
def test_a_calendar_that_takes_too_long_is_refused_in_bounded_time(
    body: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(child, "_CPU_SECONDS", 2)
    file = tmp_path / "long.ics"
    file.write_text(f"BEGIN:VCALENDAR\r\n{body}END:VCALENDAR\r\n", newline="")
    before = getrusage(RUSAGE_CHILDREN)
    with pytest.raises(UsageError, match=rf"cannot be read: line {line}: it takes too long"):
        read_calendar(file, NOW, "UTC")
    after = getrusage(RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime < before.ru_utime + before.ru_stime + 4


def test_the_process_that_reads_a_calendar_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    assert read(tmp_path, DAY) == (CHRISTMAS,)
    monkeypatch.setenv("TZ", "Berlin")
    with pytest.raises(UsageError, match="the variable TZ is 'Berlin'"):
        read(tmp_path, DAY, zone="")


def test_a_rule_that_never_comes_ends_with_the_last_year(tmp_path: Path) -> None:
    assert read(tmp_path, f"{DAY}\r\nRRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30") == (CHRISTMAS,)


def test_a_timezone_of_an_earlier_file_is_forgotten(tmp_path: Path) -> None:
    event = "DTSTART;TZID=Office:20261224T100000\r\nDURATION:PT1H"
    assert read(tmp_path, event, head=TIMEZONE) == ("2026-12-24T05:00..2026-12-24T06:00",)
    moved = TIMEZONE.replace("+0500", "+0600")
    assert read(tmp_path, event, head=moved) == ("2026-12-24T04:00..2026-12-24T05:00",)
    with pytest.raises(UsageError, match="the time zone 'Office' is not known"):
        read(tmp_path, event)


OUTLOOK = (
    "PRODID:-//Microsoft Corporation//Outlook 16.0 MIMEDIR//EN\r\nMETHOD:PUBLISH\r\n"
    "BEGIN:VTIMEZONE\r\nTZID:W. Europe Standard Time\r\n"
    "BEGIN:STANDARD\r\nDTSTART:16011028T030000\r\nRRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=10\r\n"
    "TZOFFSETFROM:+0200\r\nTZOFFSETTO:+0100\r\nEND:STANDARD\r\n"
    "BEGIN:DAYLIGHT\r\nDTSTART:16010325T020000\r\nRRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=3\r\n"
    "TZOFFSETFROM:+0100\r\nTZOFFSETTO:+0200\r\nEND:DAYLIGHT\r\nEND:VTIMEZONE"
)
TOKYO = "Asia/Tokyo"


@pytest.mark.parametrize(
    ("head", "begin"),
    [
        ("", "2026-12-23T15:00"),
        (OUTLOOK, "2026-12-23T23:00"),
        (TIMEZONE, "2026-12-23T19:00"),
        # two timezones are those of events, and neither is the calendar's
        (f"{OUTLOOK}\r\n{TIMEZONE}", "2026-12-23T15:00"),
        (f"X-WR-TIMEZONE:America/New_York\r\n{TIMEZONE}", "2026-12-24T05:00"),
        ("X-WR-TIMEZONE:W. Europe Standard Time", "2026-12-23T23:00"),
        ("X-WR-TIMEZONE:UTC", "2026-12-24T00:00"),
    ],
)
def test_a_whole_day_is_one_of_the_calendars_timezone(
    head: str, begin: str, tmp_path: Path
) -> None:
    """A calendar that names none is of the time zone that the caller says."""
    (freeze,) = read(tmp_path, DAY, head=head, zone=TOKYO)
    assert freeze.startswith(begin)


@pytest.mark.parametrize(
    ("variable", "begin"),
    [
        ("Europe/Berlin", "2026-12-23T23:00"),
        (":Europe/Berlin", "2026-12-23T23:00"),
        # by POSIX, west of Greenwich is positive
        ("CET-1CEST,M3.5.0,M10.5.0/3", "2026-12-23T23:00"),
        ("UTC+3", "2026-12-24T03:00"),
        ("GMT", "2026-12-24T00:00"),
    ],
)
def test_a_whole_day_is_one_of_this_machine(
    variable: str, begin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", variable)
    (freeze,) = read(tmp_path, DAY, zone="")
    assert freeze.startswith(begin)


@pytest.mark.parametrize(
    "variable",
    ["Europe/Berlinn", "Berlin", " ", "../etc/passwd", "/etc/passwd", "/nowhere", "A9,x"],
)
def test_a_machine_of_an_unknown_timezone_is_refused(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", variable)
    time.tzset()
    with pytest.raises(UsageError, match="the variable TZ is ") as refused:
        read(tmp_path, DAY, zone="")
    assert "TZ=Europe/Berlin" in refused.value.hint
    monkeypatch.undo()
    time.tzset()


def test_a_whole_day_of_summer_is_one_of_the_timezone_that_outlook_defines(tmp_path: Path) -> None:
    (freeze,) = read(tmp_path, "DTSTART;VALUE=DATE:20270701", head=OUTLOOK, zone=TOKYO)
    assert freeze == "2027-06-30T22:00..2027-07-01T22:00"


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"hello", b"<html>", b"BEGIN:VCALENDAR"])
def test_what_is_no_calendar_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.ics").write_bytes(content)
    with pytest.raises(UsageError, match="the calendar"):
        read_calendar(tmp_path / "a.ics", NOW, "UTC")
    with pytest.raises(UsageError, match="X-WR-TIMEZONE"):
        read(tmp_path, head="X-WR-TIMEZONE:Middle/Earth")
