"""`operate --finish-by`: a date that slips is told within one pass, once; the real program on the lab."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.apply.conftest import Rollout, Started
from tests.ended import Ended, invoked
from tests.operate.conftest import ONCE, assert_all_done, assert_untouched, open_now
from tests.waiting import Inbox, received


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with received() as endpoint:
        yield endpoint


def lateness(file: Path) -> float:
    families = text_string_to_metric_families(file.read_text())
    (late,) = (family.samples for family in families if family.name == "node_rollout_deadline_late_seconds")
    return float(late[0].value)


def test_a_date_that_slips_is_told_once_until_it_is_in_time_again(
    inbox: Inbox, started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab, metrics = started("default", 4), tmp_path / "rollout.prom"
    by = f"{datetime.now(UTC) + timedelta(hours=4):%Y-%m-%dT%H:%MZ}"
    closed = ("--window", open_now(hours=6))

    def a_pass(*rules: str) -> Ended:
        ended = invoked(
            tmp_path,
            {**lab.environment, "ROLLOUT_NOTIFY": inbox.url},
            [*ONCE, *rules, "--set", f"metrics.textfile={metrics}"],
        )
        assert ended.code == 0, ended.stderr
        return ended

    for _pass in range(2):
        assert f"warning: operate is not done by {by}: its forecast is 20" in a_pass("--finish-by", by, *closed).stderr
    assert inbox.events() == ["deadline"]
    note = inbox.one("deadline")
    assert (note["level"], note["title"].endswith(f": not done by {by}")) == ("warning", True)
    assert f"Next: rollout plan --finish-by {by}" in note["body"]
    assert 3600 < lateness(metrics) < 4 * 3600
    told = rollout(lab, "status").stdout
    assert f"operate is not done by {by}: its forecast is 20" in " ".join(told.split())
    never = a_pass("--finish-by", by, "--window", "12:00 1s")
    assert "no window of the next two years is enough" in never.stderr
    assert (inbox.events(), lateness(metrics)) == (["deadline"], float("inf"))
    assert_untouched(lab)

    later = f"{datetime.now(UTC) + timedelta(days=2):%Y-%m-%dT%H:%MZ}"
    a_pass("--finish-by", later, *closed)
    assert (inbox.events(), lateness(metrics)) == (["deadline"], 0)
    assert "is not done by" not in rollout(lab, "status").stdout
    a_pass("--finish-by", by, *closed)
    assert inbox.events() == ["deadline", "deadline"]
    # what is done is in time, whatever the date
    a_pass("--finish-by", by)
    a_pass("--finish-by", "2026-01-01T00:00Z")
    done = inbox.events()[2:]
    assert (done[0], done[-1], "deadline" in done, lateness(metrics)) == ("started", "finished", False, 0)
    assert "is not done by" not in rollout(lab, "status").stdout
    assert_all_done(lab)


def test_a_date_is_a_moment(started: Started, rollout: Rollout) -> None:
    lab = started("default", 1)
    refused = rollout(lab, *ONCE, "--finish-by", "8h")
    assert (refused.code, "'8h' is not a date with a time" in refused.stderr) == (64, True), refused.stderr
