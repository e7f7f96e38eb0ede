"""Static and DaemonSets' pods: no member of the control plane goes beside one that is not well; a node is back when
its own pods are.
"""

import json
from pathlib import Path

import pytest

from rollout.lab.api.resources import DAEMONSETS
from rollout.lab.lab import Lab
from tests.apply.conftest import ONE_LOOK, Rollout, Started, killed_at
from tests.security.hands import at_phase, set_well
from tests.state import is_cordoned, marks_of, rebooted, unlock

APPLY = (
    *("apply", "--yes", "-o", "json", "--settle-timeout", "3s", "--set", "gates.timeout=3s"),
    *ONE_LOOK,
)


@pytest.fixture
def lab(started: Started) -> Lab:
    return started("default", 6)


def node_names(*names: str) -> list[str]:
    return [word for name in names for word in ("--node", name)]


def test_no_member_of_the_control_plane_goes_beside_one_that_is_not_well(
    lab: Lab, rollout: Rollout
) -> None:
    lab.call(lambda: set_well(lab, "cp-1", "etcd", well=False))
    refused = rollout(lab, *APPLY).ends(6)
    said = " ".join(refused.stderr.split())
    assert "cp-2, cp-3 pod kube-system/etcd-cp-1 is not Ready on cp-1 since" in said
    assert "or proceed anyway (--allow unhealthy)." in said
    # leave to try blocked drains is none to risk a majority
    assert rollout(lab, *APPLY, "--allow", "blocked").code == 6
    assert not rebooted(lab)
    # the one that is not well may be mended by its reboot
    ended = rollout(lab, *APPLY, "--skip", "blocked").ends(0)
    assert (
        {"cp-2", "cp-3"}
        == {left["node"] for left in ended.plan["excluded"]}
        == lab.machines.keys() - rebooted(lab)
    )


@pytest.mark.sample
@pytest.mark.parametrize(("phase", "node"), [("rebooting", "worker-1"), ("pending", "cp-2")])
def test_a_static_pod_that_falls_after_the_plan_stops_the_others(
    lab: Lab, rollout: Rollout, phase: str, node: str
) -> None:
    """While another node is under way; and between the node's own mark and its cordon."""
    at_phase(lab, phase, lambda _node: set_well(lab, "cp-1", "etcd", well=False), node=node)
    ended = rollout(lab, *APPLY, *node_names("worker-1", "cp-2")).ends(4)
    assert ended.summary["not_started"] == ["cp-2"]
    assert "pod kube-system/etcd-cp-1 is not Ready on cp-1" in ended.summary["reasons"]["cp-2"]
    assert rebooted(lab) == {"worker-1"}
    assert not is_cordoned(lab, "cp-2")
    assert not marks_of(lab, "cp-2")


def test_one_that_comes_back_in_time_is_waited_for(lab: Lab, rollout: Rollout) -> None:
    at_phase(
        lab, "rebooting", lambda _node: set_well(lab, "cp-1", "etcd", well=False), node="worker-1"
    )

    def mend(_node: str) -> None:
        lab.world.cluster.agenda.after(60, lambda: set_well(lab, "cp-1", "etcd", well=True))

    at_phase(lab, "ready", mend, node="worker-1")
    rollout(lab, *APPLY, *node_names("worker-1", "cp-2")).ends(0)
    assert rebooted(lab) == {"worker-1", "cp-2"}


@pytest.mark.sample
@pytest.mark.parametrize(("node", "pod"), [("worker-1", "cilium"), ("cp-2", "etcd")])
def test_a_node_has_not_succeeded_without_its_own_pods(
    lab: Lab, rollout: Rollout, node: str, pod: str
) -> None:
    at_phase(lab, "rebooting", lambda name: set_well(lab, name, pod, well=False), node=node)
    ended = rollout(lab, *APPLY, *node_names(node)).ends(4)
    (failed,) = ended.summary["failed"]
    assert "its pods did not become ready again within --settle-timeout 3s" in failed["message"]
    assert pod in failed["message"]
    assert is_cordoned(lab, node)


