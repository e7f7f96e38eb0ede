"""`rollout pause` and `unpause`: what is paused is not begun, by plans and by rollouts that run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollout.lab.api.resources import NODES
from rollout.lab.lab import Lab
from rollout.model.marks import PAUSED, PAUSED_DETAILS, RIVAL_PAUSES
from tests.apply.conftest import Rollout, command
from tests.ended import end_of

WORKERS = ("--control-plane", "exclude")
APPLY = ("apply", "--yes", "-o", "json", *WORKERS, "--settle-timeout", "5s", "--set", "waves.health-checks=1")
Started = Callable[[str, int], Lab]


def annotations(lab: Lab, name: str) -> dict[str, str]:
    node = lab.call(lambda: lab.store.get(NODES, name))
    assert node is not None
    return {key: text for key, text in node["metadata"].get("annotations", {}).items() if "paused" in key}


def left_out(lab: Lab, rollout: Rollout) -> dict[str, str]:
    plan: Any = json.loads(rollout(lab, "plan", "-o", "json", *WORKERS).stdout)
    return {left["node"]: left["message"] for left in plan["excluded"] if left["reason"] == "paused"}


def let_pass(lab: Lab, hours: float) -> None:
    lab.call(lambda: lab.machines["worker-1"].clock.skip(hours * 3600))


def test_nodes_are_left_out_until_the_pause_ends_by_itself(started: Started, rollout: Rollout) -> None:
    lab = started("default", 6)
    said = rollout(lab, "pause", "worker-1,worker-2", "--reason", "disk swap", "--until", "8h")
    assert said.code == 0, said.stderr
    assert "End it: rollout unpause worker-1 worker-2" in said.stdout
    assert annotations(lab, "worker-1")[PAUSED] == "true"
    assert json.loads(annotations(lab, "worker-1")[PAUSED_DETAILS])["reason"] == "disk swap"
    messages = left_out(lab, rollout)
    assert list(messages) == ["worker-1", "worker-2"]
    assert messages["worker-1"].startswith("paused by ")
    assert messages["worker-1"].endswith("Z: disk swap")
    ended = rollout(lab, *APPLY)
    assert (ended.code, ended.summary["left_out"]["paused"]) == (0, 2)
    let_pass(lab, 9)
    assert left_out(lab, rollout) == {}
    checks = json.loads(rollout(lab, "doctor", "-o", "json").stdout)["checks"]
    over = [check for check in checks if check["check"] == "pause"]
    assert {check["subject"] for check in over} == {"worker-1", "worker-2"}
    assert "its pause is over" in over[0]["message"]
    assert "No longer paused: worker-1, worker-2" in rollout(lab, "unpause", "worker-1", "worker-2").stdout
    assert annotations(lab, "worker-1") == {}


def test_all_nodes_are_paused_at_once_and_abort_leaves_it(started: Started, rollout: Rollout) -> None:
    lab = started("default", 5)
    rollout(lab, "pause", "worker-1")
    assert rollout(lab, "pause", "--all", "--reason", "sale").code == 0
    assert all("all nodes are paused by" in why for node, why in left_out(lab, rollout).items() if node != "worker-1")
    assert "All nodes are paused by" in rollout(lab, "status").stdout
    ended = rollout(lab, *APPLY)
    assert (ended.code, ended.outcomes) == (0, {})
    assert rollout(lab, "abort", "--yes").code == 0
    pause_as_another_tool(lab, "worker-2")
    unpaused = rollout(lab, "unpause", "--all")
    assert "No longer paused: worker-1." in unpaused.stdout
    assert "All nodes are no longer paused." in unpaused.stdout
    assert "still paused, by another tool's annotation: worker-2" in unpaused.stderr
    assert list(left_out(lab, rollout)) == ["worker-2"]
    assert rollout(lab, *APPLY).code == 0


def pause_as_another_tool(lab: Lab, node: str) -> None:
    def annotate() -> None:
        body = lab.store.get(NODES, node)
        assert body is not None
        annotations = {**body["metadata"].get("annotations", {}), RIVAL_PAUSES[0]: "true"}
        lab.store.put(NODES, {**body, "metadata": {**body["metadata"], "annotations": annotations}})

    lab.call(annotate)


@pytest.mark.parametrize("what", ["--all", "worker-2"])
def test_a_rollout_that_runs_begins_none_that_was_paused_since(
    started: Started, rollout: Rollout, tmp_path: Path, what: str
) -> None:
    lab = started("default", 6)
    process = command(lab, tmp_path, *APPLY, "--drain-timeout", "60s")
    assert process.stdout is not None
    first = next(line for line in process.stdout if '"phase":"draining"' in line)
    assert rollout(lab, "pause", what, "--reason", "too risky").code == 0
    ended = end_of(process)
    begun = json.loads(first)["node"]
    summary = json.loads(ended.stdout.splitlines()[-1])
    assert begun in summary["succeeded"]
    assert "worker-2" not in summary["succeeded"]
    assert "too risky" in summary["reasons"]["worker-2"]
    if what == "--all":
        assert (ended.code, summary["succeeded"]) == (4, [begun])
    else:
        assert (ended.code, summary["skipped"]) == (0, ["worker-2"])


def test_a_pause_by_hand_has_no_end_and_can_be_ended(started: Started, rollout: Rollout) -> None:
    lab = started("default", 4)
    lab.call(lambda: lab.store.put(NODES, paused(lab.store.get(NODES, "worker-1"))))
    assert left_out(lab, rollout) == {"worker-1": f"paused by its annotation {PAUSED}"}
    assert rollout(lab, "unpause", "worker-1").code == 0
    assert left_out(lab, rollout) == {}
    assert "Not paused by rollout: worker-1" in rollout(lab, "unpause", "worker-1").stdout


def paused(node: Any) -> Any:
    known = node["metadata"].get("annotations", {})
    return {**node, "metadata": {**node["metadata"], "annotations": {**known, PAUSED: "true"}}}
