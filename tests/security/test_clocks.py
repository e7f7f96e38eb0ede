"""Clocks that disagree: an operator's machine minutes or a day off, held against what the API server has stamped.

Mishap: a pod that is being deleted carries the moment by which it should be gone, written by the
API server's clock. Held against the clock of the machine that `rollout` runs on, a pod in its grace
looks stuck (a false blocker) or, with drain.skip-wait-for-delete-timeout, long overdue: it is left
behind and the host is rebooted under it. Rule: what the server has stamped is held against the
server's own clock, which its answers tell; without it no pod is overdue.
"""

import json
from datetime import timedelta

import msgspec
import pytest

from rollout.errors import ExitCode
from rollout.lab.api.lifecycle import begin_deletion
from rollout.lab.api.resources import PODS
from rollout.lab.api.store import Json, timestamp
from rollout.lab.hostplan import scale
from rollout.lab.lab import Lab
from rollout.lab.scenario import ScenarioWorkload, WorkloadKind, load_scenario
from tests.apply.conftest import Rollout
from tests.conftest import StartLab
from tests.ended import Ended

pytestmark = pytest.mark.exhaustive

MINUTES = 300
DAY = 86400
QUICK = ("--control-plane", "exclude", "--max-unavailable", "2", "--drain-timeout", "2m")


def shifted(start_lab: StartLab, ahead: float, *, ends_after: str) -> Lab:
    """A lab whose clocks are off, in which one pod takes its time to end."""
    slow = ScenarioWorkload(
        kind=WorkloadKind.DEPLOYMENT,
        name="slow",
        namespace="shop",
        spec={"terminationGracePeriodSeconds": 3600},
        lab={"termination-seconds": ends_after},
    )
    base = scale(load_scenario("default"), 6)
    return start_lab(
        msgspec.structs.replace(base, workloads=(*base.workloads, slow), clock_ahead=ahead)
    )


def told_to_go(lab: Lab, *, grace: int, overdue: int = 0) -> str:
    """Somebody deletes the slow pod, which has so long, or should have been gone for so long; its
    node's name.
    """

    def delete() -> str:
        found: Json = next(
            pod for pod in lab.store.items(PODS) if pod["metadata"]["name"].startswith("slow")
        )
        left = begin_deletion(lab.store, PODS, found, grace_seconds=grace)
        assert left is not None
        if overdue:
            stamp = timestamp(lab.store.now() - timedelta(seconds=overdue))
            lab.store.put(
                PODS, {**left, "metadata": {**left["metadata"], "deletionTimestamp": stamp}}
            )
        return str(found["spec"]["nodeName"])

    return lab.call(delete)


def blockers(ended: Ended) -> list[str]:
    kinds = [found["kind"] for found in json.loads(ended.stdout)["blockers"]]
    assert ended.code == (ExitCode.BLOCKED if kinds else ExitCode.OK), ended.stderr
    return kinds


@pytest.mark.parametrize("ahead", [-DAY, -MINUTES, DAY])
def test_no_host_is_rebooted_under_a_pod_in_its_grace(
    start_lab: StartLab, rollout: Rollout, ahead: int
) -> None:
    lab = shifted(start_lab, ahead, ends_after="300")
    node = told_to_go(lab, grace=1200)
    ended = rollout(
        lab,
        "apply",
        *QUICK,
        *("--node", node, "--yes", "--set", "drain.skip-wait-for-delete-timeout=60"),
    ).ends(0)
    score = lab.scoreboard()
    assert score.clean, score
    assert score.reboots[node] == 1
    assert "overdue" not in ended.stderr


@pytest.mark.parametrize("ahead", [-DAY, DAY])
def test_a_pod_that_is_overdue_by_the_servers_clock_is_found_by_any(
    start_lab: StartLab, rollout: Rollout, ahead: int
) -> None:
    lab = shifted(start_lab, ahead, ends_after="never")
    node = told_to_go(lab, grace=3600, overdue=600)
    asked = ("plan", *QUICK, "--node", node, "-o", "json")
    assert blockers(rollout(lab, *asked)) == ["stuck-terminating"]
    assert blockers(rollout(lab, *asked, "--set", "drain.skip-wait-for-delete-timeout=60")) == []
    assert (
        blockers(
            rollout(
                lab,
                *asked,
                *("--set", "drain.skip-wait-for-delete-timeout=7200", "--drain-timeout", "30m"),
            )
        )
        == []
    )
