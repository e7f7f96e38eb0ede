"""Nodes that wait carry a soft taint of ours, which goes with their turn, at the end, by abort and after a crash."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollout.lab.api.resources import LEASES, NODES
from rollout.lab.api.store import Change, Json
from rollout.lab.lab import Lab
from rollout.lab.scenario import Scenario
from tests.apply.conftest import Rollout, command
from tests.ended import end_of
from tests.waiting import wait_until

TAINT = {"key": "node-rollout.dev/awaiting-reboot", "effect": "PreferNoSchedule"}
THEIRS = {"key": "node-rollout.dev/awaiting-reboot", "value": "theirs", "effect": "PreferNoSchedule"}
TIMED = {"key": "example.org/slow", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
NUMBER = 5
QUICK = ("--settle-timeout", "20s", "--set", "waves.health-checks=1")

Started = Callable[[Scenario | str, int], Lab]


class Taints:
    """How many nodes had the soft taint when each node was begun; `begun` are their names in that order."""

    def __init__(self, lab: Lab) -> None:
        self.waiting: list[int] = []
        self.begun: list[str] = []
        self._lab = lab
        lab.call(lambda: lab.store.subscribe(self._changed))

    def _changed(self, change: Change) -> None:
        if change.resource is not NODES or change.previous is None:
            return
        was, now = (obj["spec"].get("unschedulable") for obj in (change.previous, change.obj))
        if now and not was:
            self.begun.append(change.obj["metadata"]["name"])
            self.waiting.append(len(tainted(self._lab)))


def node_of(lab: Lab, name: str) -> Json:
    node = lab.store.get(NODES, name)
    assert node is not None
    return node


def taints(lab: Lab, node: str) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in taint.items() if value}
        for taint in node_of(lab, node)["spec"].get("taints") or ()
        if taint["key"] != "node.kubernetes.io/unschedulable"
    ]


def tainted(lab: Lab) -> list[str]:
    return [
        node["metadata"]["name"] for node in lab.store.items(NODES) if TAINT in taints(lab, node["metadata"]["name"])
    ]


def put(lab: Lab, node: str, wanted: list[dict[str, Any]]) -> None:
    def change() -> None:
        current = node_of(lab, node)
        lab.store.put(NODES, {**current, "spec": {**current["spec"], "taints": wanted}})

    lab.call(change)


def names(lab: Lab) -> list[str]:
    return [node["metadata"]["name"] for node in lab.store.items(NODES)]


def test_all_that_wait_are_tainted_before_the_first_is_begun_and_none_at_the_end(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", NUMBER)
    first, second, *_ = names(lab)
    put(lab, first, [TIMED])
    put(lab, second, [THEIRS])
    watched = Taints(lab)
    ended = rollout(lab, "apply", "--yes", "-o", "json", *QUICK)
    assert ended.code == 0, ended.stderr
    # a node's own goes with its cordon, and one of somebody else's by the same key and effect leaves ours no place
    turn = watched.begun.index(second)
    assert watched.waiting == [NUMBER - 1 - at - (at < turn) for at in range(NUMBER)]
    assert tainted(lab) == []
    assert lab.scoreboard().taints_left == ()
    assert TIMED in taints(lab, first)
    assert taints(lab, second) == [THEIRS]


@pytest.mark.sample
@pytest.mark.parametrize("way_out", ["abort", "resume"])
def test_what_a_killed_run_leaves_is_named_and_removed(
    started: Started, rollout: Rollout, tmp_path: Path, way_out: str
) -> None:
    lab = started("default", NUMBER)
    watched = Taints(lab)
    process = command(lab, tmp_path, "apply", "--yes", "-o", "json", *QUICK)
    wait_until(lambda: bool(watched.begun))
    process.kill()
    process.communicate()
    assert len(tainted(lab)) == NUMBER - 1
    seen = rollout(lab, "status", "--run", "-o", "json")
    assert '"tainted"' in seen.stdout
    assert tainted(lab)[0] in seen.stdout
    ended = rollout(lab, way_out, "--yes", "--force-unlock", run_of(lab))
    assert ended.code == 0, ended.stderr
    assert tainted(lab) == []
    assert lab.scoreboard().annotations_left == {}


def test_an_interrupted_run_leaves_none_and_resume_sets_it_again(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", NUMBER)
    watched = Taints(lab)
    process = command(lab, tmp_path, "apply", "--yes", "-o", "json", *QUICK)
    wait_until(lambda: bool(watched.begun))
    process.terminate()
    assert end_of(process).code == 130
    assert tainted(lab) == []
    assert rollout(lab, "resume", "--yes").code == 0
    assert watched.waiting[1:] == list(range(NUMBER - 2, -1, -1))
    assert tainted(lab) == []


def run_of(lab: Lab) -> str:
    lease = lab.store.get(LEASES, "node-rollout", "kube-system")
    assert lease is not None
    run: str = lease["metadata"]["annotations"]["node-rollout.dev/run"]
    return run
