"""Kubelets: starting and ending pods, registering nodes, heartbeats, reboots, volumes."""

from datetime import datetime

import pytest

from rollout.lab.api.resources import LEASES, NODES, PODS, VOLUMEATTACHMENTS, VOLUMES
from rollout.lab.api.store import Change, Json
from rollout.lab.objects import condition, is_deleting, is_ready, phase, with_spec
from rollout.lab.world.host import NodeSetting
from rollout.lab.world.volumes import CSI_DRIVER
from tests.lab.world.simulation import NAMESPACE, NEW_IMAGE, OLD_IMAGE, Simulation

LAB = "lab.node-rollout.dev/"


def lease(sim: Simulation, name: str) -> Json:
    found = sim.store.get(LEASES, name, "kube-node-lease")
    assert found is not None
    return found


def test_a_node_registers_with_what_its_host_is() -> None:
    sim = Simulation(1, setting=NodeSetting(labels={"zone": "a"}, annotations={"note": "x"}))
    node = sim.node("n1")
    assert node["metadata"]["labels"]["zone"] == "a"
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "n1"
    assert node["metadata"]["annotations"] == {"note": "x"}
    status = node["status"]
    assert status["addresses"] == [
        {"type": "InternalIP", "address": "127.0.1.1"},
        {"type": "Hostname", "address": "n1"},
    ]
    info = status["nodeInfo"]
    assert (info["bootID"], info["osImage"], info["kernelVersion"]) == ("boot-1", OLD_IMAGE, "6.6.60-flatcar")
    assert {each["type"]: each["status"] for each in status["conditions"]} == {
        "Ready": "True",
    }
    assert "taints" not in node["spec"]


def test_pods_tell_how_long_they_took_to_start_also_of_a_world_made_at_rest() -> None:
    sim = Simulation(2)
    sim.deployment("web", 1, annotations={LAB + "startup-seconds": "90"})
    sim.begin()
    before = sim.pods("web")[0]
    sim.evict(before["metadata"]["name"])
    sim.advance(120)
    for pod in (before, sim.ready_pods("web")[0]):
        scheduled, ready = (condition(pod, kind) for kind in ("PodScheduled", "Ready"))
        assert scheduled is not None
        assert ready is not None
        began, ended = (datetime.fromisoformat(each["lastTransitionTime"]) for each in (scheduled, ready))
        assert (ended - began).total_seconds() == pytest.approx(90, abs=1)


def test_only_leases_beat_and_conditions_are_reported_rarely() -> None:
    sim = Simulation(12)
    changes: list[Change] = []
    sim.advance(1)
    sim.store.subscribe(changes.append)
    sim.advance(300)
    beats = [change.obj["metadata"]["name"] for change in changes if change.resource is LEASES]
    reports = [change.obj["metadata"]["name"] for change in changes if change.resource is NODES]
    assert len(beats) + len(reports) == len(changes)
    assert {beats.count(name) for name in sim.hosts} == {30}
    assert {reports.count(name) for name in sim.hosts} == {1}
    before = datetime.fromisoformat(lease(sim, "n3")["spec"]["renewTime"])
    sim.advance(10)
    after = datetime.fromisoformat(lease(sim, "n3")["spec"]["renewTime"])
    assert (after - before).total_seconds() == pytest.approx(10)


def test_a_pod_takes_its_time_to_start() -> None:
    sim = Simulation(1)
    sim.pod("p")
    took = sim.seconds_until(lambda: phase(sim.get(PODS, "p")) == "Running", step=0.1)
    assert 2 <= took <= 4.2
    pod = sim.get(PODS, "p")
    assert is_ready(pod)
    (container,) = pod["status"]["containerStatuses"]
    assert (container["ready"], container["started"], container["restartCount"]) == (True, True, 0)
    assert pod["status"]["hostIP"] == "127.0.1.1"
    assert pod["status"]["podIP"].startswith("10.")


@pytest.mark.parametrize(
    ("wanted", "grace", "least", "most"),
    [(None, None, 1, 2.6), ("12", None, 12, 12.6), ("60", None, 30, 30.6), ("60", 5, 5, 5.6)],
)
def test_a_deleted_pod_takes_its_time_to_end(wanted: str | None, grace: int | None, least: float, most: float) -> None:
    sim = Simulation(1)
    sim.pod("p", annotations={f"{LAB}termination-seconds": wanted} if wanted else {})
    sim.world.settle()
    sim.delete(PODS, "p", grace)
    assert is_deleting(sim.get(PODS, "p"))
    assert least <= sim.seconds_until(lambda: not sim.has(PODS, "p"), step=0.1) <= most


def test_a_stuck_pod_stays_until_it_is_forced_or_its_host_reboots() -> None:
    sim = Simulation(1)
    for name in ("forced", "rebooted"):
        sim.pod(name, annotations={f"{LAB}termination-seconds": "never"})
    sim.world.settle()
    for name in ("forced", "rebooted"):
        sim.delete(PODS, name)
    sim.advance(500)
    assert sim.has(PODS, "forced")
    sim.delete(PODS, "forced", 0)
    assert not sim.has(PODS, "forced")
    sim.switch_off("n1")
    sim.advance(20)
    sim.switch_on("n1")
    sim.advance(5)
    assert not sim.has(PODS, "rebooted")


