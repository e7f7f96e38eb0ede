"""Windows and freezes against an independent account of time, by what the wall clocks of the zone
show.
"""

import calendar
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rollout.errors import UsageError
from rollout.model.finding import NoWindowAhead, WindowClosed
from rollout.model.gates import WindowPolicy
from rollout.planning.eligibility.windows import WEEKDAYS as DAYS
from rollout.planning.eligibility.windows import Schedule, Window, parse_days, parse_freeze

MINUTE = timedelta(minutes=1)
EVERY_DAY = {day[:3] for day in DAYS}


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def begins(
    days: set[str], start: tuple[int, int], zone: str, first: datetime, last: datetime
) -> set[datetime]:
    """Minutes at which a window begins, found by looking at the zone's wall clock every minute from first to last.

    A wall time that is shown twice counts when it is first shown. One that is never shown counts
    when it would have been shown, had the clock not been put forward.
    """
    found = set[datetime]()
    seen = set[datetime]()
    clock = ZoneInfo(zone)
    moment = first
    shown = (first - MINUTE).astimezone(clock).replace(tzinfo=None)
    while moment <= last:
        now = moment.astimezone(clock).replace(tzinfo=None)
        skipped = [shown + step * MINUTE for step in range(1, int((now - shown) / MINUTE))]
        for later, wall in [(0, now), *enumerate(skipped)]:
            is_start = (wall.hour, wall.minute) == start and DAYS[wall.weekday()][:3] in days
            if is_start and wall not in seen:
                found.add(moment + later * MINUTE)
                seen.add(wall)
        shown = now
        moment = moment + MINUTE
    return found


def is_open(beginnings: set[datetime], minutes: int, moment: datetime) -> bool:
    return any(begin <= moment < begin + minutes * MINUTE for begin in beginnings)


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("Thu - Thu, saturday 5:05 10m Asia/Kolkata", "thu,sat 05:05 600s Asia/Kolkata"),
        ("fri-mon 23:00 2h", "fri,sat,sun,mon 23:00 120m UTC"),
        ("mon 12:00 7d", "MONDAY 12:00 168h"),
    ],
)
def test_a_window_may_be_written_in_other_words(written: str, same: str) -> None:
    stretch = at("2026-02-25T00:00"), at("2026-03-25T00:00")
    assert (
        list(Window.parse(written).intervals(*stretch))
        == list(Window.parse(same).intervals(*stretch))
        != []
    )


ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Cairo",
    "America/St_Johns",
]
CHANGES = [
    "2026-03-08",
    "2026-03-29",
    "2026-04-05",
    "2026-04-24",
    "2026-10-04",
    "2026-10-25",
    "2026-10-30",
    "2026-11-01",
]


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@example(zone="Europe/Berlin", day="2026-03-29", days={"sun"}, start=(3, 0), minutes=1, offset=0)
@given(
    zone=st.sampled_from(ZONES),
    day=st.sampled_from(CHANGES),
    days=st.sets(st.sampled_from(sorted(EVERY_DAY)), min_size=1),
    start=st.tuples(st.integers(0, 4) | st.integers(22, 23), st.integers(0, 59)),
    minutes=st.integers(1, 1600),
    offset=st.integers(-1440, 2880),
)
def test_any_window_about_any_change_of_clocks(
    zone: str, day: str, days: set[str], start: tuple[int, int], minutes: int, offset: int
) -> None:
    moment = at(day) + offset * MINUTE
    window = Window.parse(f"{','.join(sorted(days))} {start[0]}:{start[1]:02} {minutes}m {zone}")
    expected = begins(
        days, start, zone, moment - timedelta(days=2), moment + timedelta(days=7, hours=2)
    )
    held = Schedule((window,)).current_opening(moment)
    upcoming = Schedule((window,)).next_opening(moment)
    assert (held is not None) == is_open(expected, minutes, moment)
    if held is not None:
        end = min(held.end, moment + timedelta(days=5))
        assert is_open(expected, minutes, end - MINUTE)
        assert end < held.end or not is_open(expected, minutes, end)
    following_begins = {
        begin
        for begin in expected
        if begin > moment and not is_open(expected, minutes, begin - MINUTE)
    }
    if following_begins:
        assert upcoming is not None
        assert upcoming.begin == min(following_begins)


