"""Pods to which a cordon is nothing: they come back to the node, and nothing waits for them in vain."""

import pytest

from rollout.model.cluster import Node, Pod
from rollout.model.placement import Placement, Toleration
from rollout.model.plan import RolloutPlan, WarningKind
from rollout.model.policy import Selection
from rollout.planning.plan.build import build_plan
from tests.planning.builders import budget, inputs, node, pod
from tests.planning.test_places import HOSTNAME

ANYTHING = Toleration(operator="Exists")
CORDONS = Toleration("node.kubernetes.io/unschedulable", "Exists", effect="NoSchedule")


def named(name: str, **changes: object) -> Node:
    return node(name, labels={HOSTNAME: name}, **changes)  # type: ignore[arg-type]


def pinned(*tolerations: Toleration, number: int = 2) -> list[Pod]:
    placement = Placement(tolerations=tolerations)
    return [pod(f"web-{i}", "w-1", node_selector={HOSTNAME: "w-1"}, placement=placement) for i in range(number)]


def told(plan: RolloutPlan, kind: WarningKind) -> list[str]:
    return [found.object for found in plan.warnings if found.kind is kind]


TWO = [named("w-1"), named("w-2")]


@pytest.mark.parametrize("toleration", [ANYTHING, CORDONS])
def test_no_budget_waits_in_vain_for_pods_that_come_back(toleration: Toleration) -> None:
    plan = build_plan(inputs(TWO, pods=pinned(toleration), budgets=[budget("web", allowed=1, expected=2)]))
    assert not plan.blockers
    assert not told(plan, WarningKind.FITS_NOWHERE)
    assert told(plan, WarningKind.POD) == ["pod/shop/web-0", "pod/shop/web-1"]
    assert "comes back" in plan.warnings[0].message


def test_a_node_that_others_have_cordoned_takes_them() -> None:
    """Its own node away, such a pod goes to a cordoned one; others do not."""
    nodes = [named("w-1"), named("w-2", unschedulable=True)]
    selection = Selection(nodes=("w-1",))
    tolerant = pod("web-0", "w-1", placement=Placement(tolerations=(CORDONS,)))
    plan = build_plan(inputs(nodes, pods=[tolerant, pod("api-0", "w-1", app="api")], selection=selection))
    assert told(plan, WarningKind.FITS_NOWHERE) == ["pod/shop/api-0"]
    assert not told(plan, WarningKind.POD)
