"""What a new plan of the nodes that were never begun takes over from the interrupted one."""

from dataclasses import replace

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
from rollout.model.policy import Policy, Selection
from rollout.planning.plan.continuation import joined, with_earlier_exclusions, without_accepted_blockers
from tests.planning.builders import IDENTITY


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


def test_nodes_under_way_are_the_first_wave_of_the_interrupted_run() -> None:
    plan = joined("interrupted", (planned("a"),), PLAN)
    assert plan.plan_id == "interrupted"
    assert [(wave.index, [node.name for node in wave.nodes]) for wave in plan.waves] == [
        (1, ["a"]),
        (2, ["b"]),
        (3, ["c"]),
    ]
    assert plan.waves[0].because == "begun before the interruption"
    assert plan.summary == PlanSummary(nodes=3, waves=3, waves_lower_bound=2)


def test_that_nodes_under_way_are_away_blocks_nothing() -> None:
    assert joined("interrupted", (planned("a"),), PLAN).blockers == (BUDGET,)


def test_without_nodes_under_way_only_the_id_is_taken_over() -> None:
    assert joined("interrupted", (), PLAN) == replace(PLAN, plan_id="interrupted")


def test_what_was_left_out_before_is_accounted_for_where_it_is_still_there() -> None:
    excluded = tuple(Exclusion(name, ExclusionReason.CORDONED, "cordoned") for name in ("b", "d", "e", "gone"))
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
