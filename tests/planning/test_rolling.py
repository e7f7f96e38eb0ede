"""Rolling plans: parts in place of waves, and what each node holds while it is away."""

from itertools import combinations
from random import Random

import pytest
from msgspec.structs import replace

from rollout.errors import PlanFileError
from rollout.model.cluster import PersistentVolume, Pod, Resources
from rollout.model.placement import NodeTerm
from rollout.model.plan import BlockerKind, Rolling, RolloutPlan
from rollout.model.policy import Critical, DrainPolicy, Policy, Pool, Strategy
from rollout.model.quantity import Count, Duration
from rollout.model.selectors import Requirement, SelectorOperator
from rollout.planning.plan.build import PlanInputs, build_plan
from rollout.planning.plan.document import decode_plan, encode_plan, with_id
from tests.planning.builders import (
    HOSTNAME,
    budget,
    control_plane,
    facts,
    inputs,
    may_begin,
    node,
    pod,
    waves,
)
from tests.planning.test_places import small_pool

ROLLING = Policy(max_unavailable=Count(3), strategy=Strategy.ROLLING)
# No drain waits for another's.
IMPATIENT = DrainPolicy(timeout=Duration(60))


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
    assert rules(plan).in_flight == 3
    assert begins == sorted(begins)
    assert len(begins) == 7
    assert begins.count(0) == 3
    assert rules(plan).holds == {}
    assert rules(plan).capacity == {}
    assert wave.estimate.seconds == plan.estimate.seconds


def test_canary_zones_and_control_plane_are_parts_of_their_own() -> None:
    nodes = [node(f"w-{number}", labels={"zone": "ab"[number % 2]}) for number in range(5)] + [
        control_plane("cp-1"),
        control_plane("cp-2"),
    ]
    policy = replace(ROLLING, canary=1, spread_by="zone")
    plan = planned(inputs(nodes), policy)
    sizes = [
        (len(wave.nodes), wave.rolling.in_flight if wave.rolling else 0) for wave in plan.waves
    ]
    assert sizes == [(1, 1), (2, 2), (2, 2), (2, 1)]
    begins = [min(wave.rolling.begins.values()) for wave in plan.waves if wave.rolling]
    assert begins == sorted(set(begins))


def test_a_part_begins_after_the_waves_before_it_however_large_the_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rollout.planning.play.simulation._MOST_PLAYED", -1)
    nodes = [node(f"w-{number}", labels={"pool": "ab"[number % 2]}) for number in range(4)]
    pools = (Pool("a", "pool=a"), Pool("b", "pool=b", after=("a",), strategy=Strategy.ROLLING))
    first, *_, last = planned(inputs(nodes), Policy(max_unavailable=Count(2), pools=pools)).waves
    assert last.rolling is not None
    assert set(last.rolling.begins.values()) == {first.estimate.seconds} != {0}


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
    plan = planned(shared(), replace(ROLLING, drain=IMPATIENT))
    assert decode_plan(encode_plan(plan), "it") == plan
    given = rules(plan)
    for wrong in (
        replace(given, in_flight=0),
        replace(given, holds={"w-9": {"shop/db": 1}}),
        replace(given, holds={"w-0": {"shop/db": -1}}),
        replace(given, capacity={}),
    ):
        forged = with_id(replace(plan, waves=(replace(plan.waves[0], rolling=wrong),)))
        with pytest.raises(PlanFileError, match=r"is not a (plan made by rollout|complete plan)"):
            decode_plan(encode_plan(forged), "it")


# Nodes whose pods share a budget share a wave: by the rate at which it lets pods go, at a price
# that is told.


SMALL = Resources(100, 64 << 20, 1)


LIMITS = (1, 2, 3, 6, 10)


def six(limit: int) -> PlanInputs:
    """An ordinary cluster: a Deployment with two pods a node, and a StatefulSet with one."""
    pods = [pod(f"web-{i}", f"w-{i % 6}", requests=SMALL) for i in range(12)]
    pods += [
        pod(f"db-{i}", f"w-{i}", app="db", owner="StatefulSet", requests=SMALL) for i in range(6)
    ]
    budgets = [budget("web", allowed=2, expected=12), budget("db", allowed=1, expected=6)]
    nodes = [node(f"w-{i}") for i in range(6)]
    return inputs(nodes, pods=pods, budgets=budgets, policy=Policy(Count(limit)))


def hundred(limit: int) -> PlanInputs:
    """Another: thirty Deployments with the budgets that charts bring, of which each allows one pod
    at a time.
    """
    random = Random(3)  # noqa: S311 - reproducible, not secret
    nodes = [node(f"w-{i}", allocatable=Resources(4000, 8 << 30, 30)) for i in range(100)]
    pods: list[Pod] = []
    for number in range(30):
        places = random.sample(nodes, 12 if number < 25 else 11)
        asked = Resources(500, 64 << 20, 1)
        pods += [
            pod(f"a{number}-{i}", at.name, app=f"a{number}", requests=asked)
            for i, at in enumerate(places)
        ]
    budgets = [
        budget(f"a{number}", allowed=1, expected=12 if number < 25 else 11) for number in range(30)
    ]
    return inputs(nodes, pods=pods, budgets=budgets, policy=Policy(Count(limit)))


def test_six_ordinary_nodes_share_waves() -> None:
    assert [len(wave) for wave in waves(build_plan(six(2)))] == [2, 2, 2]
    assert [len(wave) for wave in waves(build_plan(six(6)))] == [3, 3]


def test_a_hundred_nodes_with_chart_budgets_take_as_many_waves_as_the_limit_demands() -> None:
    plan = build_plan(hundred(10))
    assert [len(wave) for wave in waves(plan)] == [10] * 10
    assert plan.summary.waves_lower_bound == 10


