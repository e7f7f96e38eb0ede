"""Deployments whose restart starts a replacement before it ends the pod of a budget that needs it."""

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from rollout.model.blocker_finding import SurgeObstacle
from rollout.model.cluster import (
    Budget,
    LabelSelector,
    OwnerRef,
    PersistentVolume,
    Pod,
    Resources,
)
from rollout.model.deployment import Deployment
from rollout.model.placement import ANYWHERE, Placement, PodTerm, Taint
from rollout.model.plan import BlockerKind, PlanWarning, RolloutPlan, WarningKind
from rollout.model.policy import Critical, DrainPolicy, Policy, Restart
from rollout.model.quantity import Count
from rollout.model.selectors import Requirement, SelectorOperator
from rollout.planning.drain.surge import surge_obstacle
from rollout.planning.plan.build import PlanInputs, build_plan
from rollout.planning.play.pace import PastDurations
from tests.planning.builders import HOSTNAME, budget, deployment, inputs, node, pod

NODES = [node(name, labels={HOSTNAME: name}) for name in ("w-1", "w-2", "w-3")]
WEB = LabelSelector((Requirement("app", SelectorOperator.IN, ("web",)),))
REPLICA_SET = OwnerRef("apps/v1", "ReplicaSet", "web-5d4f", "uid-rs")
ON = DrainPolicy(restart=Restart.BLOCKED)
ALONE = budget("web", allowed=0, expected=1, min_available="1", max_unavailable="")


def web(name: str = "web-5d4f-1", on: str = "w-1", **changes: Any) -> Pod:
    labels = {"app": "web", "pod-template-hash": "5d4f"}
    return structs.replace(pod(name, on), labels=labels, owner=REPLICA_SET, **changes)


def cluster(
    *,
    pods: Iterable[Pod] = (web(),),
    guard: Budget = ALONE,
    deployments: Iterable[Deployment] = (deployment(),),
    volumes: Iterable[PersistentVolume] = (),
    drain: DrainPolicy = ON,
) -> PlanInputs:
    given = inputs(NODES, pods=pods, budgets=(guard,), policy=Policy(drain=drain))
    snapshot = replace(given.snapshot, deployments=tuple(deployments), volumes=tuple(volumes))
    return replace(given, snapshot=snapshot)


def restarts(plan: RolloutPlan) -> list[PlanWarning]:
    return [warning for warning in plan.warnings if warning.kind is WarningKind.BUDGET_RESTART]


DISK = PersistentVolume("pv-1", "shop/data")
SHARE = PersistentVolume("pv-1", "shop/data", is_shared=True)


@pytest.mark.parametrize(
    ("changes", "claims", "obstacle"),
    [
        ({}, (), None),
        ({"surge": 3}, (), None),
        ({"is_paused": True}, (), SurgeObstacle.PAUSED),
        ({"is_rolling": False}, (), SurgeObstacle.RECREATE),
        ({"surge": 0}, (), SurgeObstacle.NO_SURGE),
        ({"unavailable": 1}, (), SurgeObstacle.UNAVAILABLE),
        ({}, ("data",), SurgeObstacle.VOLUME),
        ({}, ("shared",), None),
        ({}, ("shared", "data"), SurgeObstacle.VOLUME),
    ],
)
def test_a_restart_helps_only_if_the_replacement_comes_first(
    changes: dict[str, Any], claims: tuple[str, ...], obstacle: SurgeObstacle | None
) -> None:
    shared = frozenset({"shop/shared"})
    found = surge_obstacle(web(claims=claims), deployment(**changes), shared)
    assert found is obstacle


def test_the_blocker_of_a_lone_replica_names_the_setting() -> None:
    (blocker,) = build_plan(cluster(drain=DrainPolicy())).blockers
    assert blocker.kind is BlockerKind.BUDGET_NEVER
    assert blocker.fix == (
        "add a replica, let rollout restart the Deployment (--set drain.restart=blocked), lower the"
        " PDB's minAvailable to 0, or use --disable-eviction"
    )