@pytest.mark.parametrize("selector", [None, {"pool": "elsewhere"}])
def test_a_daemon_set_that_wants_the_node_no_more_is_not_waited_for(
    lab: Lab, rollout: Rollout, selector: dict[str, str] | None
) -> None:
    def leave(_node: str) -> None:
        found = lab.store.get(DAEMONSETS, "cilium", "kube-system")
        assert found is not None
        if selector is None:
            lab.store.remove(DAEMONSETS, "cilium", "kube-system")
            return
        template = found["spec"]["template"]
        chosen = {**template, "spec": {**template["spec"], "nodeSelector": selector}}
        lab.store.put(DAEMONSETS, {**found, "spec": {**found["spec"], "template": chosen}})

    at_phase(lab, "rebooting", leave, node="worker-1")
    rollout(lab, *APPLY, *node_names("worker-1")).ends(0)


def test_whoever_goes_on_knows_what_was_ready(lab: Lab, rollout: Rollout, tmp_path: Path) -> None:
    killed_at(lab, tmp_path, "booted", *APPLY, *node_names("worker-1"))
    lab.call(lambda: set_well(lab, "worker-1", "cilium", well=False))
    resumed = rollout(lab, "resume", "--yes", "-o", "json", *unlock(lab)).ends(4)
    assert "daemonset/kube-system/cilium" in resumed.summary["failed"][0]["message"]


def test_what_blocks_others_keeps_no_node_that_is_under_way(
    lab: Lab, rollout: Rollout, tmp_path: Path
) -> None:
    killed_at(lab, tmp_path, "rebooting", *APPLY, *node_names("worker-1", "cp-2"))
    lab.call(lambda: set_well(lab, "cp-1", "etcd", well=False))
    resumed = rollout(lab, "resume", "--yes", "-o", "json", *unlock(lab)).ends(4)
    assert resumed.summary["succeeded"] == ["worker-1"]
    assert resumed.summary["reasons"] == {"cp-2": "1 node has blockers"}
    assert "cp-2  pod kube-system/etcd-cp-1  is not Ready on cp-1" in resumed.stderr
    assert not is_cordoned(lab, "worker-1")
    assert rebooted(lab) == {"worker-1"}
    assert rollout(lab, "status").stdout.endswith("Next:\n    rollout resume\n")
    lab.call(lambda: set_well(lab, "cp-1", "etcd", well=True))
    rollout(lab, "resume", "--yes").ends(0)
    assert rebooted(lab) == {"worker-1", "cp-2"}


def test_a_member_that_our_own_reboot_took_away_is_no_reason_not_to_go_on(
    lab: Lab, rollout: Rollout, tmp_path: Path
) -> None:
    """Resumed while it is down; and no other begins before it is well again."""
    at_phase(lab, "rebooting", lambda name: set_well(lab, name, "etcd", well=False), node="cp-1")
    killed_at(lab, tmp_path, "rebooting", *APPLY, *node_names("cp-1", "cp-2", "cp-3"))
    mended: list[str] = []

    def mend(name: str) -> None:
        mended.append(name)
        set_well(lab, name, "etcd", well=True)

    begun_after: dict[str, bool] = {}
    at_phase(lab, "ready", lambda name: lab.world.cluster.agenda.after(60, mend, name), node="cp-1")
    for other in ("cp-2", "cp-3"):
        at_phase(
            lab, "cordoned", lambda name: begun_after.setdefault(name, bool(mended)), node=other
        )
    rollout(lab, "resume", "--yes", "-o", "json", *unlock(lab)).ends(0)
    assert rebooted(lab) == {"cp-1", "cp-2", "cp-3"}
    assert begun_after == {"cp-2": True, "cp-3": True}


def test_what_was_not_ready_before_is_foretold_and_not_waited_for(
    lab: Lab, rollout: Rollout
) -> None:
    lab.call(lambda: set_well(lab, "worker-1", "cilium", well=False))
    lab.call(lambda: set_well(lab, "worker-1", "fluent-bit", well=False))
    warnings = json.loads(rollout(lab, "plan", "-o", "json").stdout)["warnings"]
    told = [
        (entry["node"], entry["object"])
        for entry in warnings
        if "system-node-critical" in entry["message"]
    ]
    assert [(node, name.rpartition("-")[0]) for node, name in told] == [
        ("worker-1", "pod/kube-system/cilium")
    ]
    rollout(lab, *APPLY, *node_names("worker-1")).ends(0)
