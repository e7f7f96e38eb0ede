"""How long a plan says that it takes, and what it says that this is reckoned from."""

from dataclasses import replace

import pytest

from rollout.model.gates import GatePolicy
from rollout.model.plan import RolloutPlan
from rollout.model.policy import Policy, Strategy
from rollout.model.quantity import Count, Duration
from rollout.planning.plan.build import build_plan
from rollout.planning.play.pace import Past
from tests.planning.builders import inputs, node, pod

NODES = [node("w-1"), node("w-2")]
PODS = [pod("web-0", "w-1", grace_period=60)]
PAST = Past(drains=(10, 20, 30), reboots=(80, 90, 100, 110), settles=(5, 7, 9))


def planned(past: Past, policy: Policy | None = None, pods: object = PODS) -> RolloutPlan:
    return build_plan(replace(inputs(NODES, pods=pods, policy=policy), past=past))  # type: ignore[arg-type]


def test_journals_go_before_assumptions() -> None:
    plan = planned(PAST)
    first = plan.waves[0].estimate
    assert (first.drain, first.reboot, first.settle) == (20, 90, 7)
    assert first.seconds == 117
    assert [word in told for word, told in zip(("1m30s", "20s", "7s"), plan.estimate.basis, strict=True)] == [True] * 3
    assert all("journals" in told for told in plan.estimate.basis)


def test_a_wave_is_as_slow_as_its_slowest_node() -> None:
    both = planned(PAST, Policy(max_unavailable=Count(2)), pods=())
    assert [len(wave.nodes) for wave in both.waves] == [2]
    assert both.waves[0].estimate.reboot == 100


@pytest.mark.parametrize("strategy", Strategy)
def test_the_drains_of_several_nodes_are_as_slow_as_the_slowest_of_so_many(strategy: Strategy) -> None:
    """Half of the pods here end in 5 s and half in 30: one node alone takes 5 s as likely as not, but hardly two."""
    mixed = Past(drains=(5, 30) * 3, reboots=(27,) * 6, settles=(0,), endings=(5, 30) * 3)
    pods = [pod(f"web-{number}", f"w-{number}", app=f"app-{number}") for number in (1, 2)]
    policy = Policy(max_unavailable=Count(2), strategy=strategy, prefer_no_schedule_taint=False)
    given = replace(inputs([*NODES, node("w-3")], pods=pods, policy=policy), past=mixed, selected=("w-1", "w-2"))
    together = build_plan(given)
    assert [len(wave.nodes) for wave in together.waves] == [2]
    assert together.estimate.seconds == 57
    alone = replace(policy, max_unavailable=Count(1), strategy=Strategy.WAVES)
    assert build_plan(replace(given, policy=alone)).estimate.seconds == 2 * 32


@pytest.mark.parametrize("past", [Past(), PAST])
def test_a_soak_is_part_of_each_wave(past: Past) -> None:
    plain = planned(past)
    soaked = planned(past, Policy(gates=GatePolicy(soak=Duration(600))))
    assert [wave.estimate.soak for wave in soaked.waves] == [600, 600]
    assert soaked.estimate.seconds == plain.estimate.seconds + 1200


def test_without_any_past_all_is_assumed_and_said_to_be() -> None:
    basis = planned(Past()).estimate.basis
    assert ["assumed" in told or "all of their" in told for told in basis] == [True] * 3
