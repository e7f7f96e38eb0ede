"""Rolling plans: parts in place of waves, and what each node holds while it is away."""

from dataclasses import replace
from itertools import combinations

import pytest

from rollout.errors import PlanFileError
from rollout.model.plan import Rolling, RolloutPlan
from rollout.model.policy import Policy, Sharing, Strategy
from rollout.model.quantity import Count
from rollout.planning.plan.build import PlanInputs, build_plan
from rollout.planning.plan.document import decode_plan, encode_plan, sealed
from tests.planning.builders import budget, control_plane, inputs, may_begin, node, pod
from tests.planning.test_playing import small_pool

ROLLING = Policy(max_unavailable=Count(3), strategy=Strategy.ROLLING)


def planned(given: PlanInputs, policy: Policy = ROLLING) -> RolloutPlan:
    return build_plan(replace(given, policy=policy))


def rules(plan: RolloutPlan) -> Rolling:
    found = plan.waves[0].rolling
    assert found is not None
    return found


def shared(count: int = 6) -> PlanInputs:
    """Every second node has a pod of a budget that allows one."""
    nodes = [node(f"w-{number}") for number in range(count)]
    pods = [pod(f"db-{number}", f"w-{number}", app="db") for number in range(0, count, 2)]
    return inputs(nodes, pods=pods, budgets=[budget("db", allowed=1)])


def test_a_part_is_one_wave_and_its_nodes_stand_in_the_order_in_which_they_begin() -> None:
    plan = planned(inputs([node(f"w-{number}") for number in range(7)]))
    (wave,) = plan.waves
    begins = [rules(plan).begins[one.name] for one in wave.nodes]
    assert (rules(plan).in_flight, begins, len(begins)) == (3, sorted(begins), 7)
    assert begins.count(0) == 3
    assert (rules(plan).holds, rules(plan).capacity) == ({}, {})
    assert wave.estimate.seconds == plan.estimate.seconds


def test_canary_zones_and_control_plane_are_parts_of_their_own() -> None:
    nodes = [node(f"w-{number}", labels={"zone": "ab"[number % 2]}) for number in range(5)] + [
        control_plane("cp-1"),
        control_plane("cp-2"),
    ]
    policy = replace(ROLLING, canary=1, spread_by="zone")
    plan = planned(inputs(nodes), policy)
    sizes = [(len(wave.nodes), wave.rolling.in_flight if wave.rolling else 0) for wave in plan.waves]
    assert sizes == [(1, 1), (2, 2), (2, 2), (2, 1)]
    begins = [min(wave.rolling.begins.values()) for wave in plan.waves if wave.rolling]
    assert begins == sorted(set(begins))


def test_those_that_share_a_budget_by_rate_begin_together_however_waves_would_be_packed() -> None:
    for limit in (2, 3):
        plan = planned(shared(), replace(ROLLING, max_unavailable=Count(limit)))
        begins = sorted(rules(plan).begins.values())
        assert begins.count(0) == limit
        assert may_begin(rules(plan), ("w-0",), "w-2")


@pytest.mark.parametrize("limit", [2, 3, 9])
def test_whichever_may_be_away_together_the_pods_of_a_small_pool_find_places(limit: int) -> None:
    """Waves of two would not have shown it: no two of the pool stand in the same one."""
    plan = planned(small_pool(), replace(ROLLING, max_unavailable=Count(limit)))
    given = rules(plan)
    for one, other in combinations(("p-0", "p-1", "p-2"), 2):
        assert not may_begin(given, (one,), other)
    assert may_begin(given, ("w-1",), "p-0")


def test_a_saved_plan_keeps_them_and_one_that_no_rollout_makes_is_refused() -> None:
    plan = planned(shared(), replace(ROLLING, sharing=Sharing.EXCLUSIVE))
    assert decode_plan(encode_plan(plan), "it") == plan
    given = rules(plan)
    for wrong in (
        replace(given, in_flight=0),
        replace(given, holds={"w-9": {"shop/db": 1}}),
        replace(given, holds={"w-0": {"shop/db": -1}}),
        replace(given, capacity={}),
    ):
        forged = sealed(replace(plan, waves=(replace(plan.waves[0], rolling=wrong),)))
        with pytest.raises(PlanFileError, match="is not a plan made by rollout"):
            decode_plan(encode_plan(forged), "it")