@pytest.mark.parametrize("cluster", [six, hundred])
def test_a_higher_limit_is_never_slower(cluster: object) -> None:
    seconds = [build_plan(cluster(limit)).estimate.seconds for limit in LIMITS]  # type: ignore[operator]
    assert seconds == sorted(seconds, reverse=True)


def test_the_price_is_told() -> None:
    """One pod at a time: the second node waits until the first one's replacement is ready, 30 s
    after its eviction.
    """
    pods = [pod(f"web-{i}", f"w-{i}", requests=SMALL) for i in range(2)]
    nodes = [node(f"w-{i}") for i in range(3)]
    idle = {"w-2": facts("w-2", staged=False)}
    guard = budget("web", allowed=1)
    policy = Policy(Count(2))
    (shared,) = build_plan(
        inputs(nodes, pods=pods, budgets=[guard], observations=idle, policy=policy)
    ).waves
    assert "; waits for PDB shop/web, one eviction at a time: +30s" in shared.because
    assert shared.note == "waits for PDB shop/web, +30s"
    assert shared.estimate.drain == 30 + 35
    slow = pod("batch", "w-0", app="batch", requests=SMALL, grace_period=300)
    (free,) = build_plan(
        inputs(nodes, pods=[*pods, slow], budgets=[guard], observations=idle, policy=policy)
    ).waves
    assert free.note == ""
    rule = DrainPolicy(critical=(Critical("shop", "app=web", 1),))
    own = replace(policy, drain=rule)
    (shared,) = build_plan(inputs(nodes, pods=pods, observations=idle, policy=own)).waves
    assert "; waits for critical/shop/app=web, one eviction at a time: +30s" in shared.because


@pytest.mark.parametrize("least", [(1, 2), (2, 1)])
def test_of_two_rules_for_the_same_critical_pods_the_stricter_holds(least: tuple[int, int]) -> None:
    pods = [pod(f"web-{i}", "w-1", requests=SMALL) for i in range(2)]
    rules = tuple(Critical("shop", "app=web", number) for number in least)
    plan = build_plan(
        inputs(
            [node("w-1"), node("w-2")], pods=pods, policy=Policy(drain=DrainPolicy(critical=rules))
        )
    )
    assert [(found.node, found.kind) for found in plan.blockers] == [
        ("w-1", BlockerKind.BUDGET_NEVER)
    ]


def local(name: str, on: str) -> Pod:
    return pod(name, on, app="db", owner="StatefulSet", claims=(name,))


def volume(name: str, on: str) -> PersistentVolume:
    term = NodeTerm((Requirement(HOSTNAME, SelectorOperator.IN, (on,)),), ())
    return PersistentVolume(name, f"shop/{name}", (term,))


def with_volumes(pinned: int, free: int, *, allowed: int) -> PlanInputs:
    """Nodes with a pod each of one budget: first those whose volumes are local, then those that
    find other places.
    """
    count = pinned + free
    nodes = [node(f"w-{i}", labels={HOSTNAME: f"w-{i}"}) for i in range(count + 2)]
    pods = [local(f"db-{i}", f"w-{i}") for i in range(count)]
    given = inputs(
        nodes, pods=pods, budgets=[budget("db", allowed=allowed)], policy=Policy(Count(count + 2))
    )
    volumes = tuple(volume(f"db-{i}", f"w-{i}") for i in range(pinned))
    return replace(given, snapshot=replace(given.snapshot, volumes=volumes))


@pytest.mark.parametrize("allowed", [1, 2])
def test_what_comes_back_only_with_its_node_never_exceeds_the_budget(allowed: int) -> None:
    plan = build_plan(with_volumes(4, 0, allowed=allowed))
    away = [len(wave & {f"w-{i}" for i in range(4)}) for wave in map(set, waves(plan))]
    assert max(away) == allowed
    assert plan.summary.waves_lower_bound == 4 // allowed


def test_what_nothing_replaces_never_gives_its_permit_back() -> None:
    nodes = [node(f"w-{i}") for i in range(4)]
    pods = [pod(f"db-{i}", f"w-{i}", app="db", owner="") for i in range(3)]
    guard = budget("db", allowed=1, expected=3, max_unavailable="", min_available="2")
    policy = Policy(Count(3), drain=DrainPolicy(force=True))
    plan = build_plan(inputs(nodes, pods=pods, budgets=[guard], policy=policy))
    assert max(len({*wave} - {"w-3"}) for wave in waves(plan)) == 1


@pytest.mark.parametrize(("timeout", "most"), [(100, 1), (150, 2), (201, 3)])
def test_no_drain_waits_longer_than_half_of_its_timeout(timeout: int, most: int) -> None:
    """35 s for the first pod, 30 s more for each that follows."""
    pods = [pod(f"web-{i}", f"w-{i}", requests=SMALL) for i in range(6)]
    nodes = [node(f"w-{i}") for i in range(9)]
    policy = Policy(Count(6), drain=DrainPolicy(timeout=Duration(timeout)))
    plan = build_plan(inputs(nodes, pods=pods, budgets=[budget("web", allowed=1)], policy=policy))
    assert max(len({*wave} & {f"w-{i}" for i in range(6)}) for wave in waves(plan)) == most


def test_those_that_share_a_budget_that_allows_one_may_not_be_away_together() -> None:
    given = rules(planned(shared(), replace(ROLLING, drain=IMPATIENT)))
    assert not may_begin(given, ("w-0",), "w-2")
    assert may_begin(given, ("w-0",), "w-1")
    assert may_begin(given, (), "w-0")
    assert not may_begin(given, ("w-1", "w-3", "w-5"), "w-0")
