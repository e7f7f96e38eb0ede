"""How long a plan says that it takes, and what it says that this is reckoned from."""

import pytest
from msgspec.structs import replace

from rollout.model.cluster import Budget, Pod, Resources
from rollout.model.gates import GatePolicy
from rollout.model.marks import LAST_RESULT
from rollout.model.placement import Placement, PodTerm
from rollout.model.plan import RolloutPlan
from rollout.model.policy import CourtesyPolicy, DrainPolicy, Policy, Strategy
from rollout.model.quantity import LONGEST, Count, Duration
from rollout.planning.plan.build import build_plan
from rollout.planning.play.pace import PastDurations
from tests.planning.builders import HOSTNAME, budget, inputs, node, pod
from tests.planning.test_places import app

NODES = [node("w-1"), node("w-2")]


PODS = [pod("web-0", "w-1", grace_period=60)]


PAST = PastDurations(drains=(10, 20, 30), reboots=(80, 90, 100, 110), settles=(5, 7, 9))


def planned(past: PastDurations, policy: Policy | None = None, pods: object = PODS) -> RolloutPlan:
    return build_plan(replace(inputs(NODES, pods=pods, policy=policy), past=past))  # type: ignore[arg-type]


def test_journals_go_before_assumptions() -> None:
    plan = planned(PAST)
    first = plan.waves[0].estimate
    assert first.drain == 20
    assert first.reboot == 90
    assert first.settle == 7
    assert first.seconds == 117
    assert [
        word in told for word, told in zip(("1m30s", "20s", "7s"), plan.estimate.basis, strict=True)
    ] == [True] * 3
    assert all("journals" in told for told in plan.estimate.basis)


def test_a_wave_is_as_slow_as_its_slowest_node() -> None:
    both = planned(PAST, Policy(max_unavailable=Count(2)), pods=())
    assert [len(wave.nodes) for wave in both.waves] == [2]
    assert both.waves[0].estimate.reboot == 100


@pytest.mark.parametrize("strategy", Strategy)
def test_the_drains_of_several_nodes_are_as_slow_as_the_slowest_of_so_many(
    strategy: Strategy,
) -> None:
    """Half of the pods here end in 5 s and half in 30: one node alone takes 5 s as likely as not,
    but hardly two.
    """
    mixed = PastDurations(drains=(5, 30) * 3, reboots=(27,) * 6, settles=(0,), endings=(5, 30) * 3)
    pods = [pod(f"web-{number}", f"w-{number}", app=f"app-{number}") for number in (1, 2)]
    policy = Policy(max_unavailable=Count(2), strategy=strategy, prefer_no_schedule_taint=False)
    given = replace(
        inputs([*NODES, node("w-3")], pods=pods, policy=policy), past=mixed, selected=("w-1", "w-2")
    )
    together = build_plan(given)
    assert [len(wave.nodes) for wave in together.waves] == [2]
    assert together.estimate.seconds == 57
    alone = replace(policy, max_unavailable=Count(1), strategy=Strategy.WAVES)
    assert build_plan(replace(given, policy=alone)).estimate.seconds == 2 * 32


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize(("timeout", "most"), [(0.4, 600), (LONGEST, 4 * LONGEST)])
def test_a_drain_that_waits_in_vain_ends_with_any_deadline(
    strategy: Strategy, timeout: float, most: int
) -> None:
    """Its blocker may be allowed, or only shown."""
    pods = [
        pod(f"db-{number}", "w-2", app="db", requests=Resources(600, 1 << 20, 1))
        for number in (1, 2, 3)
    ]
    pods.append(pod("web", "w-1", requests=Resources(3000, 1 << 20, 1)))
    policy = Policy(strategy=strategy, drain=DrainPolicy(timeout=Duration(timeout)))
    given = inputs(NODES, pods=pods, budgets=[budget("db", allowed=1, expected=3)], policy=policy)
    plan = build_plan(replace(given, past=PAST))
    assert {blocker.object for blocker in plan.blockers} == {"pdb/shop/db"}
    assert 0 < plan.estimate.seconds <= most


@pytest.mark.parametrize("past", [PastDurations(), PAST])
def test_a_soak_is_part_of_each_wave(past: PastDurations) -> None:
    plain = planned(past)
    soaked = planned(past, Policy(gates=GatePolicy(soak=Duration(600))))
    assert [wave.estimate.soak for wave in soaked.waves] == [600, 600]
    assert soaked.estimate.seconds == plain.estimate.seconds + 1200


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("most_played", [300_000, -1])
def test_past_runs_on_the_nodes_include_the_delay_before_the_reboot(
    monkeypatch: pytest.MonkeyPatch, strategy: Strategy, most_played: int
) -> None:
    monkeypatch.setattr("rollout.planning.play.simulation._MOST_PLAYED", most_played)
    result = '{"outcome":"succeeded","at":"","version":"1","run":"r","took":"8m"}'
    nodes = [node(name, annotations={LAST_RESULT: result}) for name in ("w-1", "w-2")]
    policy = Policy(strategy=strategy, courtesy=CourtesyPolicy(reboot_delay=Duration(60)))
    plan = build_plan(inputs(nodes, pods=PODS, policy=policy))
    estimates = [wave.estimate for wave in plan.waves]
    # The drain, the delay and the reboot together took eight minutes.
    assert {estimate.drain + estimate.reboot for estimate in estimates} == {480}


