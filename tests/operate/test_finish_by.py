"""`--finish-by`: the smallest limit that is done in time, and, of passes, a date that slips, told
once.
"""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from rollout.lab.lab import Lab
from rollout.model.gates import WindowPolicy
from rollout.model.policy import Pool
from rollout.planning.eligibility.windows import Schedule
from rollout.planning.plan.document import decode_plan
from rollout.planning.plan.finish_by import finish_date
from tests.apply.conftest import Rollout, Started
from tests.ended import Ended, invoked
from tests.operate.conftest import ONCE, assert_all_done, assert_untouched, open_now
from tests.waiting import Inbox


def seconds_with(lab: Lab, rollout: Rollout, limit: int) -> int:
    seconds: int = json.loads(
        rollout(lab, "plan", "-o", "json", "--max-unavailable", str(limit)).stdout
    )["estimate"]["seconds"]
    return seconds


def test_the_smallest_limit_that_is_done_in_time(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 9)
    one, two, most = (seconds_with(lab, rollout, limit) for limit in (1, 2, 9))
    assert most <= two < one
    enough = rollout(lab, "plan", "--finish-by", f"{one + 60}s")
    assert (enough.code, "--max-unavailable 1 is enough to finish by " in enough.stderr) == (
        0,
        True,
    ), enough.stderr
    middle = rollout(lab, "plan", "--finish-by", f"{two + 60}s", "--out", str(tmp_path / "a.plan"))
    assert (middle.code, "--max-unavailable 2 is enough to finish by " in middle.stderr) == (
        0,
        True,
    ), middle.stderr
    saved = decode_plan((tmp_path / "a.plan").read_bytes(), "")
    assert str(saved.policy.max_unavailable) == "2"
    shown = rollout(lab, "plan", "--finish-by", f"{two + 60}s")
    assert re.search(r"Next:\n +rollout apply.* --max-unavailable 2\n", shown.stdout), shown.stdout
    late = rollout(lab, "plan", "--finish-by", "60s").ends(6)
    assert re.search(
        r"cannot finish by .* with any --max-unavailable; the earliest end is about .*"
        r" with --max-unavailable 9; wave \d+ takes ",
        late.stderr,
    )
    assert "Next:" not in late.stdout
    closed = rollout(lab, "plan", "--finish-by", f"{one + 60}s", "--window", open_now(hours=12))
    assert closed.code == 6
    assert "cannot finish by" in closed.stderr
    rollout(lab, "plan", "--finish-by", "8h", "--max-unavailable", "2").ends(64)
    rollout(lab, "plan", "--finish-by", "yesterday").ends(64)
    assert_untouched(lab)


def test_waves_are_laid_into_windows(started: Started, rollout: Rollout, tmp_path: Path) -> None:
    lab = started("default", 4)
    file = tmp_path / "a.plan"
    rollout(lab, "plan", "--out", str(file)).ends(0)
    plan = decode_plan(file.read_bytes(), "")
    now = datetime(2026, 3, 2, 22, 0, tzinfo=UTC)
    whole = timedelta(seconds=sum(wave.estimate.seconds for wave in plan.waves))
    needed = [wave.estimate.drain + wave.estimate.reboot for wave in plan.waves]
    assert finish_date(plan, Schedule(), now) == now + whole
    # a window that takes one wave a night: the last begins as many nights later
    minutes = -(-max(needed) // 60)
    nightly = Schedule.of(WindowPolicy((f"22:00 {minutes}m",)))
    ended = finish_date(plan, nightly, now)
    assert ended == now + timedelta(
        days=len(plan.waves) - 1, seconds=plan.waves[-1].estimate.seconds
    )
    frozen = Schedule.of(WindowPolicy((f"22:00 {minutes}m",), freezes=("2026-03-02..2026-03-31",)))
    begun = finish_date(plan, frozen, now)
    assert begun is not None
    assert begun.date().isoformat() >= "2026-04-01"
    assert finish_date(plan, Schedule.of(WindowPolicy(("22:00 1m",))), now) is None
    # a pool's own windows, within the others
    pools = (Pool("", "", window=("tue 22:00 12h",)),)
    own = replace(plan, policy=replace(plan.policy, pools=pools))
    assert finish_date(own, Schedule(), now) == now + timedelta(days=1) + whole
    assert finish_date(own, Schedule.of(WindowPolicy(("mon 22:00 24h",))), now) is None


# Of passes that nobody watches: it is told within one pass.


def lateness(file: Path) -> float:
    families = text_string_to_metric_families(file.read_text())
    (late,) = (
        family.samples for family in families if family.name == "node_rollout_deadline_late_seconds"
    )
    return float(late[0].value)


def test_a_date_that_slips_is_told_once_until_it_is_in_time_again(
    inbox: Inbox, started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 4)
    metrics = tmp_path / "rollout.prom"
    by = f"{datetime.now(UTC) + timedelta(hours=4):%Y-%m-%dT%H:%MZ}"
    closed = ("--window", open_now(hours=6))

    def a_pass(*rules: str) -> Ended:
        return invoked(
            tmp_path,
            {**lab.environment, "ROLLOUT_NOTIFY": inbox.url},
            [*ONCE, *rules, "--set", f"metrics.textfile={metrics}"],
        ).ends(0)

    for _pass in range(2):
        assert (
            f"warning: operate misses the deadline {by}: its forecast is 20"
            in a_pass("--finish-by", by, *closed).stderr
        )
    assert inbox.events() == ["deadline"]
    note = inbox.one("deadline")
    assert note["level"] == "warning"
    assert note["title"].endswith(f": operate misses the deadline {by}")
    assert f"Next: rollout plan --finish-by {by}" in note["body"]
    assert re.search(r"^Wave \d takes longest \(\d+m\d\ds\): ", note["body"], re.MULTILINE)
    assert 3600 < lateness(metrics) < 4 * 3600
    told = rollout(lab, "status").stdout
    assert f"operate misses the deadline {by}: its forecast is 20" in " ".join(told.split())
    never = a_pass("--finish-by", by, "--window", "12:00 1s")
    assert "the windows in the next two years are too short" in never.stderr
    assert inbox.events() == ["deadline"]
    assert lateness(metrics) == float("inf")
    assert_untouched(lab)

    later = f"{datetime.now(UTC) + timedelta(days=2):%Y-%m-%dT%H:%MZ}"
    a_pass("--finish-by", later, *closed)
    assert inbox.events() == ["deadline"]
    assert lateness(metrics) == 0
    assert "misses the deadline" not in rollout(lab, "status").stdout
    a_pass("--finish-by", by, *closed)
    assert inbox.events() == ["deadline", "deadline"]
    # what is done is in time, whatever the date
    a_pass("--finish-by", by)
    a_pass("--finish-by", "2026-01-01T00:00Z")
    done = inbox.events()[2:]
    assert done[0] == "started"
    assert done[-1] == "finished"
    assert "deadline" not in done
    assert lateness(metrics) == 0
    assert "misses the deadline" not in rollout(lab, "status").stdout
    assert_all_done(lab)


def test_a_date_is_a_moment(started: Started, rollout: Rollout) -> None:
    lab = started("default", 1)
    refused = rollout(lab, *ONCE, "--finish-by", "8h")
    assert (refused.code, "'8h' is not a date with a time" in refused.stderr) == (64, True), (
        refused.stderr
    )
