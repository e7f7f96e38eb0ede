"""The printed Deployment on a lab: every node can be drained, those with the server's own pods as well."""

import json
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollout.errors import ExitCode
from rollout.lab.api.resources import PODS
from rollout.lab.lab import Lab
from rollout.lab.scenario import NodeGroup, Role, Scenario
from tests.conftest import StartLab
from tests.ended import end_of, start
from tests.server.serving import await_true, reboot, serving

KUBECTL = str(Path(sysconfig.get_path("scripts")) / "kubectl")
NAME = "node-rollout-fleetlock"
# What the lab serves of it.
APPLIED = ("Namespace", "Deployment", "PodDisruptionBudget")


def printed(home: Path, variables: Mapping[str, str]) -> list[dict[str, Any]]:
    ended = end_of(start(home, variables, ("manifests", "fleetlock", "--image", "registry.example/node-rollout:1")))
    assert ended.code == ExitCode.OK, ended.stderr
    return [item for item in yaml.safe_load_all(ended.stdout) if item["kind"] in APPLIED]


def places(lab: Lab) -> list[str]:
    """The nodes of the replicas that run."""
    pods = lab.call(lambda: list(lab.store.items(PODS)))
    own = (
        pod for pod in pods if pod["metadata"]["name"].startswith(NAME) and "deletionTimestamp" not in pod["metadata"]
    )
    return sorted(pod["spec"]["nodeName"] for pod in own if pod["status"].get("phase") == "Running")


@pytest.mark.kubectl
@pytest.mark.parametrize("workers", [2, 4])
def test_each_node_is_drained_whoever_runs_there(workers: int, start_lab: StartLab, tmp_path: Path) -> None:
    """With two nodes in all the replica of one waits until its node is back: the other goes on."""
    nodes = (NodeGroup(prefix="worker", role=Role.WORKER, count=workers),)
    lab = start_lab(Scenario(description="own replicas", nodes=nodes), speed=30)
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": printed(tmp_path, lab.environment)})
    words = [KUBECTL, "--kubeconfig", str(lab.kubeconfig), "apply", "--validate=false", "-f", "-"]
    applied = subprocess.run(words, input=text, text=True, check=False, capture_output=True)
    assert applied.returncode == 0, applied.stderr
    await_true(lambda: len(places(lab)) == 2, "both replicas run")
    with serving(lab, tmp_path, "--lease-duration", "3s", "--health-checks", "1") as server:
        for node in sorted(lab.machines):
            assert len(set(places(lab))) == len(places(lab)), "no two of them on one node"
            server.await_grant(node)
            assert node not in places(lab)
            assert places(lab), "one of them goes on"
            reboot(lab, node)
            server.await_release(node)
            await_true(lambda: len(places(lab)) == 2, "both replicas run again")
    score = lab.scoreboard()
    assert (score.killed, score.budgets_broken, score.rebooted_undrained) == ((), (), ())
    assert set(score.reboots.values()) == {1}