def test_without_any_past_all_is_assumed_and_said_to_be() -> None:
    basis = planned(PastDurations()).estimate.basis
    assert ["assumed" in told or "all of their" in told for told in basis] == [True] * 3


# What the pods' own starts make of estimates: drains, the time until all is well, and when the next
# may begin.


# Nothing of these runs is like what the pods tell: pods end in 5 s, hosts boot in 27.
SETTLED_PAST = PastDurations(drains=(5,) * 3, reboots=(27,) * 3, settles=(2, 40), endings=(5,) * 3)


def settled_plan(
    pods: list[Pod], *budgets: Budget, nodes: int = 3, past: PastDurations = SETTLED_PAST
) -> RolloutPlan:
    """The plan for the nodes that have pods; the last node takes what leaves them, and has no turn."""
    policy = Policy(
        max_unavailable=Count(1),
        drain=DrainPolicy(timeout=Duration(3600)),
        prefer_no_schedule_taint=True,
    )
    machines = [
        node(f"w-{number}", labels={HOSTNAME: f"w-{number}"}) for number in range(1, nodes + 1)
    ]
    made = inputs(machines, pods=pods, budgets=budgets, policy=policy)
    return build_plan(
        replace(made, past=past, selected=tuple(machine.name for machine in machines[:-1]))
    )


def started(name: str, on: str, seconds: int, **more: object) -> Pod:
    return pod(name, on, start_seconds=seconds, grace_period=60, **{"app": name, **more})  # type: ignore[arg-type]


def test_the_next_waits_for_a_replacement_that_starts_slowly_and_behind_the_last_nobody_waits() -> (
    None
):
    plan = settled_plan([started("web", "w-1", 100), started("shop", "w-2", 100)])
    # evicted and started at once: ready after 100 s, of which drain and reboot take 5 and 27
    assert [wave.estimate.settle for wave in plan.waves] == [100 - 5 - 27, 0]
    assert plan.estimate.seconds == 100 + 5 + 27


def test_a_pod_without_a_place_starts_once_its_node_is_back() -> None:
    apart = Placement(repulsions=(PodTerm(HOSTNAME, app("db")),))
    pods = [
        started(f"db-{number}", f"w-{number}", 50, app="db", placement=apart)
        for number in (1, 2, 3)
    ]
    plan = settled_plan(pods)
    assert [wave.estimate.settle for wave in plan.waves] == [50, 0]


def test_pods_end_as_those_of_their_owner_did_whatever_others_took() -> None:
    told = {
        "ReplicaSet/shop/web": (2, 2, 3),
        "StatefulSet/shop/db": (50, 55),
        "ReplicaSet/shop/gone": (1,),
    }
    past = replace(SETTLED_PAST, endings_by_owner=told)
    web = started("web", "w-1", 3)
    db = started("db", "w-1", 3, owner="StatefulSet")
    new = started("new", "w-1", 3)
    drains = [
        settled_plan(pods, nodes=2, past=past).waves[0].estimate.drain
        for pods in ([web], [web, db], [web, new])
    ]
    assert drains == [2, 50, 5]


def test_what_begins_to_start_once_its_node_is_back_stays_there_and_is_not_drained_again() -> None:
    """Two of db may be away: db-0 starts after 5 s elsewhere, db-1 after it, when the first node is
    back since long.
    """
    pods = [
        started(f"db-{number}", "w-1" if number < 2 else "w-2", 60, app="db", owner="StatefulSet")
        for number in range(5)
    ]
    policy = Policy(max_unavailable=Count(1), drain=DrainPolicy(timeout=Duration(3600)))
    machines = [node(name, labels={HOSTNAME: name}) for name in ("w-1", "w-2")]
    made = inputs(machines, pods=pods, budgets=[budget("db", allowed=2, expected=5)], policy=policy)
    # four pods leave the second node: two at once, then one whenever one is ready again
    assert [wave.estimate.drain for wave in build_plan(replace(made, past=SETTLED_PAST)).waves] == [
        5,
        65 + 60 + 5,
    ]


@pytest.mark.parametrize(("milli", "drain"), [(1500, (5 + 10) * 2 + 5), (2500, 3600)])
def test_the_first_pods_take_what_room_there_is(milli: int, drain: int) -> None:
    """One of three finds no place, and is the last: the permit of the first two comes back. Of two
    it does not.
    """
    requests = Resources(cpu_milli=milli)
    pods = [
        started(f"db-{number}", "w-1", 10, app="db", owner="StatefulSet", requests=requests)
        for number in range(3)
    ]
    plan = settled_plan(pods, budget("db", allowed=1, expected=3), nodes=2)
    assert plan.waves[0].estimate.drain == drain