def test_with_the_setting_the_blocker_is_a_warning() -> None:
    plan = build_plan(cluster())
    assert plan.blockers == ()
    (warning,) = restarts(plan)
    assert warning.object == "pdb/shop/web"
    assert "the drain restarts Deployment shop/web (drain.restart)" in warning.message


@pytest.mark.parametrize("restart", Restart)
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"is_paused": True}, "it is paused"),
        ({"is_rolling": False}, "its strategy is Recreate"),
        ({"surge": 0}, "its maxSurge is 0"),
        ({"unavailable": 1}, "its maxUnavailable terminates pods before new ones are ready"),
    ],
)
def test_a_blocker_stays_and_says_why_a_restart_does_not_help(
    changes: dict[str, Any], why: str, restart: Restart
) -> None:
    given = cluster(deployments=[deployment(**changes)], drain=DrainPolicy(restart=restart))
    (blocker,) = build_plan(given).blockers
    assert blocker.cause.endswith(f"and drain.restart does not help Deployment shop/web: {why}")
    assert "drain.restart" not in blocker.fix


def test_a_stateful_set_is_named_as_such() -> None:
    owner = OwnerRef("apps/v1", "StatefulSet", "web", "uid-set")
    (blocker,) = build_plan(cluster(pods=[structs.replace(web(), owner=owner)])).blockers
    assert "drain.restart does not help StatefulSet shop/web: it starts a pod only" in blocker.cause


@pytest.mark.parametrize(
    ("volumes", "is_blocked"), [((), True), ((DISK,), True), ((SHARE,), False)]
)
def test_a_volume_has_to_be_one_that_several_nodes_can_mount(
    volumes: tuple[PersistentVolume, ...], *, is_blocked: bool
) -> None:
    plan = build_plan(cluster(pods=[web(claims=("data",))], volumes=volumes))
    assert bool(plan.blockers) is is_blocked
    for blocker in plan.blockers:
        assert "only one node at a time can mount its volume" in blocker.cause


@pytest.mark.parametrize(
    "owner",
    [
        OwnerRef("apps/v1", "ReplicaSet", "web-other", "uid-other"),
        OwnerRef("argoproj.io/v1alpha1", "ReplicaSet", "web-5d4f", "uid-argo"),
        OwnerRef("batch/v1", "Job", "web-5d4f", "uid-job"),
        None,
    ],
)
def test_pods_of_other_owners_are_not_restarted(owner: OwnerRef | None) -> None:
    plan = build_plan(
        cluster(pods=[structs.replace(web(), owner=owner)], drain=replace(ON, force=True))
    )
    assert restarts(plan) == []


def test_a_budget_that_only_waits_for_pods_is_waited_for() -> None:
    waiting = replace(ALONE, expected_pods=2, current_healthy=1)
    assert restarts(build_plan(cluster(guard=waiting))) == []


def test_a_rule_for_critical_pods_is_not_worked_around() -> None:
    rule = Critical("shop", "app=web", 1)
    given = cluster(drain=replace(ON, critical=(rule,)))
    without = replace(given, snapshot=replace(given.snapshot, budgets=()))
    (blocker,) = build_plan(without).blockers
    assert blocker.object == "critical/shop/app=web"
    assert "drain.restart" not in blocker.message


def test_a_replacement_without_room_blocks_all_the_same() -> None:
    large = web(requests=Resources(3000, 1 << 30, 1))
    others = [
        pod(f"big-{on}", on, app="big", requests=Resources(3000, 1 << 30, 1))
        for on in ("w-2", "w-3")
    ]
    plan = build_plan(cluster(pods=[large, *others]))
    assert [blocker.kind for blocker in plan.blockers] == [BlockerKind.FITS_NOWHERE]


PAST = PastDurations(drains=(1.0,), reboots=(100.0,), settles=(0.0,), endings=(1000.0,))


def drain_seconds(given: PlanInputs) -> int:
    plan = build_plan(replace(given, past=PAST))
    (drain,) = {wave.estimate.drain for wave in plan.waves if wave.nodes[0].name == "w-1"}
    return drain


