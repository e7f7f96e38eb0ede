"""Labels and taints that others read: there during a turn, and gone after it."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rollout.lab.api.resources import NODES, PODS
from rollout.lab.api.store import Change, Json
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout, Started, command
from tests.apply.test_courtesy import ALONE, NODE, NUMBER, ORDINARY, heard
from tests.ended import end_of
from tests.state import metadata, node_of, unlock, write, write_spec
from tests.waiting import wait_until

FLUO = "flatcar-linux-update.v1.flatcar-linux.net/"


FIVE = 5


@pytest.fixture
def lab(started: Started) -> Lab:
    return started(str(ORDINARY), NUMBER)


def of_fluo(values: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix(FLUO): value for name, value in values.items() if name.startswith(FLUO)}


def test_fluos_labels_are_kept_up_to_date(lab: Lab, tmp_path: Path) -> None:
    process = command(lab, tmp_path, "apply", *ALONE, "--set", "labels.fluo=true", "--set", "reboot.delay=2s")
    heard(process, "before its reboot")
    version = lab.machines[NODE].os_version
    assert of_fluo(metadata(lab, NODE, "labels")) == {"id": "flatcar", "group": "stable", "version": version}
    process.communicate(timeout=100)
    assert process.returncode == 0
    assert of_fluo(metadata(lab, NODE, "labels")) == {"id": "flatcar", "group": "stable", "version": "4152.2.0"}
    assert not of_fluo(metadata(lab, NODE, "annotations"))


LABEL = "node.kubernetes.io/exclude-from-external-load-balancers"


EXCLUDING = ("--set", "drain.exclude-from-load-balancers=2s")
QUICK = ("--settle-timeout", "20s", "--set", "waves.health-checks=1")


@dataclass
class Watched:
    """When, in real seconds, each node got the label and was first drained; `together`: label and cordon in one."""

    lab: Lab
    labelled: dict[str, float] = field(default_factory=dict)
    drained: dict[str, float] = field(default_factory=dict)
    together: dict[str, bool] = field(default_factory=dict)
    given_back_with_label: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lab.call(lambda: self.lab.store.subscribe(self._changed))

    def _changed(self, change: Change) -> None:
        if change.previous is None:
            return
        if change.resource is PODS and "deletionTimestamp" in change.obj["metadata"]:
            node = change.obj["spec"].get("nodeName", "")
            if node_of(self.lab, node)["spec"].get("unschedulable"):
                self.drained.setdefault(node, time.monotonic())
        if change.resource is NODES:
            self._node_changed(change.previous, change.obj)

    def _node_changed(self, was: Json, now: Json) -> None:
        name = now["metadata"]["name"]
        if LABEL in labels(now) and LABEL not in labels(was):
            self.labelled[name] = time.monotonic()
            self.together[name] = is_cordoned(now) and not is_cordoned(was)
        if is_cordoned(was) and not is_cordoned(now) and LABEL in labels(now):
            self.given_back_with_label.append(name)


def labels(node: Json) -> Mapping[str, str]:
    found: Mapping[str, str] = node["metadata"].get("labels") or {}
    return found


def is_cordoned(node: Json) -> bool:
    return bool(node["spec"].get("unschedulable"))


def labelled(lab: Lab) -> set[str]:
    return {node["metadata"]["name"] for node in lab.store.items(NODES) if LABEL in labels(node)}


def test_each_node_leaves_them_before_its_drain_and_comes_back_with_its_uncordon(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", FIVE)
    theirs = next(node["metadata"]["name"] for node in lab.store.items(NODES))
    write(lab, theirs, "labels", **{LABEL: "theirs"})
    watched = Watched(lab)
    ended = rollout(lab, "apply", "--yes", "-o", "json", *EXCLUDING, *QUICK)
    assert ended.code == 0, ended.stderr
    assert len(watched.labelled) == FIVE - 1
    assert all(watched.together.values())
    waits = [watched.drained[name] - at for name, at in watched.labelled.items() if name in watched.drained]
    assert waits
    assert min(waits) >= 2
    assert watched.given_back_with_label in ([], [theirs])
    assert labelled(lab) == {theirs}
    assert labels(node_of(lab, theirs))[LABEL] == "theirs"
    # set after the lab's start, as anything of ours would be
    assert (lab.scoreboard().exclusions_left, lab.scoreboard().annotations_left) == ((theirs,), {})
    assert "waiting 2s for load balancers to leave the node out" in ended.stdout
    assert not any("load balancers" in detail for _phase, detail in ended.steps(theirs))


# Nodes that wait carry a soft taint of ours, which goes with their turn, at the end, by abort and after a crash.


TAINT = {"key": "node-rollout.dev/awaiting-reboot", "effect": "PreferNoSchedule"}


THEIRS = {"key": "node-rollout.dev/awaiting-reboot", "value": "theirs", "effect": "PreferNoSchedule"}


TIMED = {"key": "example.org/slow", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}


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


def names(lab: Lab) -> list[str]:
    return [node["metadata"]["name"] for node in lab.store.items(NODES)]


def test_all_that_wait_are_tainted_before_the_first_is_begun_and_none_at_the_end(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", FIVE)
    first, second, *_ = names(lab)
    write_spec(lab, first, taints=[TIMED])
    write_spec(lab, second, taints=[THEIRS])
    watched = Taints(lab)
    ended = rollout(lab, "apply", "--yes", "-o", "json", *QUICK)
    assert ended.code == 0, ended.stderr
    # a node's own goes with its cordon, and one of somebody else's by the same key and effect leaves ours no place
    turn = watched.begun.index(second)
    assert watched.waiting == [FIVE - 1 - at - (at < turn) for at in range(FIVE)]
    assert tainted(lab) == []
    assert lab.scoreboard().taints_left == ()
    assert TIMED in taints(lab, first)
    assert taints(lab, second) == [THEIRS]


@pytest.mark.sample
@pytest.mark.parametrize("way_out", ["abort", "resume"])
def test_what_a_killed_run_leaves_is_named_and_removed(
    started: Started, rollout: Rollout, tmp_path: Path, way_out: str
) -> None:
    """The soft taints of all that wait, and the label of the one that left its load balancers."""
    lab = started("default", FIVE)
    watched = Watched(lab)
    process = command(lab, tmp_path, "apply", "--yes", "-o", "json", *EXCLUDING, *QUICK)
    wait_until(lambda: bool(watched.labelled))
    process.kill()
    process.communicate()
    assert (len(tainted(lab)), len(labelled(lab))) == (FIVE - 1, 1)
    seen = rollout(lab, "status", "--run", "-o", "json")
    assert '"tainted"' in seen.stdout
    assert tainted(lab)[0] in seen.stdout
    ended = rollout(lab, way_out, "--yes", *unlock(lab))
    assert ended.code == 0, ended.stderr
    assert (tainted(lab), labelled(lab)) == ([], set())
    assert lab.scoreboard().clean
    assert lab.scoreboard().annotations_left == {}


def test_an_interrupted_run_leaves_none_and_resume_sets_it_again(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", FIVE)
    watched = Taints(lab)
    process = command(lab, tmp_path, "apply", "--yes", "-o", "json", *QUICK)
    wait_until(lambda: bool(watched.begun))
    process.terminate()
    assert end_of(process).code == 130
    assert tainted(lab) == []
    assert rollout(lab, "resume", "--yes").code == 0
    assert watched.waiting[1:] == list(range(FIVE - 2, -1, -1))
    assert tainted(lab) == []
