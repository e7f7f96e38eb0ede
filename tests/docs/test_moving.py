"""The page on moving here names what exists, and its example checks are objects that an API server takes."""

import re
from collections.abc import Iterator
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import kubernetes_validate
import pytest
import yaml

from rollout.model.gates import HookPolicy
from rollout.planning.schedule import Schedule
from rollout.planning.windows import Window
from tests.docs import reference
from tests.docs.pages import DOCS

PAGE = (DOCS / "moving.md").read_text(encoding="utf-8")
CHECKS = sorted((DOCS / "examples").glob("*-reboot-check.yaml"))
RELEASES = [f"1.{minor}" for minor in range(28, 37)]


def rows() -> Iterator[tuple[str, str]]:
    """What was there, and what is here, of every table."""
    for line in PAGE.splitlines():
        if line.startswith("| ") and not line.startswith(("| there", "| ---")):
            there, here = line.strip("| ").split(" | ")
            yield there, here


def flags(text: str) -> set[str]:
    return set(re.findall(r"(--[a-z][a-z-]*[a-z])(?![a-z-]|-\*)", text))


def test_every_flag_that_stands_on_our_side_exists() -> None:
    known = {name for _, option in reference.options() for name in (*option.opts, *option.secondary_opts)}
    ours = {flag for _, here in rows() for flag in flags(here)}
    assert len(ours) > 8
    assert ours <= known
    alike = [there for there, here in rows() if here.startswith("the same")]
    assert alike
    assert {flag for there in alike for flag in flags(there)} <= known


def test_the_two_windows_that_replace_kureds_are_open_when_kureds_is() -> None:
    """kured's rule, of its pkg/timewindow: today's weekday, and a time after its start or before its end."""
    there = re.search(r"--reboot-days (\S+) --start-time (\S+)\s--end-time (\S+)`", PAGE)
    assert there is not None
    days, start, end = there[1].split(","), time.fromisoformat(there[2]), time.fromisoformat(there[3])
    ours = [Window.parse(text) for text in re.findall(r"^\* `--window \"(.+)\"`$", PAGE, re.MULTILINE)]
    one = [Window.parse(f"mon-fri 21:00 8h {ours[0].zone}")]
    # a week of no particular season, half a minute off each full one: kured's last second is inclusive
    monday = datetime(2026, 3, 2, 0, 0, 30, tzinfo=ZoneInfo(str(ours[0].zone)))
    differ = set[str]()
    for moment in (monday + timedelta(minutes=minute) for minute in range(7 * 24 * 60)):
        kured = f"{moment:%a}".lower() in days and (moment.time() >= start or moment.time() <= end)
        assert (Schedule(tuple(ours)).current(moment) is not None) == kured, moment
        if (Schedule(tuple(one)).current(moment) is not None) != kured:
            differ.add(f"{moment:%a %H}")
    nights = range(end.hour)
    assert differ == {f"{day} {hour:02}" for day in ("Mon", "Sat") for hour in nights}


def objects(check: Path) -> dict[str, dict[str, Any]]:
    return {item["kind"]: item for item in yaml.safe_load_all(check.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.stem)
def test_every_release_takes_the_example_checks(check: Path, release: str) -> None:
    for item in objects(check).values():
        kubernetes_validate.validate(item, release, strict=True)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.stem)
def test_an_example_check_runs_where_rollout_asks_and_may_do_no_more_than_answer(check: Path) -> None:
    when = check.stem.removesuffix("-check")
    item = objects(check)
    pod = item["DaemonSet"]["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {HookPolicy().prefix + when: "true"}
    assert item["ClusterRole"]["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}]
    assert pod["serviceAccountName"] == item["ServiceAccount"]["metadata"]["name"]
    assert f"--set gates.{when}-annotations=checks.example/{when}" in check.read_text(encoding="utf-8")
    assert f"checks.example/{when}=true" in pod["initContainers"][-1]["args"]
