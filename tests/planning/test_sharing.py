"""Nodes whose pods share a budget share a wave: by the rate at which it lets pods go, at a price that is told."""

from dataclasses import replace
from random import Random

import pytest

from rollout.model.cluster import PersistentVolume, Pod, Resources
from rollout.model.placement import NodeTerm
from rollout.model.plan import RolloutPlan
from rollout.model.policy import DrainPolicy, Policy, Sharing
from rollout.model.quantity import Count, Duration
from rollout.model.selectors import Requirement, SelectorOperator
from rollout.planning.plan.build import PlanInputs, build_plan
from tests.planning.builders import budget, facts, inputs, node, pod
from tests.planning.test_places import HOSTNAME

SMALL = Resources(100, 64 << 20, 1)
LIMITS = (1, 2, 3, 6, 10)


def six(limit: int, sharing: Sharing = Sharing.RATE) -> PlanInputs:
    """An ordinary cluster: a Deployment with two pods a node, and a StatefulSet with one."""
    pods = [pod(f"web-{i}", f"w-{i % 6}", requests=SMALL) for i in range(12)]
    pods += [pod(f"db-{i}", f"w-{i}", app="db", owner="StatefulSet", requests=SMALL) for i in range(6)]
    budgets = [budget("web", allowed=2, expected=12), budget("db", allowed=1, expected=6)]
    nodes = [node(f"w-{i}") for i in range(6)]
    return inputs(nodes, pods=pods, budgets=budgets, policy=Policy(Count(limit), sharing=sharing))


def hundred(limit: int, sharing: Sharing = Sharing.RATE) -> PlanInputs:
    """Another: thirty Deployments with the budgets that charts bring, of which each allows one pod at a time."""
    random = Random(3)  # noqa: S311 - reproducible, not secret
    nodes = [node(f"w-{i}", allocatable=Resources(4000, 8 << 30, 30)) for i in range(100)]
    pods: list[Pod] = []
    for number in range(30):
        places = random.sample(nodes, 12 if number < 25 else 11)
        asked = Resources(500, 64 << 20, 1)
        pods += [pod(f"a{number}-{i}", at.name, app=f"a{number}", requests=asked) for i, at in enumerate(places)]
    budgets = [budget(f"a{number}", allowed=1, expected=12 if number < 25 else 11) for number in range(30)]
    return inputs(nodes, pods=pods, budgets=budgets, policy=Policy(Count(limit), sharing=sharing))


def sizes(plan: RolloutPlan) -> list[int]:
    return [len(wave.nodes) for wave in plan.waves]


def test_six_ordinary_nodes_share_waves() -> None:
    assert sizes(build_plan(six(6, Sharing.EXCLUSIVE))) == [1] * 6
    assert sizes(build_plan(six(2))) == [2, 2, 2]
    assert sizes(build_plan(six(6))) == [3, 3]


def test_a_hundred_nodes_with_chart_budgets_take_as_many_waves_as_the_limit_demands() -> None:
    plan = build_plan(hundred(10))
    assert sizes(plan) == [10] * 10
    assert plan.summary.waves_lower_bound == 10
    assert len(build_plan(hundred(10, Sharing.EXCLUSIVE)).waves) > 10


@pytest.mark.parametrize("cluster", [six, hundred])
def test_a_higher_limit_is_never_slower_and_sharing_never_slower_than_not(cluster: object) -> None:
    seconds = {
        sharing: [build_plan(cluster(limit, sharing)).estimate.seconds for limit in LIMITS]  # type: ignore[operator]
        for sharing in Sharing
    }
    assert seconds[Sharing.RATE] == sorted(seconds[Sharing.RATE], reverse=True)
    assert seconds[Sharing.RATE][-1] < seconds[Sharing.EXCLUSIVE][-1]


def test_the_price_is_told() -> None:
    """One pod at a time: the second node waits until the first one's replacement is ready, 35 s + 30 s."""
    pods = [pod(f"web-{i}", f"w-{i}", requests=SMALL) for i in range(2)]
    nodes, idle = [node(f"w-{i}") for i in range(3)], {"w-2": facts("w-2", staged=False)}
    guard, policy = budget("web", allowed=1), Policy(Count(2))
    (shared,) = build_plan(inputs(nodes, pods=pods, budgets=[guard], observations=idle, policy=policy)).waves
    assert "; shares shop/web, one pod at a time: +1m5s" in shared.because
    assert shared.note == "waits for budget shop/web, +1m5s"
    assert shared.estimate.drain == 100


def local(name: str, on: str) -> Pod:
    return pod(name, on, app="db", owner="StatefulSet", claims=(name,))


def volume(name: str, on: str) -> PersistentVolume:
    term = NodeTerm((Requirement(HOSTNAME, SelectorOperator.IN, (on,)),), ())
    return PersistentVolume(name, f"shop/{name}", (term,))


def with_volumes(pinned: int, free: int, *, allowed: int) -> PlanInputs:
    """Nodes with a pod each of one budget: first those whose volumes are local, then those that find other places."""
    count = pinned + free
    nodes = [node(f"w-{i}", labels={HOSTNAME: f"w-{i}"}) for i in range(count + 2)]
    pods = [local(f"db-{i}", f"w-{i}") for i in range(count)]
    given = inputs(nodes, pods=pods, budgets=[budget("db", allowed=allowed)], policy=Policy(Count(count + 2)))
    volumes = tuple(volume(f"db-{i}", f"w-{i}") for i in range(pinned))
    return replace(given, snapshot=replace(given.snapshot, volumes=volumes))


def together(plan: RolloutPlan) -> list[set[str]]:
    return [{planned.name for planned in wave.nodes} for wave in plan.waves]


@pytest.mark.parametrize("allowed", [1, 2])
def test_what_comes_back_only_with_its_node_never_exceeds_the_budget(allowed: int) -> None:
    plan = build_plan(with_volumes(4, 0, allowed=allowed))
    away = [len(wave & {f"w-{i}" for i in range(4)}) for wave in together(plan)]
    assert max(away) == allowed
    assert plan.summary.waves_lower_bound == 4 // allowed


def test_what_nothing_replaces_never_gives_its_permit_back() -> None:
    nodes = [node(f"w-{i}") for i in range(4)]
    pods = [pod(f"db-{i}", f"w-{i}", app="db", owner="") for i in range(3)]
    guard = budget("db", allowed=1, expected=3, max_unavailable="", min_available="2")
    policy = Policy(Count(3), drain=DrainPolicy(force=True))
    assert (
        max(
            len(wave - {"w-3"})
            for wave in together(build_plan(inputs(nodes, pods=pods, budgets=[guard], policy=policy)))
        )
        == 1
    )


@pytest.mark.parametrize(("timeout", "most"), [(100, 1), (201, 2), (331, 3)])
def test_no_drain_waits_longer_than_half_of_its_timeout(timeout: int, most: int) -> None:
    """35 s for the first pod, 65 s more for each that follows."""
    pods = [pod(f"web-{i}", f"w-{i}", requests=SMALL) for i in range(6)]
    nodes = [node(f"w-{i}") for i in range(9)]
    policy = Policy(Count(6), drain=DrainPolicy(timeout=Duration(timeout)))
    waves = together(build_plan(inputs(nodes, pods=pods, budgets=[budget("web", allowed=1)], policy=policy)))
    assert max(len(wave & {f"w-{i}" for i in range(6)}) for wave in waves) == most
