"""Controllers: what budgets allow, and when pods are replaced."""

import pytest

from rollout.lab.api.resources import BUDGETS, DAEMONSETS, PODS
from rollout.lab.api.store import Json
from rollout.lab.objects import condition
from rollout.lab.world.budgets import expectation
from tests.lab.world.simulation import Simulation, names


@pytest.mark.parametrize(
    ("spec", "pods", "scales", "expected", "desired"),
    [
        ({"minAvailable": 2}, 3, (), 3, 2),
        # A plain number counts the pods that exist, not the scale.
        ({"minAvailable": 2}, 1, (5,), 1, 2),
        ({"minAvailable": "50%"}, 5, (5,), 5, 3),
        ({"minAvailable": "50%"}, 1, (6,), 6, 3),
        ({"minAvailable": "100%"}, 3, (3,), 3, 3),
        ({"maxUnavailable": 1}, 3, (3,), 3, 2),
        ({"maxUnavailable": 5}, 3, (3,), 3, 0),
        # A percentage rounds up here too: 25% of 5 lets two go.
        ({"maxUnavailable": "25%"}, 5, (5,), 5, 3),
        ({"maxUnavailable": "10%"}, 3, (3,), 3, 2),
        ({"maxUnavailable": "50%"}, 7, (4, 3), 7, 3),
        # Pods without a controller have no scale.
        ({"maxUnavailable": 1}, 3, (), 0, 0),
        ({}, 3, (), 3, 1),
    ],
)
def test_what_a_budget_expects(
    spec: Json, pods: int, scales: tuple[int, ...], expected: int, desired: int
) -> None:
    assert expectation({"spec": spec}, pods, lambda: sum(scales)) == (expected, desired)


def counts(sim: Simulation, name: str) -> tuple[int, ...]:
    status = sim.get(BUDGETS, name)["status"]
    fields = ("expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed")
    return tuple(status[field] for field in fields)


def verdict(sim: Simulation, name: str) -> tuple[str, str, str]:
    found = condition(sim.get(BUDGETS, name), "DisruptionAllowed")
    assert found is not None
    return found["status"], found["reason"], found["message"]


def test_the_status_follows_the_pods_a_little_behind() -> None:
    sim = Simulation(3)
    sim.deployment("web", 3, annotations={"lab.node-rollout.dev/termination-seconds": "10"})
    sim.budget("web", maxUnavailable=1)
    sim.world.fast_forward()
    assert counts(sim, "web") == (3, 2, 3, 1)
    assert verdict(sim, "web") == ("True", "SufficientPods", "")
    sim.evict(names(sim.pods("web"))[0])
    assert counts(sim, "web") == (3, 2, 3, 1)
    sim.advance(0.5)
    assert counts(sim, "web") == (3, 2, 2, 0)
    assert verdict(sim, "web") == ("False", "InsufficientPods", "")
    sim.advance(5)
    assert counts(sim, "web") == (3, 2, 3, 1)


def test_an_eviction_that_was_granted_counts_until_the_pod_goes_or_two_minutes_have_passed() -> (
    None
):
    sim = Simulation(3)
    sim.deployment("web", 3)
    sim.budget("web", maxUnavailable=2)
    sim.world.fast_forward()
    sim.grant("web", names(sim.pods("web"))[0])
    sim.advance(1)
    assert counts(sim, "web") == (3, 1, 2, 1)
    sim.advance(110)
    assert counts(sim, "web") == (3, 1, 2, 1)
    sim.advance(15)
    assert counts(sim, "web") == (3, 1, 3, 2)
    assert "disruptedPods" not in sim.get(BUDGETS, "web")["status"]


@pytest.mark.parametrize("limit", [{"maxUnavailable": 1}, {"minAvailable": "50%"}])
def test_a_daemon_set_has_no_scale_to_count_with(limit: dict[str, int | str]) -> None:
    sim = Simulation(2)
    sim.daemon_set("agent")
    sim.budget("agent", **limit)
    sim.world.fast_forward()
    assert sim.get(BUDGETS, "agent")["status"]["disruptionsAllowed"] == 0
    message = "daemonsets.apps does not implement the scale subresource"
    assert verdict(sim, "agent") == ("False", "SyncFailed", message)


def test_an_ordinal_is_replaced_only_when_the_old_pod_is_gone() -> None:
    sim = Simulation(3)
    sim.stateful_set("db", 2, annotations={"lab.node-rollout.dev/termination-seconds": "10"})
    sim.world.fast_forward()
    old = sim.get(PODS, "db-0")["metadata"]["uid"]
    sim.evict("db-0")
    sim.advance(9)
    assert sim.get(PODS, "db-0")["metadata"]["uid"] == old
    sim.advance(1.5)
    assert sim.get(PODS, "db-0")["metadata"]["uid"] != old
    sim.advance(5)
    assert names(sim.ready_pods("db")) == ["db-0", "db-1"]


def test_a_daemon_set_runs_on_every_node_cordoned_ones_included() -> None:
    sim = Simulation(3)
    sim.cordon("n2")
    sim.daemon_set("agent")
    sim.world.fast_forward()
    assert sorted(pod["spec"]["nodeName"] for pod in sim.ready_pods("agent")) == ["n1", "n2", "n3"]
    status = sim.get(DAEMONSETS, "agent")["status"]
    assert status["desiredNumberScheduled"] == 3
    assert status["numberReady"] == 3
