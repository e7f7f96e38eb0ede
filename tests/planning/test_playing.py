"""A wave goes only as large as its pods find places, all its nodes away at once."""

from dataclasses import replace
from random import Random

import pytest

from rollout.model.cluster import Node, Pod, Resources
from rollout.model.placement import Placement, PodTerm
from rollout.model.plan import BlockerKind, RolloutPlan, WarningKind
from rollout.model.policy import Policy
from rollout.model.quantity import Count
from rollout.planning.plan.build import PlanInputs, build_plan, decide
from rollout.planning.plan.explanation import explain
from tests.planning.builders import budget, inputs, node, pod
from tests.planning.test_places import HOSTNAME, app

ALL_AT_ONCE = Policy(max_unavailable=Count(9))


def named(name: str, pool: str, cores: int = 4) -> Node:
    return node(name, labels={HOSTNAME: name, "pool": pool}, allocatable=Resources(cores * 1000, 8 << 30, 110))


def pooled(name: str, on: str, pool: str, cores: int = 2) -> Pod:
    return pod(name, on, app=name, node_selector={"pool": pool}, requests=Resources(cores * 1000, 0, 1))


def names(plan: RolloutPlan) -> list[list[str]]:
    return [[each.name for each in wave.nodes] for wave in plan.waves]


def small_pool() -> PlanInputs:
    """Three nodes for certain pods, with room for those of one node besides their own; ample room elsewhere."""
    nodes = [*(named(f"p-{i}", "p", 3) for i in range(3)), *(named(f"w-{i}", "w", 16) for i in range(6))]
    pods = [pooled(f"a-{i}", f"p-{i}", "p", 1) for i in range(3)] + [pooled("b", "p-0", "p", 1)]
    return inputs(nodes, pods=pods, policy=ALL_AT_ONCE)


def test_a_pool_is_not_emptied_at_once_though_the_cluster_has_room() -> None:
    plan = build_plan(small_pool())
    sizes = [sum(name.startswith("p-") for name in wave) for wave in names(plan)]
    assert sum(sizes) == 3
    assert max(sizes) < 3
    assert not [found for found in plan.warnings if found.kind is WarningKind.FITS_NOWHERE]
    assert sorted(name for wave in names(plan) for name in wave) == sorted(
        each.name for each in small_pool().snapshot.nodes
    )


def test_one_turned_away_goes_later_and_the_explanation_says_for_which_pod() -> None:
    made = decide(small_pool())
    late = made.layout.waves[-1].pieces[0].name
    found = explain(made, late)
    assert found.wave > 1
    reasons = [reason for entry in found.not_earlier for reason in entry.because]
    assert any("would fit nowhere" in reason and "shop/" in reason for reason in reasons)


def test_pods_that_belong_together_move_together() -> None:
    nodes = [named("w-1", "w"), named("w-2", "w")]
    drawn = Placement(attractions=(PodTerm(HOSTNAME, app("hub")),))
    pods = [pod("follower", "w-1", app="f", placement=drawn), pod("hub", "w-1", app="hub")]
    plan = build_plan(inputs(nodes, pods=pods))
    assert not [found for found in plan.warnings if found.kind is WarningKind.FITS_NOWHERE]
    assert plan.waves[1].nodes[0].arrivals == 2


def test_a_budget_does_not_wait_in_vain_for_pods_that_follow_another() -> None:
    nodes = [named("w-1", "w"), named("w-2", "w")]
    drawn = Placement(attractions=(PodTerm(HOSTNAME, app("hub")),))
    pods = [pod(f"f-{i}", "w-1", app="f", placement=drawn) for i in range(2)] + [pod("hub", "w-1", app="hub")]
    guarded = inputs(nodes, pods=pods, budgets=[budget("f", allowed=1, expected=2)])
    assert not build_plan(guarded).blockers
    pinned = [*pods[:2], replace(pods[2], node_selector={HOSTNAME: "w-1"})]
    plan = build_plan(inputs(nodes, pods=pinned, budgets=[budget("f", allowed=1, expected=2)]))
    assert [found.kind for found in plan.blockers] == [BlockerKind.FITS_NOWHERE]
    assert "its pod affinity" in plan.blockers[0].message


@pytest.mark.parametrize("seed", range(4))
def test_large_waves_leave_no_pod_without_a_place_that_small_ones_do_not(seed: int) -> None:
    made = crowded(Random(seed))  # noqa: S311 - reproducible, not secret
    one_by_one = build_plan(replace(made, policy=Policy(max_unavailable=Count(1))))
    together = decide(made)
    assert any(wave.refused for wave in together.layout.waves)
    assert not homeless(build_plan(made)) - homeless(one_by_one)


def crowded(random: Random) -> PlanInputs:
    """Pools of nodes that are nearly full of pods of odd sizes, beside much free room that they cannot use."""
    nodes = [named(f"{pool}-{i}", pool, 8) for pool in "abc" for i in range(5)]
    nodes += [named(f"free-{i}", "free", 64) for i in range(5)]
    pods = [
        pooled(f"{each.name}-{i}", each.name, each.labels["pool"], random.choice((1, 2, 3)))
        for each in nodes[:15]
        for i in range(2)
    ]
    return inputs(nodes, pods=pods, policy=Policy(max_unavailable=Count(20)))


def homeless(plan: RolloutPlan) -> set[str]:
    return {found.object for found in plan.warnings if found.kind is WarningKind.FITS_NOWHERE}
