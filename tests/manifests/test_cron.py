"""The schedules that a CronJob takes, as the API server's parser reads them."""

import re

import pytest

from rollout.manifests.cron import check_schedule

TAKEN = (
    "0 1 * * *",
    "*/15 0-6/2 1,15 JAN-mar,12 Mon-FRI",
    "5/10 ? ? * 0",
    "0 0 29 2 *",
    "0 0 31 * *",
    "0 0 30 2 mon",
    "@daily",
    "@every 1h30m",
)
REFUSED = {
    "0 99 * * *": "hour '99': '99' is not a number from 0 to 23.",
    "60 1 * * *": "minute '60': '60' is not a number from 0 to 59.",
    "0 1 0 * *": "day of month '0': '0' is not a number from 1 to 31.",
    "0 1 * 13 *": "month '13': '13' is not a number from 1 to 12 or jan to dec.",
    "0 1 * * 7": "day of week '7': '7' is not a number from 0 to 6 or sun to sat.",
    "0 1 * * sunday": "day of week 'sunday': 'sunday' is not a number",
    "0 1 * * fri-mon": "day of week 'fri-mon': the range ends before it begins.",
    "*/0 1 * * *": "step '*/0': '0' is not a number from 1 to 59.",
    "*-5 1 * * *": "minute '*-5': '*' is not a number",
    "1-2-3 1 * * *": "minute '1-2-3': '2-3' is not a number",
    "1,,2 1 * * *": "minute '': '' is not a number",
    "-1 1 * * *": "minute '-1': '' is not a number",
    "\u0661 1 * * *": "is not a number",
    "0 1 L * *": "day of month 'L': 'L' is not a number",
    "0 1 * *": "has 4 fields, and a schedule has five.",
    "0 0 1 * * *": "has 6 fields, and a schedule has five.",
    "0 1 30 2 *": "never runs: the month has no day 30.",
    "0 1 31 4,6 *": "never runs: the month has no day 31.",
    "TZ=Europe/Berlin 0 1 * * *": (
        "contains a time zone, which a CronJob does not accept here. Use --time-zone instead."
    ),
    "CRON_TZ=UTC @daily": "contains a time zone",
    "@reboot": "'@reboot' is not a schedule. Use one of @yearly",
    "@Daily": "'@Daily' is not a schedule.",
    "@every day": "'@every day' is not a schedule.",
}


@pytest.mark.parametrize("schedule", TAKEN)
def test_a_schedule_that_the_api_server_takes_is_taken(schedule: str) -> None:
    assert check_schedule(f" {schedule} ") == schedule


@pytest.mark.parametrize(("schedule", "reason"), REFUSED.items())
def test_a_schedule_that_would_not_work_is_refused(schedule: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        check_schedule(schedule)
