"""Load balancers are told of a node before its drain, are given time, and get it back with the uncordon."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rollout.lab.api.resources import LEASES, NODES, PODS
from rollout.lab.api.store import Change, Json
from rollout.lab.lab import Lab
from rollout.lab.scenario import Scenario
from tests.apply.conftest import Rollout, command
from tests.waiting import wait_until

LABEL = "node.kubernetes.io/exclude-from-external-load-balancers"
QUICK = ("--settle-timeout", "20s", "--set", "waves.health-checks=1")
NUMBER = 5

Started = Callable[[Scenario | str, int], Lab]


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


def node_of(lab: Lab, name: str) -> Json:
    node = lab.store.get(NODES, name)
    assert node is not None
    return node


def labels(node: Json) -> Mapping[str, str]:
    found: Mapping[str, str] = node["metadata"].get("labels") or {}
    return found


def is_cordoned(node: Json) -> bool:
    return bool(node["spec"].get("unschedulable"))


def label(lab: Lab, node: str) -> None:
    def change() -> None:
        current = node_of(lab, node)
        wanted = {**labels(current), LABEL: "theirs"}
        lab.store.put(NODES, {**current, "metadata": {**current["metadata"], "labels": wanted}})

    lab.call(change)


def labelled(lab: Lab) -> set[str]:
    return {node["metadata"]["name"] for node in lab.store.items(NODES) if LABEL in labels(node)}


def test_each_node_leaves_them_before_its_drain_and_comes_back_with_its_uncordon(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", NUMBER)
    theirs = next(node["metadata"]["name"] for node in lab.store.items(NODES))
    label(lab, theirs)
    watched = Watched(lab)
    ended = rollout(lab, "apply", "--yes", "-o", "json", "--set", "drain.exclude-from-load-balancers=2s", *QUICK)
    assert ended.code == 0, ended.stderr
    assert len(watched.labelled) == NUMBER - 1
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


@pytest.mark.sample
@pytest.mark.parametrize("way_out", ["abort", "resume"])
def test_what_a_killed_run_leaves_is_removed(started: Started, rollout: Rollout, tmp_path: Path, way_out: str) -> None:
    lab = started("default", NUMBER)
    watched = Watched(lab)
    process = command(
        lab, tmp_path, "apply", "--yes", "-o", "json", "--set", "drain.exclude-from-load-balancers=2s", *QUICK
    )
    wait_until(lambda: bool(watched.labelled))
    process.kill()
    process.communicate()
    assert len(labelled(lab)) == 1
    lease = lab.store.get(LEASES, "node-rollout", "kube-system")
    assert lease is not None
    unlock = lease["metadata"]["annotations"]["node-rollout.dev/run"]
    ended = rollout(lab, way_out, "--yes", "--force-unlock", unlock)
    assert ended.code == 0, ended.stderr
    assert labelled(lab) == set()
    assert lab.scoreboard().clean
