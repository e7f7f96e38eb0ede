"""The soft taint as plans foresee it: where pods go, in which order nodes begin, and how often pods move."""

from collections.abc import Sequence

import pytest

from rollout.model.cluster import Node, Pod, Resources
from rollout.model.plan import RolloutPlan
from rollout.model.policy import Policy, Strategy
from rollout.model.quantity import Count
from rollout.planning.drain.scheduler import Scheduler
from rollout.planning.plan.build import build_plan
from rollout.planning.plan.document import decode_plan, encode_plan
from tests.planning.builders import facts, inputs, node, pod

WAITING, DONE, FULL = node("w-1"), node("w-2"), node("w-3", allocatable=Resources(100, 8 << 30, 110))
ASKED = Resources(1000, 1 << 30, 1)
MOVING = pod("web-0", "w-9", requests=ASKED)


def rooms(*nodes: Node, pods: Sequence[Pod] = ()) -> Scheduler:
    made = Scheduler.of(inputs([*nodes, node("w-9")], pods=[MOVING, *pods]).snapshot)
    made.close(["w-9"])
    made.take_out(MOVING)
    return made


def test_a_node_with_it_takes_a_pod_only_where_no_other_does() -> None:
    busy = [pod(f"busy-{i}", "w-2", requests=ASKED) for i in range(3)]
    made = rooms(WAITING, DONE, pods=busy)
    assert made.place(MOVING) == "w-1"
    made.taint(["w-1"])
    assert made.place(MOVING) == "w-2"
    short = rooms(WAITING, FULL)
    short.taint(["w-1"])
    assert short.place(MOVING) == "w-1"


def test_a_node_that_loses_it_takes_pods_like_any_other_again() -> None:
    made = rooms(WAITING, DONE, pods=[pod("busy", "w-2", requests=ASKED)])
    made.taint(["w-1", "w-2"])
    assert made.place(MOVING) == "w-1"
    made.untaint(["w-2"])
    assert made.place(MOVING) == "w-2"
    made.untaint(["w-1"])
    assert made.place(MOVING) == "w-1"


def planned(*, spared: bool, strategy: Strategy = Strategy.WAVES) -> RolloutPlan:
    """Three nodes with 3, 1 and 2 pods, one at a time; a fourth has room, and no update."""
    pods = [
        pod(f"p-{on}-{i}", on, requests=ASKED)
        for on, count in (("w-1", 3), ("w-2", 1), ("w-3", 2))
        for i in range(count)
    ]
    nodes = [node(f"w-{i}", allocatable=Resources(16_000, 64 << 30, 110)) for i in range(1, 5)]
    policy = Policy(max_unavailable=Count(1), strategy=strategy, prefer_no_schedule_taint=spared)
    return build_plan(inputs(nodes, pods=pods, policy=policy, observations={"w-4": facts("w-4", staged=False)}))


@pytest.mark.parametrize("strategy", Strategy)
def test_the_nodes_of_fewest_pods_begin(strategy: Strategy) -> None:
    order = [one.name for one in planned(spared=True, strategy=strategy).nodes]
    assert order == ["w-2", "w-3", "w-1"]


@pytest.mark.parametrize("strategy", Strategy)
def test_the_summary_counts_the_pods_and_how_often_they_move(strategy: Strategy) -> None:
    spared, moved_on = planned(spared=True, strategy=strategy), planned(spared=False, strategy=strategy)
    assert (spared.summary.pods_to_move, spared.summary.expected_evictions) == (6, 6)
    assert moved_on.summary.pods_to_move == 6
    assert moved_on.summary.expected_evictions == 6 + sum(one.arrivals for one in moved_on.nodes)
    assert moved_on.summary.expected_evictions > 6
    assert decode_plan(encode_plan(moved_on), "it").summary == moved_on.summary
