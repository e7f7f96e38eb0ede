"""What counts against --max-unavailable, and what a plan says of it."""

from dataclasses import replace

import pytest

from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.plan import BlockerKind
from rollout.model.policy import Policy
from rollout.model.quantity import Count
from rollout.planning.eligibility.away import AwayLimit, is_away
from rollout.planning.plan.build import build_plan
from tests.planning.builders import inputs, node

RESULT = '{"outcome":"rolled-back","run":"abc"}'


def marked(phase: str, *, cordoned: bool = True) -> Node:
    """A node that a rollout has begun."""
    annotations = {marks.RUN: "abc", marks.PHASE: phase, marks.BOOT_ID_BEFORE: "b", marks.CORDONED_BY_US: "true"}
    return node("w-9", annotations=annotations, unschedulable=cordoned)


@pytest.mark.parametrize("phase", ["pending", "cordoned", "drained", "ready", "failed", "of a newer version"])
def test_whatever_bears_a_mark_and_is_not_given_back_is_away(phase: str) -> None:
    assert is_away(marked(phase))


def test_what_was_given_back_or_is_anothers_cordon_is_not() -> None:
    assert not is_away(marked("failed", cordoned=False))
    assert not is_away(node("w-9", annotations={marks.LAST_RESULT: RESULT}))
    assert not is_away(node("w-9", unschedulable=True))
    assert is_away(node("w-9", ready=False))


def test_a_plan_whose_limit_is_used_up_by_a_failed_node_names_it_and_the_way_out() -> None:
    given = inputs([node("w-1"), node("w-2"), marked("failed")])
    (blocker,) = build_plan(given).blockers
    assert (blocker.node, blocker.kind) == ("w-9", BlockerKind.NODES_UNAVAILABLE)
    assert blocker.message == (
        "failed in the rollout abc and is still cordoned, and uses up --max-unavailable 1: "
        "`rollout abort` gives it back, or raise the limit"
    )


def test_a_failed_node_makes_waves_smaller_but_for_a_plan_that_takes_it() -> None:
    two = Policy(max_unavailable=Count(2))
    given = inputs([node("w-1"), node("w-2"), marked("failed")], policy=two)
    assert [len(wave.nodes) for wave in build_plan(given).waves] == [1, 1]
    taking = replace(given, policy=replace(two, include_cordoned=True))
    assert [len(wave.nodes) for wave in build_plan(taking).waves] == [2, 1]
    under_way = replace(given, begun=frozenset({"w-9"}))
    assert [len(wave.nodes) for wave in build_plan(under_way).waves] == [2]


def test_a_node_that_is_away_itself_has_room_beside_itself() -> None:
    assert not AwayLimit(1).why_full("w-9", {"w-9"})
    assert AwayLimit(1).why_full("w-1", {"w-9"}) == "--max-unavailable 1 is used up by w-9"