def test_a_reboot_brings_a_new_boot_id_and_the_node_back_in_two_steps() -> None:
    sim = Simulation(2)
    sim.daemon_set("agent")
    sim.world.settle()
    sim.switch_off("n1")
    sim.advance(20)
    assert sim.node("n1")["status"]["nodeInfo"]["bootID"] == "boot-1"
    assert sim.is_ready("n1")
    sim.switch_on("n1")
    assert sim.node("n1")["status"]["nodeInfo"]["bootID"] == "boot-1"
    sim.advance(1.5)
    info = sim.node("n1")["status"]["nodeInfo"]
    assert (info["bootID"], info["osImage"]) == ("boot-1+", NEW_IMAGE)
    ready = condition(sim.node("n1"), "Ready")
    assert ready is not None
    assert (ready["status"], ready["reason"]) == ("False", "KubeletNotReady")
    (agent,) = sim.pods("agent", node="n1")
    assert not is_ready(agent)
    assert {taint["key"] for taint in sim.node("n1")["spec"]["taints"]} == {"node.kubernetes.io/not-ready"}
    sim.advance(4)
    assert sim.is_ready("n1")
    assert "taints" not in sim.node("n1")["spec"]
    sim.advance(3)
    (restarted,) = sim.pods("agent", node="n1")
    assert restarted["metadata"]["uid"] == agent["metadata"]["uid"]
    assert is_ready(restarted)
    assert restarted["status"]["containerStatuses"][0]["restartCount"] == 1


def test_a_volume_is_attached_while_it_is_used_and_a_moment_longer() -> None:
    sim = Simulation(2)
    claimed = {"claimRef": {"namespace": NAMESPACE, "name": "data"}}
    sim.create(VOLUMES, "pv-1", {**claimed, "csi": {"driver": CSI_DRIVER, "volumeHandle": "x"}})
    sim.create(VOLUMES, "local-1", {**claimed, "local": {"path": "/x"}})
    sim.stateful_set("db", 1, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])
    sim.world.settle()
    (attachment,) = sim.store.items(VOLUMEATTACHMENTS)
    node = sim.get(PODS, "db-0")["spec"]["nodeName"]
    assert attachment["spec"]["nodeName"] == node
    assert attachment["spec"]["source"] == {"persistentVolumeName": "pv-1"}
    assert attachment["status"] == {"attached": True}
    assert len(sim.node(node)["status"]["volumesAttached"]) == 1
    sim.cordon(node)
    sim.evict("db-0")
    sim.seconds_until(lambda: sim.get(PODS, "db-0")["spec"].get("nodeName") not in (node, None), step=0.1)
    assert len(list(sim.store.items(VOLUMEATTACHMENTS))) == 2
    sim.advance(2)
    (left,) = sim.store.items(VOLUMEATTACHMENTS)
    assert left["spec"]["nodeName"] != node
    assert sim.node(node)["status"]["volumesAttached"] == []


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
    assert (ready(sim, "n2")["status"], ready(sim, "n2")["reason"]) == ("Unknown", "NodeStatusUnknown")
    sim.advance(0.1)
    assert taints(sim, "n2") == {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}
    assert sim.is_ready("n1")
    assert sim.is_ready("n3")


def test_a_fast_reboot_never_turns_unknown() -> None:
    sim = Simulation(1)
    sim.advance(100)
    sim.switch_off("n1")
    for _ in range(22):
        sim.advance(1)
        assert ready(sim, "n1")["status"] == "True"
    sim.switch_on("n1")
    sim.advance(60)
    assert sim.is_ready("n1")


def test_pods_of_a_silent_node_are_unready_and_ready_again_with_it() -> None:
    sim = Simulation(1)
    sim.daemon_set("agent")
    sim.world.settle()
    sim.switch_off("n1")
    sim.advance(30)
    assert len(sim.ready_pods("agent")) == 1
    sim.advance(20)
    assert not sim.ready_pods("agent")
    sim.switch_on("n1")
    sim.advance(10)
    assert len(sim.ready_pods("agent")) == 1
    assert taints(sim, "n1") == set()


def test_pods_leave_an_unreachable_node_after_five_minutes_and_go_when_it_is_back() -> None:
    sim = Simulation(2)
    sim.deployment("web", 2)
    sim.daemon_set("agent")
    sim.world.settle()
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


def test_the_taint_of_a_cordon_follows_it() -> None:
    sim = Simulation(1)
    sim.cordon("n1")
    assert taints(sim, "n1") == {("unschedulable", "NoSchedule")}
    sim.cordon("n1", wanted=False)
    assert taints(sim, "n1") == set()
    assert "taints" not in sim.node("n1")["spec"]


def test_a_taint_that_somebody_set_stays_and_drives_out_at_once() -> None:
    sim = Simulation(2)
    sim.deployment("web", 2)
    sim.world.settle()
    taint = {"key": "maintenance", "effect": "NoExecute"}
    sim.store.put(NODES, with_spec(sim.node("n1"), taints=[taint]))
    sim.advance(10)
    assert {pod["spec"]["nodeName"] for pod in sim.pods("web")} == {"n2"}
    sim.cordon("n1")
    assert sim.node("n1")["spec"]["taints"][0] == taint


def test_the_pods_of_a_node_that_is_gone_are_deleted_after_a_while() -> None:
    sim = Simulation(2)
    sim.deployment("web", 2)
    sim.world.settle()
    sim.switch_off("n1")
    sim.delete(NODES, "n1")
    sim.advance(38)
    assert len(sim.pods("web", node="n1")) == 1
    sim.advance(10)
    assert not sim.pods("web", node="n1")
    assert len(sim.ready_pods("web")) == 2