def test_the_end_is_not_part_of_it() -> None:
    window = Window.parse("10:00 1h")
    assert Schedule((window,)).current_opening(at("2026-03-01T10:00")) is not None
    assert Schedule((window,)).current_opening(at("2026-03-01T10:59:59")) is not None
    assert Schedule((window,)).current_opening(at("2026-03-01T11:00")) is None
    assert Schedule((window,)).current_opening(at("2026-03-01T09:59:59")) is None


def test_windows_that_touch_are_one_opening() -> None:
    windows = [
        Window.parse("mon 22:00 2h"),
        Window.parse("tue 00:00 3h"),
        Window.parse("tue 05:00 1h"),
    ]
    held = Schedule(tuple(windows)).current_opening(at("2026-03-02T23:00"))
    assert held is not None
    assert held.begin == at("2026-03-02T22:00")
    assert held.end == at("2026-03-03T03:00")
    upcoming = Schedule(tuple(windows)).next_opening(at("2026-03-02T23:00"))
    assert upcoming is not None
    assert upcoming.begin == at("2026-03-03T05:00")


def test_what_fits_is_known_ahead() -> None:
    windows = [Window.parse("sat 10:00 30m"), Window.parse("sun 10:00 1h")]
    assert Schedule(tuple(windows)).fits_ever(at("2026-03-02T00:00"), 3600)
    assert not Schedule(tuple(windows)).fits_ever(at("2026-03-02T00:00"), 3601)


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("22:00", "not a window"),
        ("", "not a window"),
        ("mun 22:00 1h", "'mun'"),
        ("mon-fri 24:00 1h", "24:00"),
        ("22:00 0s", "longer than 0s"),
        ("22:00 8d", "at most a week"),
        ("22:00 soon", "'soon' is not a duration"),
        ("22:00 1h Europe/Atlantis", "'Europe/Atlantis'"),
        ("22:00 1h ../../etc/passwd", "not in the IANA time zone database"),
        ("22:00 1h localtime", "not in the IANA time zone database"),
        ("22:00 1h europe/berlin", "not in the IANA time zone database"),
    ],
)
def test_what_is_no_window_is_refused_by_name(written: str, names: str) -> None:
    with pytest.raises(UsageError, match=names):
        Window.parse(written)


# Days and freezes, day by day.


FOUR_YEARS = [date(2026, 1, 1) + timedelta(days=number) for number in range(4 * 365 + 1)]


def schedule(*windows: str, freezes: tuple[str, ...] = ()) -> Schedule:
    return Schedule.of(WindowPolicy(windows, freezes=freezes))


@pytest.mark.parametrize(
    ("word", "nth"), [("first", 0), ("second", 1), ("third", 2), ("fourth", 3), ("LAST", -1)]
)
@pytest.mark.parametrize(("name", "number"), [("mon", 0), ("sunday", 6)])
def test_an_ordinal_weekday_is_that_of_the_months_calendar(
    word: str, nth: int, name: str, number: int
) -> None:
    (days,) = parse_days(f"{word} {name}", "")
    weeks = {
        (day.year, day.month): calendar.monthcalendar(day.year, day.month) for day in FOUR_YEARS
    }
    expected = {
        month: [week[number] for week in rows if week[number]][nth] for month, rows in weeks.items()
    }
    assert {day for day in FOUR_YEARS if days.includes(day)} == {
        day for day in FOUR_YEARS if expected[day.year, day.month] == day.day
    }


@pytest.mark.parametrize(
    ("written", "begins", "ends", "times"),
    [
        ("2026-12-20..2027-01-04", "2026-12-20", "2027-01-04", 16),
        ("2026-12-20", "2026-12-20", "2026-12-20", 1),
        ("12-20..01-04", "2026-01-01", "2029-12-31", 4 * 16),
        ("02-29", "2028-02-29", "2028-02-29", 1),
        ("05-01,12-24..12-26", "2026-05-01", "2029-12-26", 16),
    ],
)
def test_dates_of_one_year_and_of_each(written: str, begins: str, ends: str, times: int) -> None:
    had = [day for day in FOUR_YEARS if any(days.includes(day) for days in parse_days(written, ""))]
    assert str(had[0]) == begins
    assert str(had[-1]) == ends
    assert len(had) == times


