"""Which nodes are of the control plane: by role, as a label or as a taint, and by the operator's selector."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollout.lab.api.resources import NODES
from rollout.lab.lab import Lab
from rollout.lab.scenario import Scenario
from tests.apply.conftest import Rollout, command
from tests.apply.test_soft_taint import run_of

Started = Callable[[Scenario | str, int], Lab]
ALONE = "control plane: one at a time"
TYPHOON = "node.kubernetes.io/controller"


def describe(lab: Lab, name: str, labels: dict[str, str], taints: list[dict[str, str]]) -> None:
    """Give a node these labels and taints, instead of its role."""

    def put() -> None:
        node = lab.store.get(NODES, name)
        assert node is not None
        own = {key: value for key, value in node["metadata"]["labels"].items() if "node-role" not in key}
        metadata = {**node["metadata"], "labels": {**own, **labels}}
        lab.store.put(NODES, {**node, "metadata": metadata, "spec": {**node["spec"], "taints": taints}})

    lab.call(put)


def planned(rollout: Rollout, lab: Lab, *arguments: str) -> dict[str, Any]:
    ended = rollout(lab, "plan", "-o", "json", "--max-unavailable", "5", *arguments)
    plan: dict[str, Any] = json.loads(ended.stdout)
    assert ended.code == (6 if plan["blockers"] else 0), ended.stderr
    return plan


@pytest.mark.parametrize(
    ("labels", "taints", "flags"),
    [
        ({}, [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}], ()),
        ({}, [{"key": "node-role.kubernetes.io/etcd", "value": "true", "effect": "NoExecute"}], ()),
        ({"node-role.kubernetes.io/controlplane": "true"}, [], ()),
        ({TYPHOON: "true"}, [], ("--set", f"waves.control-plane-selector={TYPHOON}")),
    ],
)
def test_such_a_node_goes_alone_and_last(
    started: Started, rollout: Rollout, labels: dict[str, str], taints: list[dict[str, str]], flags: tuple[str, ...]
) -> None:
    lab = started("default", 5)
    described = planned(rollout, lab)["waves"][-1]["nodes"][0]["name"]
    describe(lab, "worker-1", labels, taints)
    waves = planned(rollout, lab, *flags)["waves"]
    alone = {node["name"] for wave in waves if wave["because"].startswith(ALONE) for node in wave["nodes"]}
    assert alone == {described, "worker-1"}
    assert [node["name"] for wave in waves[-2:] for node in wave["nodes"]] == sorted(alone)
    excluded = planned(rollout, lab, *flags, "--control-plane", "exclude")["excluded"]
    assert {(node["node"], node["reason"]) for node in excluded} == {(name, "excluded") for name in alone}


def test_an_interrupted_rollout_goes_on_by_it(started: Started, rollout: Rollout, tmp_path: Path) -> None:
    lab = started("default", 5)
    describe(lab, "worker-1", {TYPHOON: "true"}, [])
    nodes = ("--node", "worker-1", "--node", "worker-2", "--node", "worker-3")
    process = command(
        lab, tmp_path, "apply", "--yes", "-o", "json", "--set", f"waves.control-plane-selector={TYPHOON}", *nodes
    )
    assert process.stdout is not None
    next(line for line in process.stdout if '"draining"' in line)
    process.kill()
    process.communicate()
    resumed = rollout(lab, "resume", "--yes", "-o", "json", "--force-unlock", run_of(lab))
    assert resumed.code == 0, resumed.stderr
    last = resumed.plan["waves"][-1]
    assert ([node["name"] for node in last["nodes"]], last["because"]) == (["worker-1"], ALONE)
