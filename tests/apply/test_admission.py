"""What comes up between a node's admission and its cordon: it is asked once more in the step that cordons."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from rollout.lab.api.resources import NODES
from rollout.lab.api.store import Change, Json
from rollout.lab.lab import Lab
from rollout.lab.objects import is_ready
from rollout.model import marks
from rollout.model.marks import PAUSED, PAUSED_DETAILS, RIVAL_PAUSES
from tests.apply.conftest import Rollout, Started, command, stepped
from tests.ended import Ended, end_of
from tests.operate.conftest import open_now
from tests.state import metadata, write
from tests.waiting import wait_until

HALF_A_DAY = 43_200


APPLY = (
    *("apply", "--yes", "-o", "json", "--control-plane", "exclude", "--set", "waves.health-checks=1"),
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


def gate(place: Path) -> tuple[str, str]:
    """A gate command that holds each node until `go`."""
    place.mkdir(exist_ok=True)
    script = place / "gate.py"
    script.write_text(WAITS)
    return "--set", "gates.command=" + shlex.join([sys.executable, str(script), str(place)])


def is_asked(place: Path, node: str) -> bool:
    return (place / f"{node} is asked").exists()


def go(place: Path) -> None:
    (place / "go").touch()


def assert_untouched(lab: Lab, node: str) -> None:
    score = lab.scoreboard()
    left = {name for names in score.annotations_left.values() for name in names if not name.startswith(marks.PAUSED)}
    assert (score.reboots[node], score.cordons_left, left) == (0, (), set())


def nodes(lab: Lab) -> list[Json]:
    return lab.call(lambda: list(lab.store.items(NODES)))


def cordons(lab: Lab) -> list[str]:
    """Who was cordoned from now on."""
    seen: list[str] = []

    def changed(change: Change) -> None:
        if change.resource is NODES and change.obj["spec"].get("unschedulable"):
            seen.append(change.obj["metadata"]["name"])

    lab.call(lambda: lab.store.subscribe(changed))
    return seen


def pause_it(lab: Lab, rollout: Rollout) -> None:
    assert rollout(lab, "pause", "worker-1").code == 0


def pause_all(lab: Lab, rollout: Rollout) -> None:
    assert rollout(lab, "pause", "--all").code == 0


def take_another_away(lab: Lab, _rollout: Rollout) -> None:
    lab.call(lab.machines["worker-2"].cut_power)
    wait_until(lambda: not any(is_ready(node) for node in nodes(lab) if node["metadata"]["name"] == "worker-2"))


MEANWHILE = {
    "the node is paused": (pause_it, "skipped", 0, "paused by"),
    "all nodes are paused": (pause_all, "not_started", 4, "all nodes are paused"),
    "another node turns NotReady": (take_another_away, "not_started", 4, "--max-unavailable 1 is used up by worker-2"),
}


@pytest.mark.parametrize("case", MEANWHILE)
def test_what_happens_while_its_gate_command_runs_leaves_a_node_untouched(
    case: str, started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    happen, where, code, why = MEANWHILE[case]
    lab, place = started("default", 5), tmp_path / "gate"
    seen = cordons(lab)
    process = command(lab, tmp_path, *APPLY, "--node", "worker-1", *gate(place))
    wait_until(lambda: is_asked(place, "worker-1"))
    happen(lab, rollout)
    go(place)
    ended = end_of(process)
    assert (ended.code, ended.summary[where]) == (code, ["worker-1"]), ended.stderr
    assert why in ended.summary["reasons"]["worker-1"]
    assert_untouched(lab, "worker-1")
    assert not seen


@pytest.mark.timeout(240)
def test_a_window_that_closes_while_its_gate_command_runs_leaves_a_node_untouched(
    started: Started, tmp_path: Path
) -> None:
    lab, place, ahead = started("default", 5), tmp_path / "gate", tmp_path / "ahead"
    ahead.write_text("0")
    seen = cordons(lab)
    process = stepped(lab, tmp_path, ahead, *APPLY, "--node", "worker-1", *gate(place), "--window", open_now())
    wait_until(lambda: is_asked(place, "worker-1"))
    ahead.write_text(str(HALF_A_DAY))
    go(place)
    ended = end_of(process)
    assert (ended.code, ended.summary["not_started"]) == (4, ["worker-1"]), ended.stderr
    assert "outside the maintenance window" in ended.summary["reasons"]["worker-1"]
    assert_untouched(lab, "worker-1")
    assert not seen


def test_of_two_rollouts_that_do_not_see_each_others_lock_only_one_goes_at_a_time(
    started: Started, tmp_path: Path
) -> None:
    lab, place = started("default", 5), tmp_path / "gate"
    places = {"worker-1": "kube-system", "worker-2": "default"}
    rollouts = [
        command(lab, tmp_path, *APPLY, "--node", node, *gate(place), "--set", f"lock.namespace={namespace}")
        for node, namespace in places.items()
    ]
    for node in places:
        wait_until(lambda: is_asked(place, node))  # noqa: B023 - called at once
    go(place)
    ends: list[Ended] = [end_of(process) for process in rollouts]
    score = lab.scoreboard()
    assert score.most_unavailable == 1
    assert [end.code for end in ends].count(0) >= 1, [end.stderr for end in ends]
    assert sum(score.reboots.values()) == [end.code for end in ends].count(0)
    assert (score.cordons_left, score.annotations_left) == ((), {})


# `rollout pause` and `unpause`: what is paused is not begun, by plans and by rollouts that run.


WORKERS = ("--control-plane", "exclude")


APPLY_WORKERS = ("apply", "--yes", "-o", "json", *WORKERS, "--settle-timeout", "5s", "--set", "waves.health-checks=1")


def pauses_on(lab: Lab, name: str) -> dict[str, str]:
    return {key: text for key, text in metadata(lab, name, "annotations").items() if "paused" in key}


def left_out(lab: Lab, rollout: Rollout) -> dict[str, str]:
    plan: Any = json.loads(rollout(lab, "plan", "-o", "json", *WORKERS).stdout)
    return {left["node"]: left["message"] for left in plan["excluded"] if left["reason"] == "paused"}


def let_pass(lab: Lab, hours: float) -> None:
    lab.call(lambda: lab.machines["worker-1"].clock.skip(hours * 3600))


def test_nodes_are_left_out_until_the_pause_ends_by_itself(started: Started, rollout: Rollout) -> None:
    lab = started("default", 6)
    said = rollout(lab, "pause", "worker-1,worker-2", "--reason", "disk swap", "--until", "8h")
    assert said.code == 0, said.stderr
    assert "End it:\n    rollout unpause worker-1 worker-2\n" in said.stdout
    assert pauses_on(lab, "worker-1")[PAUSED] == "true"
    assert json.loads(pauses_on(lab, "worker-1")[PAUSED_DETAILS])["reason"] == "disk swap"
    messages = left_out(lab, rollout)
    assert list(messages) == ["worker-1", "worker-2"]
    assert messages["worker-1"].startswith("paused by ")
    assert messages["worker-1"].endswith("Z: disk swap")
    ended = rollout(lab, *APPLY_WORKERS)
    assert (ended.code, ended.summary["left_out"]["paused"]) == (0, 2)
    let_pass(lab, 9)
    assert left_out(lab, rollout) == {}
    checks = json.loads(rollout(lab, "doctor", "-o", "json").stdout)["checks"]
    over = [check for check in checks if check["check"] == "pause"]
    assert {check["subject"] for check in over} == {"worker-1", "worker-2"}
    assert "its pause is over" in over[0]["message"]
    assert "No longer paused: worker-1, worker-2" in rollout(lab, "unpause", "worker-1", "worker-2").stdout
    assert pauses_on(lab, "worker-1") == {}


def test_all_nodes_are_paused_at_once_and_abort_leaves_it(started: Started, rollout: Rollout) -> None:
    lab = started("default", 5)
    rollout(lab, "pause", "worker-1")
    assert rollout(lab, "pause", "--all", "--reason", "sale").code == 0
    assert all("all nodes are paused by" in why for node, why in left_out(lab, rollout).items() if node != "worker-1")
    assert "All nodes are paused by" in rollout(lab, "status").stdout
    ended = rollout(lab, *APPLY_WORKERS)
    assert (ended.code, ended.outcomes) == (0, {})
    assert rollout(lab, "abort", "--yes").code == 0
    write(lab, "worker-2", "annotations", **{RIVAL_PAUSES[0]: "true"})
    unpaused = rollout(lab, "unpause", "--all")
    assert "No longer paused: worker-1." in unpaused.stdout
    assert "All nodes are no longer paused." in unpaused.stdout
    assert "still paused, by another tool's annotation: worker-2" in unpaused.stderr
    assert list(left_out(lab, rollout)) == ["worker-2"]
    assert rollout(lab, *APPLY_WORKERS).code == 0


@pytest.mark.parametrize("what", ["--all", "worker-2"])
def test_a_rollout_that_runs_begins_none_that_was_paused_since(
    started: Started, rollout: Rollout, tmp_path: Path, what: str
) -> None:
    lab = started("default", 6)
    process = command(lab, tmp_path, *APPLY_WORKERS, "--drain-timeout", "60s")
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
    write(lab, "worker-1", "annotations", **{PAUSED: "true"})
    assert left_out(lab, rollout) == {"worker-1": f"paused by its annotation {PAUSED}"}
    assert rollout(lab, "unpause", "worker-1").code == 0
    assert left_out(lab, rollout) == {}
    assert "Not paused by rollout: worker-1" in rollout(lab, "unpause", "worker-1").stdout
