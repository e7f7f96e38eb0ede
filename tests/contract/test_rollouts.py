"""Whole rollouts on whatever control plane is there: its controllers and its scheduler, and Nodes that are played."""

import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollout.gather.cluster.node_events import COMPONENT
from rollout.lab.scenario import Budget, NodeGroup, Scenario, Workload, WorkloadKind
from tests.contract.cluster import MERGE, Cluster, Json
from tests.contract.played import Played

SCENARIO = Scenario(
    description="Three nodes with a bit of everything that is evicted in its own way.",
    nodes=(NodeGroup(prefix="played", count=3),),
    workloads=(
        Workload(kind=WorkloadKind.DAEMON_SET, name="agent"),
        Workload(kind=WorkloadKind.DEPLOYMENT, name="web", replicas=3, budget=Budget(max_unavailable=1)),
        Workload(kind=WorkloadKind.STATEFUL_SET, name="db", replicas=2, exclusive=True, budget=Budget(min_available=1)),
        Workload(kind=WorkloadKind.DEPLOYMENT, name="scratch", replicas=2, empty_dir=True),
    ),
)
FLAGS = ("--reboot-idle", "--max-unavailable", "100%", "-o", "json")


@pytest.fixture(scope="module")
def played(server: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    if not server.controller_delay:
        pytest.skip("an API alone moves no pods")
    directory = tmp_path_factory.mktemp("played")
    nodes = Played(Cluster(server.kubeconfig, directory), SCENARIO, directory)
    with nodes.running():
        yield nodes


@pytest.fixture(autouse=True)
def alone(played: Played, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One rollout at a time on one server, whichever worker of this run it comes from.

    Each has a lock of its own, in a namespace of its own; but what stands on a begun Node is seen cluster-wide, and
    whoever sees the marks of a rollout whose record is not to be found takes no node.
    """
    server = hashlib.sha256(played.cluster.url.encode()).hexdigest()[:16]
    with (tmp_path_factory.getbasetemp().parent / f"rollouts-on-{server}").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def started(played: Played, home: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), **played.environment}
    scope = ("--lease-namespace", played.namespaces[0], "--lease-duration", "3s")
    return subprocess.Popen(
        [sys.executable, "-m", "rollout", *arguments, *scope],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, list[dict[str, Any]], str]:
    stdout, stderr = process.communicate(timeout=240)
    return process.returncode, [json.loads(line) for line in stdout.splitlines()], stderr


def node(played: Played, name: str) -> Json:
    found: Json = played.cluster.get(f"/api/v1/nodes/{name}").body
    return found


def assert_in_service(played: Played, *, results: bool = True) -> None:
    """Nothing of a rollout is left but the result, which an aborted one does not write on every node."""
    for name in played.kubelets:
        seen = node(played, name)
        assert "unschedulable" not in seen["spec"]
        annotations = seen["metadata"].get("annotations", {})
        ours = [key for key in annotations if key.startswith("node-rollout.dev/")]
        assert ours == ["node-rollout.dev/last-result"] or (not results and ours == [])
    namespace = played.namespaces[0]
    assert played.cluster.get(f"/api/v1/namespaces/{namespace}/configmaps/node-rollout").status == 404
    lease = played.cluster.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/node-rollout")
    assert not lease.body["spec"].get("holderIdentity")


def selector(played: Played) -> tuple[str, str]:
    return ("-l", f"contract.node-rollout.dev/run={played.cluster.run}")


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
        flags = (*FLAGS, "--ignore-blockers", "--drain-timeout", "4s", "--node", holder)
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
