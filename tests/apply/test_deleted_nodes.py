"""Nodes that somebody takes out of the cluster while a rollout is under way, as autoscalers do."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rollout.lab.api.resources import NODES
from rollout.lab.api.store import Json
from rollout.lab.lab import Lab
from tests.apply.conftest import command

Start = Callable[[str, int], Lab]
APPLY = (
    *("apply", "--yes", "-o", "json", "--max-unavailable", "1", "--control-plane", "exclude"),
    *("--set", "waves.health-checks=1", "--set", "ssh.probe-timeout=1s"),
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


def remade(lab: Lab, node: str) -> None:
    """The Node is deleted; its kubelet registers it anew with its next report."""
    lab.store.remove(NODES, node)


@pytest.mark.sample
@pytest.mark.parametrize(
    ("remove", "why"), [(gone, "its Node was deleted since it was planned"), (held, "the Node is being deleted")]
)
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
    assert (end["outcome"], end["message"]) == ("skipped", f"not started: {why}")
    summary = lines[-1]
    assert (summary["failed"], summary["skipped"], summary["left_out"]["deleting"]) == ([], [chosen], 1)
    assert len(summary["succeeded"]) == 3
    assert lab.scoreboard().reboots[chosen] == 0


def ended_after(lab: Lab, home: Path, phase: str, remove: Callable[[Lab, str], None]) -> tuple[int, str, Json, Json]:
    """A rollout whose first node is taken away in this phase: exit code, the node, its end, and the summary."""
    process = command(lab, home, *APPLY, "--drain-timeout", "8s")
    lines: list[Json] = []
    chosen = ""
    with process:
        assert process.stdout is not None
        for written in process.stdout:
            lines.append(json.loads(written))
            if not chosen and lines[-1]["type"] == "step" and lines[-1]["phase"] == phase:
                chosen = lines[-1]["node"]
                lab.call(partial(remove, lab, chosen))
    (end,) = [line for line in lines if line["type"] == "node_finished" and line["node"] == chosen]
    return process.returncode, chosen, end, lines[-1]


def test_a_node_that_is_deleted_in_its_drain_is_no_failure(started: Start, tmp_path: Path) -> None:
    """An autoscaler takes what is empty: the nodes that still wait get their turns."""
    lab = started("default", 7)
    code, chosen, end, summary = ended_after(lab, tmp_path, "draining", gone)
    assert (end["outcome"], end["message"]) in [
        ("skipped", f"not rebooted: its Node was deleted while it was {phase}") for phase in ("draining", "drained")
    ]
    assert (code, summary["failed"], summary["skipped"], summary["not_started"]) == (0, [], [chosen], [])
    assert summary["left_out"]["deleting"] == 1
    assert len(summary["succeeded"]) == 3
    assert lab.scoreboard().reboots[chosen] == 0


def test_a_node_that_is_made_anew_in_its_drain_still_waits(started: Start, tmp_path: Path) -> None:
    lab = started("default", 7)
    code, chosen, end, summary = ended_after(lab, tmp_path, "draining", remade)
    assert end["outcome"] == "skipped"
    assert "its Node was deleted" in end["message"]
    assert (summary["failed"], summary["skipped"]) == ([], [chosen])
    assert len(summary["succeeded"]) == 3
    assert code == (0 if "deleting" in summary["left_out"] else 4)
    assert lab.scoreboard().reboots[chosen] == 0


def test_a_node_that_is_deleted_while_it_reboots_is_not_proven(started: Start, tmp_path: Path) -> None:
    lab = started("default", 7)
    code, chosen, end, summary = ended_after(lab, tmp_path, "rebooting", remade)
    assert (code, [failed["node"] for failed in summary["failed"]]) == (4, [chosen])
    assert end["outcome"] == "failed"
    assert end["message"].startswith("its reboot is not proven: its Node was deleted")
    assert lab.scoreboard().reboots[chosen] == 1
