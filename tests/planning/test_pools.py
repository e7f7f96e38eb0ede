"""Pools: whose rules hold for which node, in which order, and never above the rollout's own limit."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rollout.errors import PlanFileError, UsageError
from rollout.model.cluster import Node
from rollout.model.finding import UnavailableLimit
from rollout.model.plan import RolloutPlan
from rollout.model.policy import Policy, Pool, Strategy
from rollout.model.quantity import Count, Duration
from rollout.planning.eligibility.away import AwayLimit
from rollout.planning.eligibility.candidates import requested_nodes
from rollout.planning.eligibility.pools import DEFAULT, order_pools, pools_of, predecessors
from rollout.planning.plan.build import PlanInputs, build_plan
from rollout.planning.plan.document import decode_plan, encode_plan, with_id
from rollout.planning.plan.staleness import find_differences
from tests.planning.builders import control_plane, inputs, node, waves

CANARY = Pool("canary", "tier=canary", max_unavailable=Count(1), drain_timeout=Duration(60))
WEB = Pool(
    "web", "tier=web", after=("canary",), max_unavailable=Count(2), reboot_timeout=Duration(120)
)


def of_tier(tier: str, *numbers: int) -> list[Node]:
    return [
        node(f"{tier}-{number}", labels={"tier": tier, "zone": "ab"[number % 2]})
        for number in numbers
    ]


def planned(nodes: list[Node], *pools: Pool, limit: int = 3, **rules: object) -> RolloutPlan:
    policy = Policy(max_unavailable=Count(limit), pools=pools, **rules)  # type: ignore[arg-type]
    return build_plan(inputs(nodes, policy=policy))


def test_the_first_pool_that_matches_has_the_node_and_default_the_others() -> None:
    every = Pool("every", "tier")
    pools = pools_of(Policy(pools=(CANARY, every)))
    assert [pools.pool_of(labels) for labels in ({"tier": "canary"}, {"tier": "x"}, {})] == [
        "canary",
        "every",
        DEFAULT,
    ]
    assert pools_of(Policy()).pool_of({"tier": "canary"}) == ""


def test_a_pool_has_the_rollouts_rules_but_for_its_own() -> None:
    rules = Policy(pools=(CANARY, WEB), ready_timeout=Duration(7), include_cordoned=True)
    canary, web, rest = (pools_of(rules).rules(name) for name in ("canary", "web", DEFAULT))
    assert canary.drain.timeout == Duration(60)
    assert web.drain.timeout == rules.drain.timeout
    assert canary.reboot_timeout == rules.reboot_timeout
    assert web.reboot_timeout == Duration(120)
    assert {canary.ready_timeout, web.ready_timeout} == {Duration(7)}
    assert canary.include_cordoned
    assert rest is rules


def test_pools_come_after_those_that_they_wait_for_and_default_last() -> None:
    last = Pool("last", "a", after=("mid",))
    first = Pool("first", "b")
    assert order_pools((last, Pool("mid", "c", after=("first",)), first)) == (
        "first",
        "mid",
        "last",
        DEFAULT,
    )
    assert predecessors((last, Pool("mid", "c", after=("first",)), first))["last"] == {
        "first",
        "mid",
    }


@pytest.mark.parametrize(
    ("pools", "says"),
    [
        (
            (Pool("a", "x", after=("b",)), Pool("b", "y", after=("a",))),
            "pool 'a': after: 'a', 'b' wait for one another",
        ),
        ((Pool("a", "x", after=("a",)),), "pool 'a': after: 'a' wait for one another"),
        ((Pool("a", "x", after=("none",)),), "pool 'a': after: there is no pool 'none'"),
        ((Pool("a", "x"), Pool("a", "y")), "pool 'a': 2 pools have this name"),
        ((Pool(DEFAULT, "x"),), "pool 'default': that name is for the nodes that no pool matches"),
    ],
)
def test_pools_that_have_no_order_are_refused(pools: tuple[Pool, ...], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        order_pools(pools)


def test_one_after_another_each_with_its_own_limit() -> None:
    nodes = [*of_tier("web", 1, 2, 3), *of_tier("other", 1, 2, 3, 4), *of_tier("canary", 1, 2)]
    plan = planned(nodes, CANARY, WEB)
    assert waves(plan) == [
        ["canary-1"],
        ["canary-2"],
        ["web-1", "web-2"],
        ["web-3"],
        ["other-1", "other-2", "other-3"],
        ["other-4"],
    ]
    assert [node.pool for node in plan.nodes] == ["canary"] * 2 + ["web"] * 3 + [DEFAULT] * 4
    assert plan.waves[2].because.startswith("pool web: ")
    assert plan.summary.waves_lower_bound == 6


def test_a_pools_node_that_is_away_uses_up_its_limit() -> None:
    away = replace(node("web-9", ready=False), labels={"tier": "web"})
    plan = planned([*of_tier("canary", 1), *of_tier("web", 1, 2, 3), away], CANARY, WEB, limit=9)
    assert waves(plan) == [["canary-1"], ["web-1"], ["web-2"], ["web-3"]]
    assert plan.excluded[0].pool == "web"
    assert not plan.blockers
    more = replace(away, name="web-8", uid="uid-web-8")
    plan = planned([*of_tier("web", 1), away, more], CANARY, WEB, limit=9)
    assert {blocker.node for blocker in plan.blockers} == {"web-8", "web-9"}
    assert "max-unavailable 2 of the pool web" in plan.blockers[0].message


@pytest.mark.parametrize(
    ("pools", "says"),
    [
        ((WEB,), "there is no pool 'canary'"),
        ((CANARY,), "web-1 is in the pool 'web', which has no settings"),
        ((), "w-1 is in the pool 'default', which has no settings"),
        ((replace(CANARY, selector="=="), WEB), "is not a label selector"),
    ],
)
def test_a_document_whose_pools_make_no_sense_is_refused(
    pools: tuple[Pool, ...], says: str
) -> None:
    plan = planned(
        [*of_tier("canary", 1), *of_tier("web", 1)] if pools else [node("w-1")], CANARY, WEB
    )
    forged = with_id(replace(plan, policy=replace(plan.policy, pools=pools)))
    with pytest.raises(PlanFileError, match=says):
        decode_plan(encode_plan(forged), "it")


def test_a_plan_is_stale_once_a_node_has_changed_its_pool() -> None:
    nodes = [*of_tier("canary", 1), *of_tier("web", 1)]
    drawn = inputs(nodes, policy=Policy(pools=(CANARY, WEB)))
    moved = [nodes[0], replace(nodes[1], labels={"tier": "canary"})]
    assert find_differences(build_plan(drawn), drawn) == ()
    assert tuple(map(str, find_differences(build_plan(drawn), inputs(moved)))) == (
        "web-1: it was in the pool web, but is in canary now",
    )


def test_while_it_runs_a_pools_limit_counts_its_own_nodes_whoever_took_them_away() -> None:
    nodes = [*of_tier("canary", 1), *of_tier("web", 1, 2, 3)]
    plan = planned(nodes[:-1], CANARY, WEB)
    rooms = AwayLimit.of(
        replace(plan.policy, max_unavailable=Count(9)),
        len(nodes),
        requested_nodes(plan),
        nodes,
    )
    assert not rooms.why_full("web-1", {"canary-1", "web-3", "stranger"})
    full = UnavailableLimit(2, ("web-2", "web-3"), "web")
    assert rooms.why_full("web-1", {"web-2", "web-3"}) == full
    assert not rooms.why_full("other", {"web-2", "web-3"})


@st.composite
def pooled(draw: st.DrawFn) -> PlanInputs:
    tiers = "abcd"
    names = draw(st.permutations(tiers))[: draw(st.integers(0, 4))]
    pools = [
        Pool(
            name,
            f"tier={name}",
            after=tuple(other for other in names[:place] if draw(st.booleans())),
            max_unavailable=draw(
                st.sampled_from([None, Count(1), Count(2), Count(50, percent=True)])
            ),
            strategy=draw(st.sampled_from([None, Strategy.ROLLING])),
            canary=draw(st.sampled_from([None, 1])),
        )
        for place, name in enumerate(names)
    ]
    nodes = [
        node(f"w-{number}", labels={"tier": draw(st.sampled_from(tiers))})
        for number in range(draw(st.integers(1, 16)))
    ]
    nodes += [control_plane(f"cp-{number}") for number in range(draw(st.integers(0, 2)))]
    return inputs(
        nodes, policy=Policy(max_unavailable=Count(draw(st.integers(1, 4))), pools=tuple(pools))
    )


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(pooled())
def test_every_node_once_in_the_pools_order_under_all_limits(drawn: PlanInputs) -> None:
    plan = build_plan(drawn)
    policy = drawn.policy
    assert sorted(member.name for member in plan.nodes) == sorted(drawn.selected)
    assert plan.summary.waves_lower_bound <= len(plan.waves)
    assert decode_plan(encode_plan(plan), "it") == plan
    members = Counter(member.pool for member in plan.nodes)
    for wave in plan.waves:
        together = Counter(member.pool for member in wave.nodes)
        most = wave.rolling.in_flight if wave.rolling else len(wave.nodes)
        assert most <= policy.max_unavailable.of(len(drawn.selected))
        for pool in policy.pools:
            if pool.max_unavailable and not wave.rolling:
                assert together[pool.name] <= pool.max_unavailable.of(members[pool.name])
    if policy.pools:
        assert_in_order(plan)


def assert_in_order(plan: RolloutPlan) -> None:
    """No wave takes a node of a pool before all that it waits for are done, nor beside them."""
    places = {
        pool: [
            wave.index for wave in plan.waves if any(member.pool == pool for member in wave.nodes)
        ]
        for pool in {member.pool for member in plan.nodes}
    }
    for pool, earlier in predecessors(plan.policy.pools).items():
        for other in earlier & places.keys():
            assert pool not in places or max(places[other]) < min(places[pool])
    assert all(before.index < after.index for before, after in pairwise(plan.waves))
