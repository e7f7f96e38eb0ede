"""What comes up between a node's admission and its cordon: it is asked once more in the step that cordons; and pauses,
which plans and rollouts heed.
"""

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.resources import NODES
from rollout.lab.api.store import Change
from rollout.lab.lab import Lab
from rollout.lab.objects import is_ready
from rollout.model import marks
from rollout.model.marks import PAUSED, PAUSED_DETAILS, RIVAL_PAUSES
from tests.apply.conftest import Rollout, Started, killed_at, stepped
from tests.ended import end_of
from tests.operate.conftest import open_now
from tests.state import metadata, node_of, unlock, write
from tests.waiting import wait_until

HALF_A_DAY = 43_200
APPLY = (
    *("apply", "--yes", "-o", "json", "--control-plane", "exclude"),
    *("--set", "waves.health-checks=1"),
    *("--settle-timeout", "3s", "--set", "drain.prefer-no-schedule-taint=false"),
)
WAITS = """
import os, pathlib, sys, time
place, node = pathlib.Path(sys.argv[1]), os.environ.get("ROLLOUT_GATE_NODE")
if node:
    (place / f"{node} is asked").touch()
    while not (place / "go").exists():
        time.sleep(0.02)
"""
Happen = Callable[[Lab, Rollout, Path], object]


def pause(*whom: str) -> Happen:
    return lambda lab, rollout, _ahead: rollout(lab, "pause", *whom)


def take_another_away(lab: Lab, _rollout: Rollout, _ahead: Path) -> None:
    lab.call(lab.machines["worker-2"].cut_power)
    wait_until(lambda: not is_ready(lab.call(lambda: node_of(lab, "worker-2"))))


def close_the_window(_lab: Lab, _rollout: Rollout, ahead: Path) -> None:
    ahead.write_text(str(HALF_A_DAY))


MEANWHILE: dict[str, tuple[Happen, str, int, str]] = {
    "the node is paused": (pause("worker-1"), "skipped", 0, "paused by"),
    "all nodes are paused": (pause("--all"), "not_started", 4, "all nodes are paused"),
    "another node turns NotReady": (
        take_another_away,
        "not_started",
        4,
        "--max-unavailable 1 is used up by worker-2",
    ),
    "the window closes": (close_the_window, "not_started", 4, "outside the maintenance window"),
}


