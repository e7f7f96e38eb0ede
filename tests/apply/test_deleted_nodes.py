"""Nodes that somebody takes out of the cluster while a rollout is under way, as autoscalers do."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rollout.lab.api.resources import NODES
from rollout.lab.api.store import Json
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout, command

Start = Callable[[str, int], Lab]
APPLY = (
    *("apply", "--yes", "-o", "json", "--max-unavailable", "1", "--control-plane", "exclude"),
    *("--health-checks", "1", "--probe-timeout", "1s"),
)


def gone(lab: Lab, node: str) -> None:
    """The machine is off, and its Node deleted."""
    lab.machines[node].cut_power()
    lab.store.remove(NODES, node)


def held(lab: Lab, node: str) -> None:
    """The Node is deleted, and stands for as long as its machine is being taken away."""
    stored = lab.store.get(NODES, node)
    assert stored is not None
    metadata = {"finalizers": ["example.com/machine"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    lab.store.put(NODES, {**stored, "metadata": {**stored["metadata"], **metadata}})


@pytest.mark.parametrize(("remove", "why"), [(gone, "was deleted since it was planned"), (held, "is being deleted")])
def test_a_node_that_waits_and_is_deleted_is_no_failure(
    started: Start, tmp_path: Path, remove: Callable[[Lab, str], None], why: str
) -> None:
    lab = started("default", 7)
    process = command(lab, tmp_path, *APPLY)
    lines: list[Json] = []
    chosen = ""
    with process:
        assert process.stdout is not None
        for written in process.stdout:
            lines.append(json.loads(written))
            if not chosen and lines[-1]["type"] == "step" and lines[-1]["phase"] == "draining":
                plan = next(line["plan"] for line in lines if line["type"] == "plan")
                chosen = [node["name"] for wave in plan["waves"] for node in wave["nodes"]][-2]
                lab.call(partial(remove, lab, chosen))
        assert process.stderr is not None
        told = process.stderr.read()
    assert process.returncode == 0, told
    (end,) = [line for line in lines if line["type"] == "node_finished" and line["node"] == chosen]
    assert (end["outcome"], end["message"]) == ("skipped", f"not started: its Node {why}")
    summary = lines[-1]
    assert (summary["failed"], summary["skipped"], summary["left_out"]["deleting"]) == ([], [chosen], 1)
    assert len(summary["succeeded"]) == 3
    assert lab.scoreboard().reboots[chosen] == 0


@pytest.mark.parametrize(
    ("phase", "what"), [("draining", "was not asked to reboot"), ("rebooting", "was asked to reboot")]
)
def test_a_node_that_is_deleted_in_flight_is_told_with_what_came_of_its_host(
    started: Start, rollout: Rollout, tmp_path: Path, phase: str, what: str
) -> None:
    lab = started("default", 5)
    process = command(lab, tmp_path, *APPLY, "--drain-timeout", "20s")
    lines: list[Json] = []
    chosen = ""
    with process:
        assert process.stdout is not None
        for written in process.stdout:
            lines.append(json.loads(written))
            if not chosen and lines[-1]["type"] == "step" and lines[-1]["phase"] == phase:
                chosen = lines[-1]["node"]
                lab.call(partial(lab.store.remove, NODES, chosen))
        assert process.stderr is not None
        told = process.stderr.read()
    print(lines)
    assert process.returncode == 4, told
    (end,) = [line for line in lines if line["type"] == "node_finished" and line["node"] == chosen]
    assert (end["outcome"], end["message"]) == ("failed", f"its Node was deleted after it was started: its host {what}")
    (failure,) = lines[-1]["failed"]
    assert "once its kubelet is restarted" in failure["hint"]
    assert lab.scoreboard().reboots[chosen] == (phase == "rebooting")
    assert rollout(lab, "abort", "--yes").code == 0
