"""Static and DaemonSets' pods: no member of the control plane goes beside one that is not well; a node is back when
its own pods are."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rollout.lab.api.resources import DAEMONSETS, NODES
from rollout.lab.lab import Lab
from rollout.lab.scenario import Scenario
from tests.apply.conftest import Rollout, command
from tests.apply.test_soft_taint import run_of
from tests.security.hands import at_phase, marks, set_well

APPLY = (
    "apply",
    "--yes",
    "-o",
    "json",
    "--set",
    "waves.health-checks=1",
    "--settle-timeout",
    "5s",
    "--set",
    "gates.timeout=5s",
)

Started = Callable[[Scenario | str, int], Lab]


@pytest.fixture
def lab(started: Started) -> Lab:
    return started("default", 6)


def node_names(*names: str) -> list[str]:
    return [word for name in names for word in ("--node", name)]


def rebooted(lab: Lab) -> set[str]:
    return {name for name, machine in lab.machines.items() if machine.reboots}


def is_cordoned(lab: Lab, name: str) -> bool:
    node = lab.call(lambda: lab.store.get(NODES, name))
    assert node is not None
    return bool(node["spec"].get("unschedulable"))


def test_no_member_of_the_control_plane_goes_beside_one_that_is_not_well(lab: Lab, rollout: Rollout) -> None:
    lab.call(lambda: set_well(lab, "cp-1", "etcd", well=False))
    refused = rollout(lab, *APPLY)
    assert refused.code == 6
    said = " ".join(refused.stderr.split())
    assert "cp-2, cp-3 pod kube-system/etcd-cp-1 is not Ready on cp-1 since" in said
    assert not rebooted(lab)
    # the one that is not well may be mended by its reboot
    ended = rollout(lab, *APPLY, "--skip", "blocked")
    assert ended.code == 0, ended.stderr
    assert {"cp-2", "cp-3"} == {left["node"] for left in ended.plan["excluded"]} == lab.machines.keys() - rebooted(lab)


@pytest.mark.sample
@pytest.mark.parametrize(("phase", "node"), [("rebooting", "worker-1"), ("pending", "cp-2")])
def test_a_static_pod_that_falls_after_the_plan_stops_the_others(
    lab: Lab, rollout: Rollout, phase: str, node: str
) -> None:
    """While another node is under way; and between the node's own mark and its cordon."""
    at_phase(lab, phase, lambda _node: set_well(lab, "cp-1", "etcd", well=False), node=node)
    ended = rollout(lab, *APPLY, *node_names("worker-1", "cp-2"))
    assert ended.code == 4
    assert ended.summary["not_started"] == ["cp-2"]
    assert "pod/kube-system/etcd-cp-1 is not Ready on cp-1" in ended.summary["reasons"]["cp-2"]
    assert rebooted(lab) == {"worker-1"}
    assert not is_cordoned(lab, "cp-2")
    assert not marks(lab, "cp-2")


def test_one_that_comes_back_in_time_is_waited_for(lab: Lab, rollout: Rollout) -> None:
    at_phase(lab, "rebooting", lambda _node: set_well(lab, "cp-1", "etcd", well=False), node="worker-1")

    def mend(_node: str) -> None:
        lab.world.cluster.agenda.after(30, lambda: set_well(lab, "cp-1", "etcd", well=True))

    at_phase(lab, "ready", mend, node="worker-1")
    ended = rollout(lab, *APPLY, *node_names("worker-1", "cp-2"))
    assert ended.code == 0, ended.stderr
    assert rebooted(lab) == {"worker-1", "cp-2"}


@pytest.mark.sample
@pytest.mark.parametrize(("node", "pod"), [("worker-1", "cilium"), ("cp-2", "etcd")])
def test_a_node_has_not_succeeded_without_its_own_pods(lab: Lab, rollout: Rollout, node: str, pod: str) -> None:
    at_phase(lab, "rebooting", lambda name: set_well(lab, name, pod, well=False), node=node)
    ended = rollout(lab, *APPLY, *node_names(node))
    assert ended.code == 4
    (failed,) = ended.summary["failed"]
    assert "not settled within --settle-timeout 5s" in failed["message"]
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
    ended = rollout(lab, *APPLY, *node_names("worker-1"))
    assert ended.code == 0, ended.stderr


def test_whoever_goes_on_knows_what_was_ready(lab: Lab, rollout: Rollout, tmp_path: Path) -> None:
    process = command(lab, tmp_path, *APPLY, *node_names("worker-1"))
    assert process.stdout is not None
    next(line for line in process.stdout if '"booted"' in line)
    process.kill()
    process.communicate()
    lab.call(lambda: set_well(lab, "worker-1", "cilium", well=False))
    resumed = rollout(lab, "resume", "--yes", "-o", "json", "--force-unlock", run_of(lab))
    assert resumed.code == 4
    assert "daemonset/kube-system/cilium" in resumed.summary["failed"][0]["message"]
