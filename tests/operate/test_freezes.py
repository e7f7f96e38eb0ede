"""Freezes by the real program: nothing begins in one, whatever the windows say, and people read
until when.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.apply.conftest import Rollout, Started
from tests.operate.conftest import ONCE, assert_all_done, assert_untouched, open_now

TODAY = datetime.now(UTC).date()
FROZEN = f"{TODAY - timedelta(days=1)}..{TODAY + timedelta(days=1)}"
# the next midnight after the freeze; a test that runs over midnight still lies in it
ENDS = f"{TODAY + timedelta(days=2):%a %Y-%m-%d} 00:00 UTC"
FREEZE = ("--set", f"gates.freeze={FROZEN}")
APPLY = ("apply", "--yes", "-o", "json", "--max-unavailable", "2", "--set", "waves.health-checks=1")


def calendar(path: Path, *events: str) -> Path:
    path.write_text("\n".join(("BEGIN:VCALENDAR", "VERSION:2.0", *events, "END:VCALENDAR")))
    return path


def event(begin: datetime, length: str) -> str:
    return f"BEGIN:VEVENT\nUID:1\nDTSTART:{begin:%Y%m%dT%H%M%SZ}\nDURATION:{length}\nSUMMARY:sale\nEND:VEVENT"


def test_a_freeze_wins_over_an_open_window_in_every_command(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", 4)
    why = f"frozen ({FROZEN}); the next window opens "
    ended = rollout(lab, "operate", "--once", *FREEZE, "--window", open_now())
    assert ended.code == 0
    assert ended.stderr == ""
    assert ended.stdout.startswith(f"No node can be rebooted now: {why}")
    rollout(lab, *APPLY, *FREEZE).ends(4)
    planned = rollout(lab, "plan", "-o", "wide", *FREEZE).ends(0)
    assert f"Freeze: {FROZEN}: frozen; ends in " in planned.stdout
    assert f"No node can be rebooted now: {why}{ENDS}." in rollout(lab, "status", *FREEZE).stdout
    assert_untouched(lab)
    # one that is over, or to come, keeps nobody
    later = f"{TODAY + timedelta(days=40)}..{TODAY + timedelta(days=50)}"
    assert (
        "No node can be rebooted"
        not in rollout(lab, "status", "--set", f"gates.freeze={later}").stdout
    )
    rollout(lab, *ONCE, "--set", f"gates.freeze={later};2020-12-20..2021-01-04").ends(0)
    assert_all_done(lab)


def test_a_calendar_freezes_during_its_events_and_one_that_cannot_be_read_holds(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 4)
    now = datetime.now(UTC)
    file = calendar(tmp_path / "sales.ics", event(now - timedelta(hours=1), "PT9H"))
    held = rollout(lab, *ONCE, "--set", f"gates.calendar={file}").ends(0)
    assert any("frozen (" in str(line) for line in held.lines)
    for broken in (
        "not a calendar\n",
        "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:soon\nEND:VEVENT\nEND:VCALENDAR\n",
    ):
        file.write_text(broken)
        refused = rollout(lab, "operate", "--once", "--set", f"gates.calendar={file}").ends(64)
        assert f"the calendar {file} cannot be read" in refused.stderr
        assert "Traceback" not in refused.stderr
    rollout(lab, *ONCE, "--set", f"gates.calendar={tmp_path}/none.ics").ends(64)
    assert_untouched(lab)
    calendar(file, event(now + timedelta(days=3), "PT9H"))
    rollout(lab, *ONCE, "--set", f"gates.calendar={file}").ends(0)
    assert_all_done(lab)


def test_a_saved_plan_keeps_its_freeze(started: Started, rollout: Rollout, tmp_path: Path) -> None:
    lab = started("default", 4)
    rollout(lab, "plan", "--out", str(tmp_path / "a.plan"), *FREEZE).ends(0)
    refused = rollout(lab, "apply", str(tmp_path / "a.plan"), *FREEZE)
    assert refused.code == 64
    assert "--set gates.freeze" in refused.stderr
    ended = rollout(lab, "apply", str(tmp_path / "a.plan"), "-o", "json").ends(4)
    assert f"frozen ({FROZEN})" in str(ended.lines)
    assert_untouched(lab)