def test_the_forecast_starts_the_replacement_before_the_pod_ends() -> None:
    slow = web(start_seconds=40, grace_period=20)
    assert drain_seconds(cluster(pods=[slow])) == 40 + 25


def test_the_replacement_takes_its_room_before_other_pods_do() -> None:
    """There is room for one more pod, and the other pod is evicted before the replacement is ready."""
    small = Resources(1000, 1 << 30, 1)
    pods = [
        web(requests=small, start_seconds=40, grace_period=20),
        pod("api", "w-1", app="api", requests=small, grace_period=20),
        pod("full", "w-2", app="full", requests=Resources(4000, 1 << 30, 1)),
        pod("large", "w-3", app="large", requests=Resources(3000, 1 << 30, 1)),
    ]
    assert drain_seconds(replace(cluster(pods=pods), selected=("w-1",))) == 40 + 25


def test_the_forecast_waits_until_all_replicas_have_been_replaced() -> None:
    pods = [web(f"web-5d4f-{i}", f"w-{i}", start_seconds=40, grace_period=20) for i in (1, 2, 3)]
    guard = budget("web", allowed=0, expected=3, min_available="3", max_unavailable="")
    given = cluster(pods=pods, guard=guard, deployments=[deployment(desired=3, surge=2)])
    assert drain_seconds(given) == 2 * 40 + 25


SMALL = Resources(100, 1 << 20, 1)


def replicated(*places: str, placement: Placement = ANYWHERE, **changes: Any) -> PlanInputs:
    """A Deployment with a pod on each of these nodes, of which a budget needs every pod."""
    timings = {"start_seconds": 40, "grace_period": 20}
    pods = [
        web(f"web-5d4f-{number}", on, placement=placement, requests=SMALL, **timings)
        for number, on in enumerate(places)
    ]
    guard = budget("web", allowed=0, expected=len(pods), min_available="100%", max_unavailable="")
    deployments = [deployment(desired=len(pods))]
    return cluster(pods=pods, guard=guard, deployments=deployments, **changes)


def with_taint(given: PlanInputs, name: str) -> PlanInputs:
    """Let no new pod be scheduled on the node."""
    taint = Taint("dedicated", "", "NoSchedule")
    nodes = [
        replace(each, taints=(taint,)) if each.name == name else each
        for each in given.snapshot.nodes
    ]
    return replace(given, snapshot=replace(given.snapshot, nodes=tuple(nodes)))


def test_the_drain_waits_for_as_many_new_pods_as_end_its_own() -> None:
    assert drain_seconds(replicated("w-1", "w-2")) == 40 + 25


def test_pods_that_share_a_node_with_others_of_the_deployment_end_first() -> None:
    """The new pod starts beside the pod on w-2, so that the pod on w-1 ends last."""
    assert drain_seconds(with_taint(replicated("w-1", "w-2"), "w-3")) == 2 * 40 + 25


def test_a_new_pod_waits_until_an_old_one_has_left_its_node() -> None:
    """Each node takes one pod: w-3 the first new one, and w-2 another once its old pod is gone."""
    apart = Placement(repulsions=(PodTerm(HOSTNAME, WEB),))
    assert drain_seconds(replicated("w-2", "w-1", placement=apart)) == 40 + 25 + 40 + 25


def test_a_restart_moves_the_pods_of_other_nodes_too() -> None:
    """All pods have left w-2 before its drain, which restarts nothing."""
    given = with_taint(replicated("w-1", "w-2"), "w-2")
    plan = build_plan(replace(given, past=PAST, selected=("w-1", "w-2")))
    drains = {wave.nodes[0].name: wave.estimate.drain for wave in plan.waves}
    assert drains == {"w-1": 40 + 25, "w-2": 0}


def test_a_drain_waits_for_the_restart_that_another_one_has_begun() -> None:
    given = replicated("w-1", "w-2")
    policy = replace(given.policy, max_unavailable=Count(2))
    given = replace(given, past=PAST, policy=policy, selected=("w-1", "w-2"))
    (wave,) = build_plan(given).waves
    assert wave.estimate.drain == 2 * 40 + 25
