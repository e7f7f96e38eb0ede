"""Which node a process in a pod is on, whether its pod has another place, and what a plan makes of it."""

from dataclasses import replace
from typing import Any

import pytest

from rollout.model.cluster import CONTROL_PLANE_LABELS, Node, Placement, Taint
from rollout.model.own_node import OwnNode, OwnPod
from rollout.model.placement import NodeTerm, Toleration
from rollout.model.plan import ExclusionReason
from rollout.model.selectors import Requirement, SelectorOperator
from rollout.planning.eligibility.candidates import located
from rollout.planning.plan.build import build_plan
from tests.planning.builders import control_plane, inputs, node, pod

HARD = Taint("node-role.kubernetes.io/control-plane", "", "NoSchedule")
SOFT = Taint("node-rollout.dev/awaiting-reboot", "", "PreferNoSchedule")
A, B, C = (node(name) for name in "abc")
KNOWN = OwnPod(node="a", namespace="shop", name="rollout-1")


def place(own: OwnPod, *nodes: Node, on: str = "", **pods: Any) -> OwnNode | None:
    return located(own, pod("rollout-1", on, **pods) if on else None, nodes)


@pytest.mark.parametrize(
    ("own", "on", "expected"),
    [
        (KNOWN, "", OwnNode("a")),
        (KNOWN, "b", OwnNode("a", "shop/rollout-1")),
        (replace(KNOWN, boot_id="boot-b"), "", OwnNode("a")),
        (OwnPod(boot_id="boot-b"), "", OwnNode("b")),
        (OwnPod("", "shop", "rollout-1", "boot-b"), "c", OwnNode("b", "shop/rollout-1")),
        (OwnPod("", "shop", "rollout-1", "boot-x"), "c", OwnNode("c", "shop/rollout-1")),
        (OwnPod("x", "shop", "rollout-1", "boot-b"), "c", None),
        (OwnPod(boot_id="boot-x"), "", None),
        (OwnPod(), "", None),
    ],
)
def test_the_downward_api_goes_before_the_kernel_and_that_before_the_pod(
    own: OwnPod, on: str, expected: OwnNode | None
) -> None:
    assert place(own, A, B, C, on=on) == expected


@pytest.mark.parametrize(
    ("other", "has_place"),
    [
        (B, True),
        (replace(B, taints=(SOFT,)), True),
        (replace(B, unschedulable=True), False),
        (replace(B, deleting=True), False),
        (node("b", ready=False), False),
        (replace(B, taints=(HARD,)), False),
    ],
)
def test_the_next_pod_needs_a_node_that_takes_it(other: Node, *, has_place: bool) -> None:
    assert place(KNOWN, A, other) == OwnNode("a", is_only_place=not has_place)
    assert place(KNOWN, A) == OwnNode("a", is_only_place=True)


def test_what_the_pod_demands_and_tolerates_counts() -> None:
    tolerant = Placement(tolerations=(Toleration(HARD.key, "Exists", "", "NoSchedule"),))
    choosy = Placement((NodeTerm((Requirement(CONTROL_PLANE_LABELS[0], SelectorOperator.EXISTS, ()),)),))
    tainted, labelled = replace(B, taints=(HARD,)), control_plane("b")

    def is_only_place(other: Node, **pods: Any) -> bool:
        own = place(KNOWN, A, other, on="a", **pods)
        return own is not None and own.is_only_place

    assert not is_only_place(tainted, placement=tolerant)
    assert is_only_place(B, placement=choosy)
    assert not is_only_place(labelled, placement=choosy)
    assert is_only_place(B, node_selector={"disk": "ssd"})
    assert not is_only_place(replace(B, labels={"disk": "ssd"}), node_selector={"disk": "ssd"})


@pytest.mark.parametrize(
    ("is_only_place", "reason"), [(False, ExclusionReason.DEFERRED), (True, ExclusionReason.OWN_NODE)]
)
def test_a_plan_leaves_it_out(reason: ExclusionReason, *, is_only_place: bool) -> None:
    plan = build_plan(replace(inputs([A, B, C]), own_node=OwnNode("b", is_only_place=is_only_place)))
    assert [entry.name for entry in plan.nodes] == ["a", "c"]
    (left,) = plan.excluded
    assert (left.node, left.reason) == ("b", reason)