@pytest.mark.slow
def test_a_whole_day_is_frozen_by_its_own_clocks_also_when_they_change() -> None:
    zone = ZoneInfo("Europe/Berlin")
    rules = schedule(freezes=("last sun Europe/Berlin",))
    for first in (at("2026-03-28T12:00"), at("2026-10-24T12:00")):
        for moment in (first + timedelta(minutes=number) for number in range(2 * 1440)):
            is_sunday = moment.astimezone(zone).weekday() == calendar.SUNDAY
            assert (rules.current_opening(moment) is None) == is_sunday, moment


def test_sundays_only_and_never_over_christmas() -> None:
    rules = schedule("sun 22:00 4h Europe/Berlin", freezes=("12-20..01-04 Europe/Berlin",))
    # what a freeze cuts off a window ends at its midnight
    last = rules.current_opening(at("2026-12-13T22:00"))
    assert last is not None
    assert last.end == at("2026-12-14T01:00")
    frozen = WindowClosed(("12-20..01-04 Europe/Berlin",), "Sun 2027-01-10 22:00 CET")
    assert rules.why_closed(at("2026-12-20T21:30")) == frozen
    outside = WindowClosed((), "Sun 2027-01-10 22:00 CET")
    assert rules.why_closed(at("2026-12-14T12:00")) == outside
    cut = schedule("sat 22:00 6h", freezes=("2026-12-20..2027-01-04",))
    opening = cut.current_opening(at("2026-12-19T22:30"))
    assert opening is not None
    assert opening.end == at("2026-12-20T00:00")
    assert cut.fits_ever(at("2026-12-19T22:30"), 6 * 3600)
    assert not schedule("2026-12-19 22:00 6h", freezes=("2026-12-20",)).fits_ever(
        at("2026-12-01T00:00"), 2.5 * 3600
    )


def test_what_is_far_ahead_is_found() -> None:
    assert schedule("first sun 02:00 4h").fits_ever(at("2026-03-03T00:00"), 4 * 3600)
    following = schedule("2027-11-01 02:00 4h").next_opening(at("2026-03-03T00:00"))
    assert following is not None
    assert following.begin == at("2027-11-01T02:00")
    past = schedule("2020-11-01 02:00 4h")
    assert past.why_closed(at("2026-03-03T00:00")) == NoWindowAhead(())
    assert not schedule()
    assert schedule().why_closed(at("2026-03-03T00:00")) is None


def test_a_window_that_is_over_fits_nothing() -> None:
    long_and_short = schedule("2026-03-02 10:00 3h", "2026-03-09 10:00 1h")
    assert long_and_short.fits_ever(at("2026-03-02T12:59"), 7200)
    assert not long_and_short.fits_ever(at("2026-03-02T13:00"), 7200)


def test_a_freeze_between_two_moments() -> None:
    rules = schedule(freezes=("2026-12-18T18:00..2027-01-04T06:00 Europe/Berlin",))
    assert rules.why_closed(at("2026-12-18T16:59")) is None
    closed = rules.why_closed(at("2026-12-18T17:00"))
    assert isinstance(closed, WindowClosed)
    assert closed.opens == "Mon 2027-01-04 06:00 CET"
    assert rules.why_closed(at("2027-01-04T05:00")) is None
    # looked for nine days ahead, the last of them to its end
    soon = schedule(freezes=("2026-11-10 20:00 2h", "2026-11-10T14:00..2026-11-10T16:00"))
    upcoming = soon.next_freeze(at("2026-11-01T12:00"))
    assert upcoming
    assert upcoming.begin == at("2026-11-10T14:00")


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("", "not a freeze"),
        ("at night", "'at night'"),
        ("fifth sun", "'fifth sun'"),
        ("last", "not a day of the week"),
        ("2026-13-01", "'2026-13-01' in the freeze '2026-13-01' is not a date"),
        ("2027-01-04..2026-12-20", "ends before it begins"),
        ("2026-12-20..01-04", "has a year on only one side"),
        ("first sat,sun", "mixes weekly days with days of the month"),
        ("sun 22:00 8d", "the freeze 'sun 22:00 8d' must last longer"),
        ("2026-12-20 Europe/Berlim", "not in the IANA time zone database"),
        ("2026-12-20T10:00..2026-12-20T09:00", "ends before it begins"),
        ("2026-12-20T10:00..2026-12-20T25:00", "does not exist"),
    ],
)
def test_what_is_no_freeze_is_refused_by_name(written: str, names: str) -> None:
    with pytest.raises(UsageError, match=names):
        parse_freeze(written)
