"""Labels and taints that others read: there during a turn, and gone after it."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rollout.lab.api.resources import NODES, PODS
from rollout.lab.api.store import Change, Json
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout, Started, command
from tests.ended import end_of
from tests.state import metadata, node_of, unlock, write, write_spec
from tests.waiting import wait_until

FLUO = "flatcar-linux-update.v1.flatcar-linux.net/"
LABEL = "node.kubernetes.io/exclude-from-external-load-balancers"
EXCLUDING = ("--set", "drain.exclude-from-load-balancers=1s")
QUICK = ("--settle-timeout", "20s", "--set", "waves.health-checks=1")
NUMBER = 4
TAINT = {"key": "node-rollout.dev/awaiting-reboot", "effect": "PreferNoSchedule"}
THEIRS = {
    "key": "node-rollout.dev/awaiting-reboot",
    "value": "theirs",
    "effect": "PreferNoSchedule",
}
TIMED = {"key": "example.org/slow", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}


@dataclass
class Watched:
    """When, in real seconds, each node got the label and was first drained; `together`: label and cordon in one.

    `begun` are the nodes as they were cordoned, `waiting` how many had the soft taint then, `fluo`
    FLUO's labels then.
    """

    lab: Lab
    labelled: dict[str, float] = field(default_factory=dict)
    drained: dict[str, float] = field(default_factory=dict)
    together: dict[str, bool] = field(default_factory=dict)
    given_back_with_label: list[str] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    fluo: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lab.call(lambda: self.lab.store.subscribe(self._changed))

    def _changed(self, change: Change) -> None:
        if change.previous is None:
            return
        if change.resource is PODS and "deletionTimestamp" in change.obj["metadata"]:
            node = change.obj["spec"].get("nodeName", "")
            if is_cordoned(node_of(self.lab, node)):
                self.drained.setdefault(node, time.monotonic())
                self.fluo.setdefault(node, fluo(self.lab, node))
        if change.resource is NODES:
            self._node_changed(change.previous, change.obj)

    def _node_changed(self, was: Json, now: Json) -> None:
        name = now["metadata"]["name"]
        has_label = LABEL in (now["metadata"].get("labels") or {})
        if has_label and LABEL not in (was["metadata"].get("labels") or {}):
            self.labelled[name] = time.monotonic()
            self.together[name] = is_cordoned(now) and not is_cordoned(was)
        if is_cordoned(was) and not is_cordoned(now) and has_label:
            self.given_back_with_label.append(name)
        if is_cordoned(now) and not is_cordoned(was):
            self.begun.append(name)
            self.waiting.append(len(tainted(self.lab)))


def is_cordoned(node: Json) -> bool:
    return bool(node["spec"].get("unschedulable"))


def names(lab: Lab) -> list[str]:
    return [node["metadata"]["name"] for node in lab.store.items(NODES)]


def fluo(lab: Lab, node: str) -> dict[str, str]:
    labels = metadata(lab, node, "labels")
    return {
        name.removeprefix(FLUO): value for name, value in labels.items() if name.startswith(FLUO)
    }


def labelled(lab: Lab) -> set[str]:
    return {name for name in names(lab) if LABEL in metadata(lab, name, "labels")}


def taints(lab: Lab, node: str) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in taint.items() if value}
        for taint in node_of(lab, node)["spec"].get("taints") or ()
        if taint["key"] != "node.kubernetes.io/unschedulable"
    ]


def tainted(lab: Lab) -> list[str]:
    return [name for name in names(lab) if TAINT in taints(lab, name)]


def test_each_node_tells_others_of_its_turn_and_of_its_wait_for_it(
    started: Started, rollout: Rollout
) -> None:
    """It leaves load balancers with its cordon until its uncordon; all that wait have a soft taint; FLUO's labels say
    what the hosts say. What others have written there stays.
    """
    lab = started("default", NUMBER)
    first, second, theirs, *_ = names(lab)
    write_spec(lab, first, taints=[TIMED])
    write_spec(lab, second, taints=[THEIRS])
    write(lab, theirs, "labels", **{LABEL: "theirs"})
    version = lab.machines[first].os_version
    watched = Watched(lab)
    ended = rollout(
        lab, "apply", "--yes", "-o", "json", *EXCLUDING, *QUICK, "--set", "labels.fluo=true"
    ).ends(0)

    assert len(watched.labelled) == NUMBER - 1
    assert all(watched.together.values())
    waits = [
        watched.drained[name] - at
        for name, at in watched.labelled.items()
        if name in watched.drained
    ]
    assert min(waits) >= 1
    assert watched.given_back_with_label in ([], [theirs])
    assert labelled(lab) == {theirs}
    assert metadata(lab, theirs, "labels")[LABEL] == "theirs"
    assert "waiting 1s for load balancers to stop using the node" in ended.stdout
    assert not any("load balancers" in detail for _phase, detail in ended.steps(theirs))

    # a node's own goes with its cordon, and one of somebody else's by the same key and effect
    # leaves ours no place
    turn = watched.begun.index(second)
    assert watched.waiting == [NUMBER - 1 - at - (at < turn) for at in range(NUMBER)]
    assert tainted(lab) == []
    assert taints(lab, second) == [THEIRS]
    assert TIMED in taints(lab, first)

    before, after = (
        {"id": "flatcar", "group": "stable", "version": each} for each in (version, "4152.2.0")
    )
    assert [said for said in watched.fluo.values() if said != before] == []
    assert [fluo(lab, name) for name in names(lab)] == [after] * NUMBER

    # set after the lab's start, as anything of ours would be
    score = lab.scoreboard()
    assert score.exclusions_left == (theirs,)
    assert score.annotations_left == {}
    assert score.taints_left == ()


@pytest.mark.sample
@pytest.mark.parametrize("way_out", ["abort", "resume"])
def test_what_a_killed_run_leaves_is_named_and_removed(
    started: Started, rollout: Rollout, tmp_path: Path, way_out: str
) -> None:
    """The soft taints of all that wait, and the label of the one that left its load balancers."""
    lab = started("default", NUMBER)
    watched = Watched(lab)
    process = command(lab, tmp_path, "apply", "--yes", "-o", "json", *EXCLUDING, *QUICK)
    wait_until(lambda: bool(watched.labelled))
    process.kill()
    process.communicate()
    assert len(tainted(lab)) == NUMBER - 1
    assert len(labelled(lab)) == 1
    seen = rollout(lab, "status", "--run", "-o", "json")
    assert '"tainted"' in seen.stdout
    assert tainted(lab)[0] in seen.stdout
    rollout(lab, way_out, "--yes", *unlock(lab)).ends(0)
    assert tainted(lab) == []
    assert labelled(lab) == set()
    assert lab.scoreboard().clean
    assert lab.scoreboard().annotations_left == {}


def test_an_interrupted_run_leaves_none_and_resume_sets_it_again(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", NUMBER)
    watched = Watched(lab)
    process = command(lab, tmp_path, "apply", "--yes", "-o", "json", *QUICK)
    wait_until(lambda: bool(watched.begun))
    process.terminate()
    end_of(process).ends(130)
    assert tainted(lab) == []
    rollout(lab, "resume", "--yes").ends(0)
    assert watched.waiting[1:] == list(range(NUMBER - 2, -1, -1))
    assert tainted(lab) == []
