"""Nodes that can never be emptied, wherever their pods go until then; and those of which that may come about."""

from dataclasses import replace

import pytest

from rollout.model.cluster import Pod, PodPhase, Resources
from rollout.model.placement import ANYWHERE, Placement, Toleration
from rollout.model.plan import BlockerKind, RolloutPlan, WarningKind
from rollout.model.policy import DrainPolicy, Policy
from rollout.planning.plan.build import PlanInputs, build_plan
from tests.planning.builders import budget, inputs, node, pod

NODES = [node("w-1"), node("w-2")]


def spread(app: str, number: int, cpu: int, placement: Placement = ANYWHERE) -> list[Pod]:
    """Half of them on each node."""
    asked = Resources(cpu, 0, 1)
    return [pod(f"{app}-{i}", f"w-{i % 2 + 1}", app=app, requests=asked, placement=placement) for i in range(number)]


ANYWHERE_AT_ALL = replace(ANYWHERE, tolerations=(Toleration(operator="Exists"),))
SMALL, LARGE = spread("small", 8, 300), spread("large", 4, 800)
BUDGETS = [budget("small", allowed=1, expected=8), budget("large", allowed=1, expected=4)]


def full(pods: list[Pod] = [*SMALL, *LARGE], **changes: object) -> PlanInputs:  # noqa: B006 - never changed
    """Without one of its two nodes of 4 CPU a cluster of which budgets keep 4500m running."""
    return inputs(**{"nodes": NODES, "pods": pods, "budgets": BUDGETS, **changes})  # type: ignore[arg-type]


def budgets_warned_of(plan: RolloutPlan) -> list[tuple[str, str]]:
    warnings = [warning for warning in plan.warnings if warning.kind is WarningKind.FITS_NOWHERE]
    return [(warning.node, warning.object) for warning in warnings if warning.object.startswith("pdb/")]


def test_two_budgets_that_alone_could_be_met_block_nodes_without_room_for_what_both_keep() -> None:
    plan = build_plan(full())
    assert [(found.node, found.kind, found.object) for found in plan.blockers] == [
        ("w-1", BlockerKind.FITS_NOWHERE, "node/w-1"),
        ("w-2", BlockerKind.FITS_NOWHERE, "node/w-2"),
    ]
    message = plan.blockers[0].message
    assert "4500m CPU, 0Mi memory, 10 pods" in message
    assert "the other nodes have 4 CPU, 8192Mi memory, 110 pods" in message


@pytest.mark.parametrize(
    "made",
    [
        full(budgets=[BUDGETS[0]]),
        full(budgets=[BUDGETS[0], budget("large", allowed=2, expected=4)]),
        full(nodes=[*NODES, node("w-3", allocatable=Resources(500, 8 << 30, 110))]),
        full([*SMALL[:-2], *(replace(one, owner=None) for one in SMALL[-2:]), *LARGE]),
        full([*SMALL[:-2], *(replace(one, ready=False) for one in SMALL[-2:]), *LARGE]),
        full([*SMALL[:-2], *(replace(one, deleted_at="2026-01-01T00:00:00Z") for one in SMALL[-2:]), *LARGE]),
        full([*SMALL[:-2], *(replace(one, phase=PodPhase.SUCCEEDED) for one in SMALL[-2:]), *LARGE]),
        full(spread("small", 8, 300, placement=ANYWHERE_AT_ALL) + LARGE),
        full(policy=Policy(drain=DrainPolicy(disable_eviction=True))),
        full(policy=Policy(drain=DrainPolicy(pod_selector="app=small"))),
    ],
    ids=[
        "no budget keeps them",
        "its budget lets more be away",
        "another node",
        "nothing replaces them",
        "not ready",
        "going",
        "ended",
        "they come back",
        "budgets are not asked",
        "they are left",
    ],
)
def test_what_a_cluster_may_do_without_is_no_blocker(made: PlanInputs) -> None:
    assert not [found for found in build_plan(made).blockers if found.object.startswith("node/")]


def test_where_chance_decides_a_warning_names_the_budget_and_nothing_is_blocked() -> None:
    """Two large pods that no budget keeps may take the room of small ones, whose budget lets one be away."""
    made = full([*spread("small", 6, 300), *spread("db", 2, 1500)], budgets=[budget("small", allowed=1, expected=6)])
    plan = build_plan(made)
    assert not plan.blockers
    assert budgets_warned_of(plan) == [("w-1", "pdb/shop/small"), ("w-2", "pdb/shop/small")]
    first, then = [found.message for found in plan.warnings if found.object == "pdb/shop/small"]
    assert "lets 1 be away of the 3 pods" in first
    assert "lets 1 be away of the 6 pods" in then
    assert "make room on other nodes" in then
