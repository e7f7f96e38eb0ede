"""Every cause that keeps two nodes out of one wave is told on request."""

import pytest

from rollout.model.cluster import Node, Resources
from rollout.model.policy import ControlPlaneOrder, Policy, Sharing
from rollout.model.quantity import Count
from rollout.planning.plan.build import PlanInputs, decide
from rollout.planning.plan.explanation import Explanation, explain
from tests.planning.builders import budget, control_plane, facts, inputs, node, pod

MANY = Count(4)
EXCLUSIVE = Policy(MANY, sharing=Sharing.EXCLUSIVE)


def zoned(name: str, zone: str) -> Node:
    return node(name, labels={"zone": zone})


def budgeted() -> PlanInputs:
    pods = [pod("web-0", "w-1"), pod("web-1", "w-2")]
    return inputs(
        [node("w-1"), node("w-2"), node("w-3")], pods=pods, budgets=[budget("web", allowed=1)], policy=EXCLUSIVE
    )


def gradual() -> PlanInputs:
    pods = [pod("web-0", "w-1"), pod("web-1", "w-1"), pod("web-2", "w-2")]
    return inputs([node("w-1"), node("w-2")], pods=pods, budgets=[budget("web", allowed=1)], policy=EXCLUSIVE)


def last_replicas() -> PlanInputs:
    pods = [pod("web-0", "w-1"), pod("web-1", "w-2")]
    return inputs([node("w-1"), node("w-2"), node("w-3")], pods=pods, policy=Policy(MANY))


def full() -> PlanInputs:
    nodes = [node(f"w-{i}") for i in range(3)]
    pods = [pod(f"p-{i}", f"w-{i}", app=f"a-{i}", requests=Resources(2500, 0, 1)) for i in range(3)]
    return inputs(nodes, pods=pods, policy=Policy(MANY))


def limited() -> PlanInputs:
    return inputs([node(f"w-{i}") for i in range(3)], policy=Policy(Count(2)))


CAUSES = {
    "budget": (budgeted(), "w-2", 1, "shop/web would lose more pods at once than its budget allows (1)"),
    "budget that drains gradually": (gradual(), "w-2", 1, "than its budget allows (1)"),
    "last replicas": (last_replicas(), "w-2", 1, "replicaset/shop/web would lose all its 2 pods at once"),
    "room": (full(), "w-1", 1, "their pods would not fit on the others"),
    "limit": (limited(), "w-2", 1, "full wave: at most 2 at once"),
    "zone": (
        inputs([zoned("w-1", "a"), zoned("w-2", "b")], policy=Policy(MANY, spread_by="zone")),
        "w-2",
        1,
        "another part of the rollout (zone=a)",
    ),
    "canary": (
        inputs([node(f"w-{i}") for i in range(3)], policy=Policy(MANY, canary=2)),
        "w-2",
        1,
        "another part of the rollout (canary)",
    ),
    "canary among itself": (
        inputs([node(f"w-{i}") for i in range(3)], policy=Policy(MANY, canary=2)),
        "w-1",
        1,
        "full wave: at most 1 at once",
    ),
    "ramp": (
        inputs([node(f"w-{i}") for i in range(6)], policy=Policy(MANY, ramp=(Count(1), Count(2)))),
        "w-1",
        1,
        "another part of the rollout (step 1 of the ramp)",
    ),
    "the ramp's own limit": (
        inputs([node(f"w-{i}") for i in range(6)], policy=Policy(MANY, ramp=(Count(1), Count(2)))),
        "w-5",
        3,
        "full wave: at most 2 at once",
    ),
    "control plane": (
        inputs([control_plane("cp-1"), control_plane("cp-2"), node("w-1")], policy=Policy(MANY)),
        "cp-2",
        2,
        "control-plane nodes go one at a time",
    ),
    "control plane after the rest": (
        inputs([control_plane("cp-1"), node("w-1")], policy=Policy(MANY)),
        "cp-1",
        1,
        "another part of the rollout (worker nodes)",
    ),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_each_cause_of_a_separation_is_told(cause: str) -> None:
    made, name, wave, says = CAUSES[cause]
    found = explain(decide(made), name)
    assert [entry.wave for entry in found.not_earlier] == list(range(1, found.wave))
    assert any(says in reason for reason in not_in(found, wave)), found.not_earlier


def not_in(found: Explanation, wave: int) -> tuple[str, ...]:
    return next(entry.because for entry in found.not_earlier if entry.wave == wave)


def test_every_node_of_a_plan_and_outside_it_can_be_explained() -> None:
    nodes = [node("w-1"), node("w-2", ready=False), node("w-3"), control_plane("cp-1")]
    given = inputs(
        nodes,
        observations={"w-3": facts("w-3", staged=False)},
        policy=Policy(MANY, control_plane=ControlPlaneOrder.EXCLUDE),
    )
    made = decide(given)
    assert [explain(made, each.name).wave for each in nodes] == [1, 0, 0, 0]
    assert all(explain(made, each.name).because for each in nodes)
