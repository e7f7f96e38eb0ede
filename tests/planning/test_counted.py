"""Devices, huge pages, local storage and ports of the host: what else than CPU and memory a place
must have free.
"""

from collections.abc import Mapping

import pytest
from msgspec import structs

from rollout.model.cluster import Node, Pod, Resources
from rollout.model.placement import Placement, Toleration
from rollout.model.plan import RolloutPlan, WarningKind
from rollout.model.policy import Selection
from rollout.planning.plan.build import build_plan
from tests.planning.builders import HOSTNAME, budget, hosted, inputs, node, pod

GPU = "nvidia.com/gpu"
PORT = "host port 80/TCP"


def offering(name: str, **others: int) -> Node:
    return node(
        name, labels={HOSTNAME: name}, allocatable=Resources(4000, 8 << 30, 110, named(others))
    )


def named(others: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(
        sorted((GPU if name == "gpu" else name, amount) for name, amount in others.items())
    )


def asking(name: str, on: str, *others: tuple[str, int], app: str = "") -> Pod:
    return pod(name, on, app=app or name, requests=Resources(100, 0, 1, others))


def homeless(plan: RolloutPlan) -> dict[str, str]:
    return {
        found.object: found.message
        for found in plan.warnings
        if found.kind is WarningKind.FITS_NOWHERE
    }


@pytest.mark.parametrize(("free", "taken"), [(0, 0), (1, 1), (2, 2)])
def test_no_other_node_has_a_device_free(free: int, taken: int) -> None:
    others = [asking(f"other-{i}", "w-2", (GPU, 1)) for i in range(taken)]
    given = inputs(
        [offering("w-1", gpu=1), offering("w-2", gpu=free)],
        pods=[asking("train", "w-1", (GPU, 1)), *others],
    )
    assert "1 nvidia.com/gpu" in homeless(build_plan(given))["pod/shop/train"]


def test_two_pods_with_one_port_of_the_host_do_not_share_a_node() -> None:
    nodes = [offering("w-1"), offering("w-2")]
    pods = [
        asking("ingress-0", "w-1", (PORT, 1), app="ingress"),
        asking("ingress-1", "w-2", (PORT, 1), app="ingress"),
    ]
    found = homeless(build_plan(inputs(nodes, pods=pods)))
    assert sorted(found) == ["pod/shop/ingress-0", "pod/shop/ingress-1"]
    assert f"{PORT}): {PORT} is in use on each of them" in found["pod/shop/ingress-0"]
    assert not homeless(build_plan(inputs([*nodes, offering("w-3")], pods=pods)))
    other = structs.replace(pods[1], requests=Resources(100, 0, 1, (("host port 80/UDP", 1),)))
    assert not homeless(build_plan(inputs(nodes, pods=[pods[0], other])))


# Pods to which a cordon is nothing: they come back to the node, and nothing waits for them in vain.


ANYTHING = Toleration(operator="Exists")


CORDONS = Toleration("node.kubernetes.io/unschedulable", "Exists", effect="NoSchedule")


def pinned(*tolerations: Toleration, number: int = 2) -> list[Pod]:
    placement = Placement(tolerations=tolerations)
    return [
        pod(f"web-{i}", "w-1", node_selector={HOSTNAME: "w-1"}, placement=placement)
        for i in range(number)
    ]


def told(plan: RolloutPlan, kind: WarningKind) -> list[str]:
    return [found.object for found in plan.warnings if found.kind is kind]


TWO = [hosted("w-1"), hosted("w-2")]


@pytest.mark.parametrize("toleration", [ANYTHING, CORDONS])
def test_no_budget_waits_in_vain_for_pods_that_come_back(toleration: Toleration) -> None:
    plan = build_plan(
        inputs(TWO, pods=pinned(toleration), budgets=[budget("web", allowed=1, expected=2)])
    )
    assert not plan.blockers
    assert not told(plan, WarningKind.FITS_NOWHERE)
    assert told(plan, WarningKind.POD) == ["pod/shop/web-0", "pod/shop/web-1"]
    assert "scheduled on this node again" in plan.warnings[0].message


def test_a_node_that_others_have_cordoned_takes_them() -> None:
    """Its own node away, such a pod goes to a cordoned one; others do not."""
    nodes = [hosted("w-1"), hosted("w-2", unschedulable=True)]
    selection = Selection(nodes=("w-1",))
    tolerant = pod("web-0", "w-1", placement=Placement(tolerations=(CORDONS,)))
    plan = build_plan(
        inputs(nodes, pods=[tolerant, pod("api-0", "w-1", app="api")], selection=selection)
    )
    assert told(plan, WarningKind.FITS_NOWHERE) == ["pod/shop/api-0"]
    assert not told(plan, WarningKind.POD)