@pytest.mark.parametrize("case", MEANWHILE)
def test_what_happens_while_its_gate_command_runs_leaves_a_node_untouched(
    case: str, started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    happen, where, code, why = MEANWHILE[case]
    lab = started("default", 5)
    place = tmp_path / "gate"
    ahead = tmp_path / "ahead"
    cordoned = list[str]()

    def changed(change: Change) -> None:
        if change.resource is NODES and change.obj["spec"].get("unschedulable"):
            cordoned.append(change.obj["metadata"]["name"])

    lab.call(lambda: lab.store.subscribe(changed))
    place.mkdir()
    (place / "gate.py").write_text(WAITS)
    ahead.write_text("0")
    gate = "gates.command=" + shlex.join([sys.executable, str(place / "gate.py"), str(place)])
    words = (*APPLY, "--node", "worker-1", "--set", gate, "--window", open_now())
    process = stepped(lab, tmp_path, ahead, *words)
    wait_until((place / "worker-1 is asked").exists)
    happen(lab, rollout, ahead)
    (place / "go").touch()
    ended = end_of(process)
    assert (ended.code, ended.summary[where]) == (code, ["worker-1"]), ended.stderr
    assert why in ended.summary["reasons"]["worker-1"]
    score = lab.scoreboard()
    left = {
        name
        for names in score.annotations_left.values()
        for name in names
        if not name.startswith(marks.PAUSED)
    }
    assert score.reboots["worker-1"] == 0
    assert cordoned == []
    assert left == set()


def test_a_marked_node_that_a_window_keeps_from_its_cordon_is_unmarked_and_started_in_the_next(
    started: Started, tmp_path: Path
) -> None:
    """The process that marked it was killed before the cordon."""
    lab = started("default", 5)
    ahead = tmp_path / "ahead"
    window = ("--window", open_now(), "--set", "gates.wait-window=true")
    node = killed_at(lab, tmp_path, "pending", *APPLY, "--node", "worker-1", *window)
    ahead.write_text(str(HALF_A_DAY))
    process = stepped(lab, tmp_path, ahead, "resume", "--yes", "-o", "json", *unlock(lab))
    wait_until(lambda: not metadata(lab, node, "annotations"))
    ahead.write_text("0")
    ended = end_of(process)
    assert (ended.code, ended.summary["succeeded"]) == (0, [node]), ended.stderr


def left_out(lab: Lab, rollout: Rollout) -> dict[str, str]:
    plan: Any = json.loads(rollout(lab, "plan", "-o", "json", "--control-plane", "exclude").stdout)
    return {
        left["node"]: left["message"] for left in plan["excluded"] if left["reason"] == "paused"
    }


def test_nodes_are_left_out_until_the_pause_ends_by_itself_or_by_hand(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", 6)
    said = rollout(
        lab, "pause", "worker-1", "node/worker-2", "--reason", "disk swap", "--until", "8h"
    ).ends(0)
    assert "To end it:\n    rollout unpause worker-1 worker-2\n" in said.stdout
    pauses = metadata(lab, "worker-1", "annotations")
    assert pauses[PAUSED] == "true"
    assert json.loads(pauses[PAUSED_DETAILS])["reason"] == "disk swap"
    messages = left_out(lab, rollout)
    assert list(messages) == ["worker-1", "worker-2"]
    assert messages["worker-1"].startswith("paused by ")
    assert messages["worker-1"].endswith("Z: disk swap")
    ended = rollout(lab, *APPLY)
    assert ended.code == 0
    assert ended.summary["left_out"]["paused"] == 2
    lab.call(lambda: lab.machines["worker-1"].clock.skip(9 * 3600))
    assert left_out(lab, rollout) == {}
    checks = json.loads(rollout(lab, "doctor", "-o", "json").stdout)["checks"]
    over = [check for check in checks if check["check"] == "pause"]
    assert {check["subject"] for check in over} == {"worker-1", "worker-2"}
    assert "its pause has ended" in over[0]["message"]
    assert (
        "No longer paused: worker-1, worker-2"
        in rollout(lab, "unpause", "worker-1", "worker-2").stdout
    )
    assert not [name for name in metadata(lab, "worker-1", "annotations") if "paused" in name]
    # as by kubectl, without an end
    write(lab, "worker-1", "annotations", **{PAUSED: "true"})
    assert left_out(lab, rollout) == {"worker-1": f"paused by annotation {PAUSED}"}
    rollout(lab, "unpause", "worker-1").ends(0)
    assert left_out(lab, rollout) == {}
    assert "Not paused by rollout: worker-1" in rollout(lab, "unpause", "worker-1").stdout


def test_a_busy_server_and_a_deleted_node_keep_no_other_node_from_its_pause(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", 5)
    away = ApiFault(
        answer=FaultAnswer.UNAVAILABLE, verb="patch", resource="nodes", from_request=2, requests=1
    )
    lab.call(lambda: lab.faults.add(away))

    def delete_another(change: Change) -> None:
        is_paused = PAUSED in (change.obj["metadata"].get("annotations") or {})
        if is_paused and lab.store.get(NODES, "worker-2"):
            lab.store.remove(NODES, "worker-2")

    lab.call(lambda: lab.store.subscribe(delete_another))
    nodes = ("worker-1", "worker-2", "worker-3")
    paused = rollout(lab, "pause", *nodes, "-o", "json").ends(0)
    assert json.loads(paused.stdout)["nodes"] == ["worker-1", "worker-3"]
    assert "worker-2 was deleted in the meantime" in paused.stderr
    assert PAUSED in metadata(lab, "worker-3", "annotations")
    forbidden = ApiFault(
        answer=FaultAnswer.FORBIDDEN, verb="patch", resource="nodes", name="worker-3"
    )
    lab.call(lambda: lab.faults.add(forbidden))
    failed = rollout(lab, "unpause", "worker-1", "worker-3").ends(1)
    assert "these nodes were changed before the error: worker-1" in failed.stderr


def test_all_nodes_are_paused_at_once_and_abort_leaves_it(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", 5)
    rollout(lab, "pause", "worker-1")
    rollout(lab, "pause", "--all", "--reason", "sale").ends(0)
    assert all(
        "all nodes are paused by" in why
        for node, why in left_out(lab, rollout).items()
        if node != "worker-1"
    )
    assert "All nodes are paused by" in rollout(lab, "status").stdout
    ended = rollout(lab, *APPLY)
    assert ended.code == 0
    assert ended.outcomes == {}
    rollout(lab, "abort", "--yes").ends(0)
    write(lab, "worker-2", "annotations", **{RIVAL_PAUSES[0]: "true"})
    unpaused = rollout(lab, "unpause", "--all")
    assert "The pause of all nodes has ended." in unpaused.stdout
    assert (
        "Paused by name: worker-1. To end these pauses:\n    rollout unpause worker-1"
        in unpaused.stdout
    )
    assert "still paused, by another tool's annotation: worker-2" in unpaused.stderr
    again = rollout(lab, "unpause", "--all").stdout
    assert again.startswith("There is no pause of all nodes.\nPaused by name: worker-1.")
    assert list(left_out(lab, rollout)) == ["worker-1", "worker-2"]
    rollout(lab, *APPLY).ends(0)
