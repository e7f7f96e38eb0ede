"""Kubelets: reboots, silent nodes, and the pods on them."""

import pytest

from rollout.lab.api.resources import NODES, PODS
from rollout.lab.api.store import Json
from rollout.lab.objects import condition, is_deleting, is_ready, phase
from tests.lab.world.simulation import NAMESPACE, NEW_IMAGE, Simulation


def test_a_reboot_brings_a_new_boot_id_and_the_node_back_in_two_steps() -> None:
    sim = Simulation(2)
    sim.daemon_set("agent")
    sim.world.fast_forward()
    before = sim.hosts["n1"].boot_id
    sim.switch_off("n1")
    sim.advance(22)
    assert sim.node("n1")["status"]["nodeInfo"]["bootID"] == before
    assert sim.is_ready("n1")
    sim.switch_on("n1")
    assert sim.node("n1")["status"]["nodeInfo"]["bootID"] == before
    sim.advance(1.5)
    info = sim.node("n1")["status"]["nodeInfo"]
    assert info["bootID"] == sim.hosts["n1"].boot_id
    assert info["osImage"] == NEW_IMAGE
    assert ready(sim, "n1")["status"] == "False"
    assert ready(sim, "n1")["reason"] == "KubeletNotReady"
    (agent,) = sim.pods("agent", node="n1")
    assert not is_ready(agent)
    assert {taint["key"] for taint in sim.node("n1")["spec"]["taints"]} == {
        "node.kubernetes.io/not-ready"
    }
    sim.advance(4)
    assert sim.is_ready("n1")
    assert "taints" not in sim.node("n1")["spec"]
    sim.advance(3)
    (restarted,) = sim.pods("agent", node="n1")
    assert restarted["metadata"]["uid"] == agent["metadata"]["uid"]
    assert is_ready(restarted)


# Silent nodes, taints, and the eviction of pods that do not tolerate them.


def ready(sim: Simulation, name: str) -> Json:
    found = condition(sim.node(name), "Ready")
    assert found is not None
    return found


def taints(sim: Simulation, name: str) -> set[tuple[str, str]]:
    return {
        (taint["key"].removeprefix("node.kubernetes.io/"), taint["effect"])
        for taint in sim.node(name)["spec"].get("taints", ())
    }


@pytest.mark.parametrize("already", [0.0, 3.3, 7.7, 12.1])
def test_a_silent_node_turns_unknown_after_the_grace_period_and_not_before(already: float) -> None:
    sim = Simulation(3)
    sim.advance(100 + already)
    sim.switch_off("n2")
    # The last renewal was up to ten seconds ago, and the controller looks every five.
    took = sim.seconds_until(lambda: not sim.is_ready("n2"), step=0.1)
    assert 30 <= took <= 45.1
    assert ready(sim, "n2")["status"] == "Unknown"
    assert ready(sim, "n2")["reason"] == "NodeStatusUnknown"
    sim.advance(0.1)
    assert taints(sim, "n2") == {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}
    assert sim.is_ready("n1")
    assert sim.is_ready("n3")


def test_pods_leave_an_unreachable_node_after_five_minutes_and_go_when_it_is_back() -> None:
    sim = Simulation(2)
    sim.deployment("web", 2)
    sim.daemon_set("agent")
    sim.world.fast_forward()
    sim.switch_off("n1")
    sim.seconds_until(lambda: not sim.is_ready("n1"))
    sim.advance(298)
    assert not any(is_deleting(pod) for pod in sim.pods(node="n1"))
    sim.advance(4)
    assert [is_deleting(pod) for pod in sim.pods("web", node="n1")] == [True]
    assert [is_deleting(pod) for pod in sim.pods("agent", node="n1")] == [False]
    sim.advance(600)
    assert len(sim.pods("web", node="n1")) == 1
    assert len(sim.ready_pods("web")) == 2
    sim.switch_on("n1")
    sim.advance(3)
    assert not sim.pods("web", node="n1")
    assert sim.keeper.scoreboard().deletions == 0


def test_a_pod_with_a_run_time_succeeds_after_it() -> None:
    sim = Simulation(1)
    annotations = {"lab.node-rollout.dev/run-seconds": "2400"}
    metadata = {"name": "train", "namespace": NAMESPACE, "labels": {}, "annotations": annotations}
    sim.store.create(PODS, {"metadata": metadata, "spec": {"nodeName": "n1"}, "status": {}})
    sim.advance(2390)
    assert phase(sim.store.get(PODS, "train", NAMESPACE) or {}) == "Running"
    sim.advance(20)
    assert phase(sim.store.get(PODS, "train", NAMESPACE) or {}) == "Succeeded"


# Nodes that somebody deletes.


def test_a_deleted_node_stays_away_until_its_kubelet_starts_again() -> None:
    sim = Simulation(2)
    before = sim.node("n1")["metadata"]["uid"]
    sim.store.remove(NODES, "n1")
    sim.advance(400)
    assert sim.store.get(NODES, "n1") is None
    sim.world.kubelets["n1"].restart()
    assert sim.node("n1")["metadata"]["uid"] != before
    assert sim.is_ready("n1")


def test_a_deleted_node_is_registered_again_by_the_next_boot() -> None:
    sim = Simulation(2)
    sim.switch_off("n1")
    sim.store.remove(NODES, "n1")
    sim.advance(30)
    sim.switch_on("n1")
    sim.advance(8)
    assert sim.node("n1")["status"]["nodeInfo"]["bootID"] == sim.hosts["n1"].boot_id
    assert sim.is_ready("n1")
