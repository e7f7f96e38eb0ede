"""Every cause that keeps two nodes out of one wave is told on request."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from rollout.model.cluster import Node, Pod, Resources
from rollout.model.placement import ANYWHERE, Placement, Toleration
from rollout.model.plan import (
    Blocker,
    BlockerKind,
    Exclusion,
    ExclusionReason,
    PlannedNode,
    PlanSummary,
    RolloutPlan,
    Wave,
)
from rollout.model.policy import ControlPlaneOrder, DrainPolicy, Policy, Selection, Strategy
from rollout.model.quantity import Count, Duration
from rollout.planning.drain.scheduler import Scheduler
from rollout.planning.plan.build import PlanInputs, build_plan, decide
from rollout.planning.plan.document import decode_plan, encode_plan
from rollout.planning.plan.explanation import Explanation, explain
from rollout.planning.plan.joining import (
    join_plans,
    with_earlier_exclusions,
    without_accepted_blockers,
)
from tests.planning.builders import IDENTITY, budget, control_plane, facts, inputs, node, pod

MANY = Count(4)
TOLERANT = Placement(tolerations=(Toleration(operator="Exists"),))


# No drain waits for another's.
IMPATIENT = Policy(MANY, drain=DrainPolicy(timeout=Duration(60)))


def zoned(name: str, zone: str) -> Node:
    return node(name, labels={"zone": zone})


def budgeted() -> PlanInputs:
    pods = [pod("web-0", "w-1"), pod("web-1", "w-2")]
    return inputs(
        [node("w-1"), node("w-2"), node("w-3")],
        pods=pods,
        budgets=[budget("web", allowed=1)],
        policy=IMPATIENT,
    )


def last_replicas() -> PlanInputs:
    pods = [pod("web-0", "w-1"), pod("web-1", "w-2")]
    return inputs([node("w-1"), node("w-2"), node("w-3")], pods=pods, policy=Policy(MANY))


def full(placement: Placement = ANYWHERE) -> PlanInputs:
    nodes = [node(f"w-{i}") for i in range(3)]
    needs = Resources(1500, 0, 1)
    pods = [
        pod(f"p-{i}", f"w-{i}", app=f"a-{i}", requests=needs, placement=placement) for i in range(3)
    ]
    return inputs(nodes, pods=pods, policy=Policy(MANY))


def limited() -> PlanInputs:
    return inputs([node(f"w-{i}") for i in range(3)], policy=Policy(Count(2)))


CAUSES = {
    "budget": (
        budgeted(),
        "w-2",
        1,
        "drains would wait too long for PDB shop/web, which allows one eviction at a time",
    ),
    "last replicas": (
        last_replicas(),
        "w-2",
        1,
        "replicaset shop/web would lose all its 2 pods at once",
    ),
    "room": (full(), "w-2", 1, "shop/p-2 will be down until the reboot is done"),
    "cordon": (
        full(TOLERANT),
        "w-2",
        1,
        (
            "together with these nodes, pod shop/p-2 tolerates the unschedulable taint and fits on"
            " no other node"
        ),
    ),
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
    "ramp": (
        inputs([node(f"w-{i}") for i in range(6)], policy=Policy(MANY, ramp=(Count(1), Count(2)))),
        "w-1",
        1,
        "another part of the rollout (step 1 of the ramp)",
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


def planned(name: str) -> PlannedNode:
    return PlannedNode(name, "", "", "", "", 0, 0)


AWAY = Blocker("", BlockerKind.NODES_UNAVAILABLE, "node/a", "is not Ready")


BUDGET = Blocker("b", BlockerKind.BUDGET_NEVER, "pdb/shop/web", "never allows an eviction")


PLAN = RolloutPlan(
    format_version="1.0",
    plan_id="fresh",
    created_at="",
    cluster=IDENTITY,
    selection=Selection(),
    policy=Policy(),
    waves=(Wave(1, (planned("b"),), "alone"), Wave(2, (planned("c"),), "alone")),
    excluded=(Exclusion("d", ExclusionReason.PAUSED, "paused"),),
    blockers=(AWAY, BUDGET),
    warnings=(),
    summary=PlanSummary(nodes=2, waves=2, waves_lower_bound=1),
)


def test_what_was_left_out_before_is_accounted_for_where_it_is_still_there() -> None:
    excluded = tuple(
        Exclusion(name, ExclusionReason.CORDONED, "cordoned") for name in ("b", "d", "e", "gone")
    )
    plan = with_earlier_exclusions(PLAN, replace(PLAN, excluded=excluded), {"b", "c", "d", "e"})
    assert plan.excluded == (
        *PLAN.excluded,
        Exclusion("e", ExclusionReason.CORDONED, "when the rollout was planned: cordoned"),
    )
    assert with_earlier_exclusions(PLAN, None, {"e"}) == PLAN


def test_blockers_beside_which_it_was_begun_are_accepted() -> None:
    before = replace(PLAN, blockers=(replace(BUDGET, message="in other words"),))
    assert without_accepted_blockers(PLAN, before).blockers == (AWAY,)
    assert without_accepted_blockers(PLAN, None).blockers == (AWAY, BUDGET)


# The soft taint as plans foresee it: where pods go, in which order nodes begin, and how often pods
# move.


WAITING = node("w-1")
DONE = node("w-2")
FULL = node("w-3", allocatable=Resources(100, 8 << 30, 110))


ASKED = Resources(1000, 1 << 30, 1)


MOVING = pod("web-0", "w-9", requests=ASKED)


def rooms(*nodes: Node, pods: Sequence[Pod] = ()) -> Scheduler:
    made = Scheduler.of(inputs([*nodes, node("w-9")], pods=[MOVING, *pods]).snapshot)
    made.set_cordoned(["w-9"])
    made.take_out(MOVING)
    return made


def test_a_node_with_it_takes_a_pod_only_where_no_other_does() -> None:
    busy = [pod(f"busy-{i}", "w-2", requests=ASKED) for i in range(3)]
    made = rooms(WAITING, DONE, pods=busy)
    assert made.choose_node(MOVING) == "w-1"
    made.taint(["w-1"])
    assert made.choose_node(MOVING) == "w-2"
    short = rooms(WAITING, FULL)
    short.taint(["w-1"])
    assert short.choose_node(MOVING) == "w-1"


def tainted_plan(*, spared: bool, strategy: Strategy = Strategy.WAVES) -> RolloutPlan:
    """Three nodes with 3, 1 and 2 pods, one at a time; a fourth has room, and no update."""
    pods = [
        pod(f"p-{on}-{i}", on, requests=ASKED)
        for on, count in (("w-1", 3), ("w-2", 1), ("w-3", 2))
        for i in range(count)
    ]
    nodes = [node(f"w-{i}", allocatable=Resources(16_000, 64 << 30, 110)) for i in range(1, 5)]
    policy = Policy(max_unavailable=Count(1), strategy=strategy, prefer_no_schedule_taint=spared)
    return build_plan(
        inputs(nodes, pods=pods, policy=policy, observations={"w-4": facts("w-4", staged=False)})
    )


@pytest.mark.parametrize("strategy", Strategy)
def test_the_nodes_of_fewest_pods_begin(strategy: Strategy) -> None:
    order = [one.name for one in tainted_plan(spared=True, strategy=strategy).nodes]
    assert order == ["w-2", "w-3", "w-1"]


@pytest.mark.parametrize("strategy", Strategy)
def test_the_summary_counts_the_pods_and_how_often_they_move(strategy: Strategy) -> None:
    spared, moved_on = (
        tainted_plan(spared=True, strategy=strategy),
        tainted_plan(spared=False, strategy=strategy),
    )
    assert spared.summary.pods_to_move == 6
    assert spared.summary.expected_evictions == 6
    assert moved_on.summary.pods_to_move == 6
    assert moved_on.summary.expected_evictions == 6 + sum(one.arrivals for one in moved_on.nodes)
    assert moved_on.summary.expected_evictions > 6
    assert decode_plan(encode_plan(moved_on), "it").summary == moved_on.summary


def test_that_nodes_under_way_are_away_blocks_nothing() -> None:
    assert join_plans("interrupted", (planned("a"),), PLAN).blockers == (BUDGET,)
