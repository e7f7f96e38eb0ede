"""What the plan foresees is what happens: the same cluster, planned, then applied without heeding the plan."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rollout.errors import ExitCode
from rollout.lab.hostplan import scale
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from tests.apply.conftest import Rollout
from tests.ended import Ended

pytestmark = pytest.mark.exhaustive

QUICK = (
    *("--max-unavailable", "3", "--control-plane", "exclude", "--drain-timeout", "5s"),
    *("--reboot-timeout", "20s", "--ready-timeout", "20s", "--settle-timeout", "20s"),
)
# Real seconds within which each blocker is certain: half a minute of the lab's time, and a busy machine's planning.
LONG = 60
DESPITE = ("--yes", "-o", "json", "--allow", "blocked", "--max-failures", "99")


@contextmanager
def lab_of(scenario: str, nodes: int, directory: Path) -> Iterator[Lab]:
    with Lab.start(scale(load_scenario(scenario), nodes), directory=directory / "lab", speed=30) as lab:
        yield lab


def blocked(plan: Mapping[str, Any]) -> dict[str, set[str]]:
    """The kinds of blockers by node."""
    found: dict[str, set[str]] = {}
    for blocker in plan["blockers"]:
        found.setdefault(blocker["node"], set()).add(blocker["kind"])
    return found


def planned(rollout: Rollout, lab: Lab, *flags: str) -> dict[str, Any]:
    ended = rollout(lab, "plan", "-o", "json", *QUICK, *flags)
    document: dict[str, Any] = json.loads(ended.stdout)
    assert ended.code == (ExitCode.BLOCKED if document["blockers"] else ExitCode.OK), ended.stderr
    return document


def failed(ended: Ended) -> set[str]:
    """The nodes that failed, all of them while draining."""
    assert {entry["phase"] for entry in ended.summary["failed"]} <= {"draining"}
    return {entry["node"] for entry in ended.summary["failed"]}


def wait_until_long_unready(rollout: Rollout, lab: Lab, kind: str, *flags: str) -> dict[str, Any]:
    """Plans until a kind of blocker shows that needs a while to be certain."""
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        plan = planned(rollout, lab, *flags)
        if any(kind in kinds for kinds in blocked(plan).values()):
            return plan
    pytest.fail(f"{kind} was not foreseen within {LONG} s")


def test_each_kind_of_blocker_is_foreseen_and_comes_true(tmp_path: Path, rollout: Rollout) -> None:
    with lab_of("forecast", 12, tmp_path) as lab:
        plan = wait_until_long_unready(rollout, lab, "budget-unhealthy")
        assert blocked(plan) == {
            "worker-1": {"budget-never"},
            "worker-2": {"two-budgets"},
            "worker-3": {"unmanaged-pod"},
            "worker-4": {"budget-unhealthy"},
            "worker-5": {"fits-nowhere"},
            "worker-8": {"daemonset-gone"},
            "worker-9": {"budget-never"},
        }
        refused = rollout(lab, "apply", "--yes", *QUICK)
        assert refused.code == 6
        assert "--allow blocked" in refused.stderr

        ended = rollout(lab, "apply", *DESPITE, *QUICK)

        assert ended.code == 4
        assert failed(ended) == set(blocked(plan))
        assert set(ended.summary["succeeded"]) == {"worker-6", "worker-7"}
        assert lab.scoreboard().cordons_left == ()
        assert lab.scoreboard().budgets_broken == ()


@pytest.mark.sample
@pytest.mark.parametrize("scenario", ["default", "mixed"])
def test_no_alarm_where_all_goes_well(scenario: str, tmp_path: Path, rollout: Rollout) -> None:
    with lab_of(scenario, 11, tmp_path) as lab:
        assert blocked(planned(rollout, lab)) == {}
        ended = rollout(lab, "apply", *DESPITE, *QUICK[:4], "--drain-timeout", "60s", "--reboot-timeout", "60s")
        assert failed(ended) == set()
