"""Whole rollouts on whatever control plane is there: its controllers and its scheduler, and Nodes
that are played.
"""

import json
import signal
import time
from pathlib import Path

import pytest

from rollout.execution.events import COMPONENT
from rollout.model import marks as words
from tests.contract.cluster import MERGE, Json
from tests.contract.played import Played
from tests.contract.programs import (
    FLAGS,
    UNATTENDED,
    ask_for_reboots,
    assert_a_host_that_asks_is_served,
    assert_in_service,
    assert_rebooted_once,
    ended,
    marks,
    node,
    selector,
    started,
    watched,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("alone")


def test_one_that_was_killed_is_gone_on_with(played: Played, tmp_path: Path) -> None:
    before = played.reboots
    process = started(played, tmp_path, "apply", "--yes", *FLAGS, *selector(played))
    assert process.stdout is not None
    phases = (json.loads(line) for line in process.stdout)
    next(line for line in phases if line.get("phase") == "draining")
    process.send_signal(signal.SIGKILL)
    process.communicate()

    code, _lines, told = run(played, tmp_path, "resume", "--yes", "-o", "json")

    assert code == 0, told
    assert_rebooted_once(played, before)


def test_a_budget_that_never_allows_is_kept(played: Played, tmp_path: Path) -> None:
    before = played.reboots
    budget = f"{played.cluster.budgets(played.namespaces[0])}/web"
    web = played.cluster.get(
        f"/api/v1/namespaces/{played.namespaces[0]}/pods", labelSelector="app=web"
    ).body["items"]
    holder = web[0]["spec"]["nodeName"]
    assert played.cluster.patch(budget, {"spec": {"maxUnavailable": 0}}, MERGE).status == 200
    try:
        code, _, _ = run(played, tmp_path, "apply", "--yes", *FLAGS, "--node", holder)
        assert code == 6
        flags = (*FLAGS, "--allow", "blocked", "--drain-timeout", "4s", "--node", holder)
        code, lines, _ = run(played, tmp_path, "apply", "--yes", *flags)
    finally:
        played.cluster.patch(budget, {"spec": {"maxUnavailable": 1}}, MERGE)
    assert code == 4
    assert [entry["outcome"] for entry in lines[-1]["failed"]] == ["drain-failed"]
    assert played.reboots == before
    assert "unschedulable" not in node(played, holder)["spec"]
    left = played.cluster.get(
        f"/api/v1/namespaces/{played.namespaces[0]}/pods", labelSelector="app=web"
    ).body["items"]
    assert {pod["metadata"]["uid"] for pod in web} == {pod["metadata"]["uid"] for pod in left}


def test_a_lease_that_somebody_deletes_ends_it(played: Played, tmp_path: Path) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{played.namespaces[0]}/leases/node-rollout"
    process = started(played, tmp_path, "apply", "--yes", *FLAGS, *selector(played))
    assert process.stdout is not None
    next(line for line in process.stdout if '"draining"' in line)
    assert played.cluster.send("DELETE", path).status == 200
    time.sleep(1.5)
    code, lines, told = ended(process)
    assert code == 4, told
    assert {entry["outcome"] for entry in lines[-1]["failed"]} == {"fenced"}
    undoing = started(played, tmp_path, "abort", "--yes")
    _, told = undoing.communicate(timeout=240)
    assert undoing.returncode == 0, told
    assert_in_service(played, results=False)


# Every other way of taking nodes through, and what steers and watches it, on whatever control plane
# is there.


AWAITING = words.AWAITING_REBOOT


def run(
    played: Played, home: Path, *arguments: str, **variables: str
) -> tuple[int, list[Json], str]:
    return ended(started(played, home, *arguments, **variables))


@pytest.mark.sample
@pytest.mark.parametrize(("strategy", "limit"), [("rolling", 2), ("rolling", 1), ("waves", 2)])
def test_limit_taint_labels_and_events(
    played: Played, tmp_path: Path, strategy: str, limit: int
) -> None:
    before = played.reboots
    ways = (
        *("--strategy", strategy, "--max-unavailable", str(limit)),
        *("--set", "drain.exclude-from-load-balancers=200ms"),
    )
    with watched(played) as seen:
        code, lines, told = run(
            played,
            tmp_path,
            *("apply", "--yes", "--allow", "idle", "-o", "json"),
            *ways,
            "--set",
            "labels.fluo=true",
            *selector(played),
        )
    assert code == 0, told
    assert sorted(lines[-1]["succeeded"]) == sorted(played.kubelets)
    assert seen.most_cordoned <= limit
    assert {name for name, key in seen.taints if key == AWAITING}
    assert seen.labels[words.EXCLUDED_FROM_BALANCERS] == set(played.kubelets)
    assert seen.labels[words.FLUO_ID] == set(played.kubelets)
    assert_rebooted_once(played, before)
    for name in played.kubelets:
        events = played.cluster.get(
            "/api/v1/namespaces/default/events", fieldSelector=f"involvedObject.name={name}"
        )
        reasons = {
            event["reason"]
            for event in events.body["items"]
            if event["source"].get("component") == COMPONENT
        }
        assert {"Cordoned", "Drained", "Booted", "Done"} <= reasons


def test_a_pass_takes_nobodys_own_node_and_the_next_one_does(
    played: Played, tmp_path: Path
) -> None:
    """The process's pod is one of a Deployment: once evicted, its successor finds another node by
    the scheduler.
    """
    before = played.reboots
    own = _web(played)[0]
    held = own["spec"]["nodeName"]
    owner = own["metadata"]["name"]
    rules = (*UNATTENDED, "--set", "waves.health-checks=1")
    ask_for_reboots(played)
    standing = started(
        played, tmp_path, "operate", "--every", "1h", *rules, *selector(played), **_as(own)
    )
    try:
        wait_until(lambda: all(pod["metadata"]["name"] != owner for pod in _web(played)), 120)
        time.sleep(1)
    finally:
        standing.send_signal(signal.SIGTERM)
        code, _, told = ended(standing)
    assert code == 0, told
    assert "is evicted" in told
    assert played.reboots == {name: count + (name != held) for name, count in before.items()}
    assert set(marks(played, held)) >= {"deferred"}
    wait_until(
        lambda: any(pod["spec"].get("nodeName") not in {None, held} for pod in _web(played)), 60
    )
    elsewhere = next(pod for pod in _web(played) if pod["spec"].get("nodeName") not in {None, held})
    code, lines, told = run(
        played, tmp_path, "operate", "--once", *rules, "--node", held, **_as(elsewhere)
    )
    assert code == 0, told
    assert lines[-1]["succeeded"] == [held]
    assert_in_service(played)


def _web(played: Played) -> list[Json]:
    path = f"/api/v1/namespaces/{played.namespaces[0]}/pods"
    found: list[Json] = played.cluster.get(path, labelSelector="app=web").body["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def _as(pod: Json) -> dict[str, str]:
    return {
        "ROLLOUT_NODE_NAME": pod["spec"]["nodeName"],
        "ROLLOUT_POD_NAMESPACE": pod["metadata"]["namespace"],
        "ROLLOUT_POD_NAME": pod["metadata"]["name"],
    }


def test_a_host_is_granted_its_reboot_once_its_node_is_drained(
    played: Played, tmp_path: Path
) -> None:
    assert_a_host_that_asks_is_served(played, tmp_path)
