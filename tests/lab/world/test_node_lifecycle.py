"""Silent nodes, taints, and the eviction of pods that do not tolerate them."""

import pytest

from rollout.lab.api.resources import NODES
from rollout.lab.api.store import Json
from rollout.lab.world.objects import condition, is_deleting, with_spec
from tests.lab.world.simulation import Simulation


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
