"""Whole rollouts on whatever control plane is there: its controllers and its scheduler, and Nodes that are played."""

import json
import signal
import time
from pathlib import Path

import pytest

from rollout.execution.events import COMPONENT
from tests.contract.cluster import MERGE
from tests.contract.played import Played
from tests.contract.programs import FLAGS, assert_in_service, ended, node, selector, started

pytestmark = pytest.mark.usefixtures("alone")


@pytest.mark.sample
def test_every_node_is_taken_through(played: Played, tmp_path: Path) -> None:
    before = played.reboots
    code, lines, told = ended(started(played, tmp_path, "apply", "--yes", *FLAGS, *selector(played)))
    assert code == 0, told
    assert sorted(lines[-1]["succeeded"]) == sorted(played.kubelets)
    assert played.reboots == {name: count + 1 for name, count in before.items()}
    assert_in_service(played)
    for name in played.kubelets:
        events = played.cluster.get("/api/v1/namespaces/default/events", fieldSelector=f"involvedObject.name={name}")
        reasons = {event["reason"] for event in events.body["items"] if event["source"].get("component") == COMPONENT}
        assert {"Cordoned", "Drained", "Booted", "Done"} <= reasons


def test_one_that_was_killed_is_gone_on_with(played: Played, tmp_path: Path) -> None:
    before = played.reboots
    process = started(played, tmp_path, "apply", "--yes", *FLAGS, *selector(played))
    assert process.stdout is not None
    phases = (json.loads(line) for line in process.stdout)
    next(line for line in phases if line.get("phase") == "draining")
    process.send_signal(signal.SIGKILL)
    process.communicate()

    code, _lines, told = ended(started(played, tmp_path, "resume", "--yes", "-o", "json"))

    assert code == 0, told
    assert played.reboots == {name: count + 1 for name, count in before.items()}
    assert_in_service(played)


def test_a_budget_that_never_allows_is_kept(played: Played, tmp_path: Path) -> None:
    before = played.reboots
    budget = f"{played.cluster.budgets(played.namespaces[0])}/web"
    web = played.cluster.get(f"/api/v1/namespaces/{played.namespaces[0]}/pods", labelSelector="app=web").body["items"]
    holder = web[0]["spec"]["nodeName"]
    assert played.cluster.patch(budget, {"spec": {"maxUnavailable": 0}}, MERGE).status == 200
    try:
        code, _, _ = ended(started(played, tmp_path, "apply", "--yes", *FLAGS, "--node", holder))
        assert code == 6
        flags = (*FLAGS, "--allow", "blocked", "--drain-timeout", "4s", "--node", holder)
        code, lines, _ = ended(started(played, tmp_path, "apply", "--yes", *flags))
    finally:
        played.cluster.patch(budget, {"spec": {"maxUnavailable": 1}}, MERGE)
    assert code == 4
    assert [entry["outcome"] for entry in lines[-1]["failed"]] == ["drain-failed"]
    assert played.reboots == before
    assert "unschedulable" not in node(played, holder)["spec"]
    left = played.cluster.get(f"/api/v1/namespaces/{played.namespaces[0]}/pods", labelSelector="app=web").body["items"]
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
    code, _, told = ended(started(played, tmp_path, "abort", "--yes", "-o", "json"))
    assert code == 0, told
    assert_in_service(played, results=False)
