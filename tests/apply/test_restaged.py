"""Hosts that stage another version while a rollout is under way: it is judged by what they would
boot into.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rollout.lab.api.resources import EVENTS, NODES
from rollout.lab.api.store import Change
from rollout.lab.hosts.engine import UpdateEngine
from rollout.lab.hosts.faults import HostFaults, RebootFault
from rollout.lab.lab import Lab
from rollout.model import marks
from tests.apply.conftest import ONE_LOOK, Rollout, Started, killed_at
from tests.apply.test_memory import harmed, remembered, stands
from tests.operate.test_evidence import by_hand, keys, requires, signed  # noqa: F401 - keys is a fixture
from tests.state import stored

PLANNED = "4152.2.0"
NEWER = "4300.0.0"
TWO = ("--node", "worker-1,worker-2", "--max-unavailable", "1")
APPLY = ("apply", "--yes", "-o", "json", *TWO, "--settle-timeout", "5s", *ONE_LOOK)
OPERATE = ("operate", "--once", "-o", "json", *TWO, "--settle-timeout", "5s", *ONE_LOOK)
HELD = {
    "format_version": "1.0",
    "versions": {NEWER: {"nodes": ["w-9"], "at": "2026-11-01T00:00:00Z"}},
}
HELD["versions"][NEWER]["held_since"] = "2026-11-01T00:00:00Z"  # type: ignore[index]


def stage(lab: Lab, node: str) -> None:
    lab.machines[node].update_engine = UpdateEngine.with_staged(NEWER, checked=1)


def restage(lab: Lab, node: str, *, once: str, is_at: str) -> None:
    """This host stages the newer version once the cluster sees that node in this phase."""

    def seen(change: Change) -> None:
        phase = change.obj["metadata"].get("annotations", {}).get(marks.PHASE)
        if change.resource is NODES and change.obj["metadata"]["name"] == once and phase == is_at:
            stage(lab, node)

    lab.call(lambda: lab.store.subscribe(seen))


def hold(lab: Lab) -> None:
    stands(lab, {"memory.json": json.dumps(HELD)})


def annotations(lab: Lab, node: str) -> dict[str, str]:
    found: dict[str, str] = lab.call(lambda: stored(lab, NODES, node)["metadata"]["annotations"])
    return found


# When worker-2 stages it: while another node is under way, and at each step of its own.
MOMENTS = {
    "before its turn": ("worker-1", "draining"),
    "while it drains": ("worker-2", "draining"),
    "after its drain": ("worker-2", "drained"),
    "right before its reboot": ("worker-2", "rebooting"),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_held_version_is_not_booted_into(moment: str, started: Started, rollout: Rollout) -> None:
    lab = started("default", 5)
    hold(lab)
    once, is_at = MOMENTS[moment]
    restage(lab, "worker-2", once=once, is_at=is_at)
    ended = rollout(lab, *APPLY).ends(4)
    assert ended.outcomes == {"worker-1": "succeeded"}
    assert harmed(lab) == ["worker-1"]
    assert [entry["reason"] for entry in ended.summary["not_done"]] == ["version-held"]
    assert f"version {NEWER} is held" in str(ended.summary)
    score = lab.scoreboard()
    assert score.cordons_left == ()
    assert score.annotations_left == {}
    assert score.taints_left == ()


def test_a_rolling_rollout_goes_by_what_is_staged_at_each_turn(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", 5)
    hold(lab)
    restage(lab, "worker-2", once="worker-1", is_at="draining")
    rollout(lab, *APPLY, "--strategy", "rolling").ends(4)
    assert harmed(lab) == ["worker-1"]


def test_whoever_allows_held_versions_gets_one(started: Started, rollout: Rollout) -> None:
    lab = started("default", 5)
    hold(lab)
    restage(lab, "worker-2", once="worker-2", is_at="drained")
    rollout(lab, *APPLY, "--allow", "held").ends(0)
    assert json.loads(annotations(lab, "worker-2")[marks.LAST_RESULT])["version"] == NEWER


@pytest.mark.parametrize("moment", ["before its turn", "after its drain"])
def test_a_version_without_evidence_is_not_booted_into(
    moment: str,
    started: Started,
    rollout: Rollout,
    keys: Path,  # noqa: F811 - the fixture
) -> None:
    lab = started("default", 5)
    once, is_at = MOMENTS[moment]
    restage(lab, "worker-2", once=once, is_at=is_at)
    evidence = requires(keys, signed(keys, by_hand(lab)))
    ended = rollout(lab, *OPERATE, *evidence).ends(0)
    assert ended.outcomes == {"worker-1": "succeeded"}
    assert harmed(lab) == ["worker-1"]
    assert f"version {NEWER} has no evidence from staging" in str(ended.lines)
    assert lab.scoreboard().cordons_left == ()


@pytest.mark.parametrize("moment", ["before its turn", "right before its reboot"])
def test_the_version_that_was_booted_into_is_blamed(
    moment: str, started: Started, rollout: Rollout
) -> None:
    lab = started("default", 5)
    once, is_at = MOMENTS[moment]
    restage(lab, "worker-2", once=once, is_at=is_at)
    lab.call(partial(lab.machines["worker-2"].inflict, HostFaults(reboot=RebootFault.ROLLS_BACK)))
    ended = rollout(lab, *APPLY).ends(4)
    assert ended.outcomes == {"worker-1": "succeeded", "worker-2": "rolled-back"}
    assert remembered(lab)["versions"].keys() == {NEWER}
    assert json.loads(annotations(lab, "worker-2")[marks.LAST_RESULT])["from"] == NEWER


def test_an_admitted_version_is_named_as_the_one_that_it_got(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    """The gate command is asked about it, too."""
    lab = started("default", 5)
    asked = tmp_path / "asked"
    gate = tmp_path / "gate"
    gate.write_text(
        f'#!/bin/sh\necho "$ROLLOUT_GATE_NODE $ROLLOUT_GATE_STAGED_VERSION" >> {asked}\n'
    )
    gate.chmod(0o755)
    restage(lab, "worker-2", once="worker-2", is_at="drained")
    ended = rollout(lab, *APPLY, "--set", f'gates.command="{gate}"').ends(0)
    (finished,) = (
        line
        for line in ended.lines
        if line["type"] == "node_finished" and line["node"] == "worker-2"
    )
    assert finished["version"] == NEWER
    assert [line.split() for line in asked.read_text().splitlines() if "worker-2" in line][-1] == [
        "worker-2",
        NEWER,
    ]
    assert json.loads(annotations(lab, "worker-2")[marks.LAST_RESULT])["version"] == NEWER
    report = json.loads(rollout(lab, "report", "-o", "json").stdout)
    (reported,) = (node for node in report["nodes"] if node["node"] == "worker-2")
    assert reported["version_staged"] == NEWER
    assert reported["version_after"] == NEWER
    events: list[dict[str, Any]] = lab.call(lambda: lab.store.items(EVENTS))
    told = [event["message"] for event in events if event["involvedObject"]["name"] == "worker-2"]
    assert any(
        message.startswith("Asking the host to reboot") and f"-> {NEWER}" in message
        for message in told
    )


@pytest.mark.parametrize("phase", ["draining", "rebooting"])
def test_a_resume_gives_a_node_back_whose_version_is_held_by_now(
    phase: str, started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 5)
    lab.call(partial(lab.machines["worker-1"].inflict, HostFaults(reboot=RebootFault.IGNORED)))
    node = killed_at(
        lab, tmp_path, phase, *APPLY, "--node", "worker-1", "--set", "lock.duration=1s"
    )
    hold(lab)
    lab.call(partial(stage, lab, node))
    ended = rollout(lab, "resume", "--yes", "-o", "json", "--set", "ssh.probe-timeout=5s")
    assert node not in harmed(lab)
    assert f"version {NEWER} is held" in str(ended.lines)
    assert lab.scoreboard().cordons_left == ()


def test_a_resume_without_a_readable_memory_gives_back_what_has_not_rebooted(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 5)
    node = killed_at(lab, tmp_path, "drained", *APPLY, "--set", "lock.duration=1s")
    stands(lab, {"memory.json": "{"})
    ended = rollout(lab, "resume", "--yes", "-o", "json").ends(4)
    assert "ConfigMap kube-system/node-rollout-memory is invalid" in ended.summary["reasons"][node]
    assert harmed(lab) == []
    assert lab.scoreboard().cordons_left == ()
    assert "rollout release --all" in rollout(lab, *APPLY).ends(6).stderr
