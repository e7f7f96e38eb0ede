"""A member of the control plane goes while the others are well, and etcd keeps its majority."""

from random import Random

import pytest
from msgspec import structs
from msgspec.structs import replace

from rollout.model import marks
from rollout.model.cluster import CONTROL_PLANE_LABELS, ConditionStatus, Node, PodPhase
from rollout.model.gates import GatePolicy, HookPolicy
from rollout.model.plan import BlockerKind
from rollout.model.policy import (
    ControlPlaneOrder,
    CourtesyPolicy,
    DrainPolicy,
    Policy,
    Pool,
    Strategy,
)
from rollout.model.quantity import Count, Duration
from rollout.planning.plan.build import PlanInputs, build_plan
from rollout.planning.play.pace import slowest_node_seconds
from tests.planning.builders import inputs, node, pod
from tests.planning.test_remedies import control_plane

THREE = ("cp-1", "cp-2", "cp-3")


FIVE = (*THREE, "cp-4", "cp-5")


ETCD = "node-role.kubernetes.io/etcd"


def blocked(given: PlanInputs) -> dict[str, set[str]]:
    found = build_plan(given).blockers
    assert {blocker.kind for blocker in found} <= {BlockerKind.CONTROL_PLANE_UNHEALTHY}
    return {
        name: {blocker.object for blocker in found if blocker.node == name}
        for name in {b.node for b in found}
    }


def without_pods_on(given: PlanInputs, *names: str) -> PlanInputs:
    pods = tuple(pod for pod in given.snapshot.pods if pod.node not in names)
    return replace(given, snapshot=replace(given.snapshot, pods=pods))


def test_the_node_of_the_static_pod_that_is_not_ready_may_go_and_no_other() -> None:
    given = control_plane(*THREE, unready="cp-1")
    assert blocked(given) == {
        name: {"pod/shop/etcd-cp-1", f"pod/shop/etcd-{name}"} for name in THREE[1:]
    }
    quorum = next(
        entry.message
        for entry in build_plan(given).blockers
        if entry.object == "pod/shop/etcd-cp-2"
    )
    assert quorum.startswith(
        "is the etcd member on cp-2: etcd needs 2 of its 3 members to be healthy, and would have only 1"
        " without this one: fix the "
    )


@pytest.mark.parametrize("names", [("cp-1",), THREE])
def test_nothing_is_in_the_way_where_all_are_ready(names: tuple[str, ...]) -> None:
    assert not blocked(control_plane(*names))


def test_etcd_keeps_its_majority() -> None:
    assert blocked(control_plane("cp-1", "cp-2")) == {
        name: {f"pod/shop/etcd-{name}"} for name in ("cp-1", "cp-2")
    }
    # cp-3, whose member is not there, may go
    assert blocked(without_pods_on(control_plane(*THREE), "cp-3")).keys() == {"cp-1", "cp-2"}


def with_nodes(given: PlanInputs, *nodes: Node) -> PlanInputs:
    changed = {one.name: one for one in nodes}
    all_nodes = tuple(changed.get(one.name, one) for one in given.snapshot.nodes)
    return replace(given, snapshot=replace(given.snapshot, nodes=all_nodes))


def quorums(given: PlanInputs) -> set[str]:
    """The nodes that are blocked for the sake of their own member of etcd."""
    return {name for name, objects in blocked(given).items() if f"pod/shop/etcd-{name}" in objects}


def test_nodes_that_run_no_member_are_none_unless_their_role_or_their_silence_says_otherwise() -> (
    None
):
    given = replace(control_plane(*FIVE), policy=Policy(max_unavailable=Count(3)))
    five = without_pods_on(given, "cp-4", "cp-5")
    assert not blocked(five)
    assert quorums(without_pods_on(given, *FIVE[1:])) == {"cp-1"}
    nodes = five.snapshot.nodes
    silent = (replace(one, ready=ConditionStatus.UNKNOWN) for one in nodes[3:])
    assert quorums(with_nodes(five, *silent)) == {"cp-1", "cp-2", "cp-3"}
    labelled = [replace(one, labels={**one.labels, ETCD: ""}) for one in nodes]
    assert quorums(with_nodes(five, *labelled)) == {"cp-1", "cp-2", "cp-3"}
    assert not blocked(with_nodes(five, *labelled[:3]))


BEGUN = {marks.RUN: "r", marks.PHASE: "ready"}


@pytest.mark.parametrize(
    ("names", "change"),
    [
        (FIVE, {"ready": ConditionStatus.FALSE}),
        (THREE, {"unschedulable": True, "annotations": BEGUN}),
    ],
    ids=["away", "back, and cordoned by a rollout that was killed"],
)
def test_beside_one_that_is_away_none_goes_though_etcd_has_its_majority(
    names: tuple[str, ...], change: dict[str, object]
) -> None:
    """And one that is back is no lost member."""
    given = control_plane(*names)
    beside = with_nodes(given, replace(given.snapshot.nodes[0], **change))
    two = replace(beside, policy=Policy(max_unavailable=Count(2)))
    assert blocked(two) == {name: {"node/cp-1"} for name in names[1:]}


def test_the_last_api_server_stays() -> None:
    server = pod("kube-apiserver-cp-1", "cp-1", owner="Node", app="api", mirror=True)
    given = control_plane(*THREE)
    alone = replace(given, snapshot=replace(given.snapshot, pods=(*given.snapshot.pods, server)))
    assert blocked(alone) == {"cp-1": {"pod/shop/kube-apiserver-cp-1"}}
    second = structs.replace(server, name="kube-apiserver-cp-2", uid="second", node="cp-2")
    assert not blocked(
        replace(alone, snapshot=replace(alone.snapshot, pods=(*alone.snapshot.pods, second)))
    )


@pytest.mark.parametrize("first", range(0, 500, 100))
def test_no_majority_that_is_there_is_lost_and_no_last_api_server(first: int) -> None:
    """Random control planes with members that are unready, missing or on nodes that are away; and
    any limit.
    """
    for seed in range(first, first + 100):
        check_quorums(seed)


def check_quorums(seed: int) -> None:
    random = Random(seed)  # noqa: S311 - reproducible, not secret
    names = [f"cp-{number}" for number in range(1, random.randint(1, 7) + 1)]
    away = {name for name in names if random.random() < 0.1}
    nodes = [
        node(name, labels={CONTROL_PLANE_LABELS[0]: ""}, ready=name not in away) for name in names
    ]
    pods = [
        pod(
            f"{component}-{name}",
            name,
            owner="Node",
            app=component,
            mirror=True,
            ready=random.random() < 0.85,
        )
        for name in names
        for component in ("etcd", "kube-apiserver")
        if random.random() < 0.85
    ]
    workers = [node(f"w-{number}") for number in range(3)]
    made = build_plan(inputs([*nodes, *workers], pods=pods, policy=random_policy(random)))
    well = {
        app: {
            one.node
            for one in pods
            if one.labels["app"] == app and one.ready and one.node not in away
        }
        for app in ("etcd", "kube-apiserver")
    }
    stopped = {blocker.node for blocker in made.blockers}
    etcd = {one.node for one in pods if one.labels["app"] == "etcd"}
    for wave in made.waves:
        going = {one.name for one in wave.nodes if one.name in names}
        beside = min(len(going), wave.rolling.in_flight if wave.rolling else len(going))
        assert beside <= 1, seed
        for name in going - stopped if len(names) > 1 else ():
            majority = len(etcd | away if len(etcd) > 1 else names) // 2 + 1
            assert len(well["etcd"] - {name}) >= min(majority, len(well["etcd"])), seed
            assert well["kube-apiserver"] - {name} or not well["kube-apiserver"], seed


def random_policy(random: Random) -> Policy:
    strategy = random.choice(list(Strategy))
    order = random.choice([ControlPlaneOrder.FIRST, ControlPlaneOrder.LAST])
    return Policy(
        Count(random.randint(1, 9)),
        control_plane=order,
        strategy=strategy,
        canary=random.randint(0, 2),
    )


# How long the nodes in flight may take.


POLICY = Policy(
    drain=DrainPolicy(timeout=Duration(100)),
    reboot_timeout=Duration(200),
    ready_timeout=Duration(30),
    settle_timeout=Duration(50),
)
# Its drain and volumes, being asked to reboot and the reboot, the kubelet and the proof, its pods,
# and the kubelet once more.
SLOWEST = 100 + 100 + 200 + 200 + 30 + 30 + 50 + 30


def test_each_step_may_take_all_its_time() -> None:
    assert slowest_node_seconds(POLICY) == SLOWEST
    excluding = replace(POLICY, exclude_from_load_balancers=Duration(60))
    assert slowest_node_seconds(excluding) == SLOWEST + 60
    waits = CourtesyPolicy(drain_delay=Duration(5), reboot_delay=Duration(7))
    assert slowest_node_seconds(replace(POLICY, courtesy=waits)) == SLOWEST + 12
    assert slowest_node_seconds(POLICY, 40) == SLOWEST + 40 + 200
    patient = replace(
        POLICY, drain=DrainPolicy(timeout=Duration(1000)), ready_timeout=Duration(900)
    )
    assert slowest_node_seconds(patient) == 1000 + 120 + 200 + 200 + 900 + 120 + 50 + 900


def test_the_slowest_pool_counts() -> None:
    slow = Pool("slow", "pool=slow", drain_timeout=Duration(1000), ready_timeout=Duration(1))
    other = Pool("other", "pool=other", reboot_timeout=Duration(500))
    assert slowest_node_seconds(replace(POLICY, pools=(slow, other))) == (
        1000 + 120 + 500 + 500 + 30 + 30 + 50 + 30
    )


def test_checks_count_where_there_are_any() -> None:
    def with_hooks(*before: str) -> Policy:
        return replace(
            POLICY,
            gates=GatePolicy(hooks=HookPolicy(before=before, after=("a",), timeout=Duration(7))),
        )

    assert slowest_node_seconds(with_hooks()) == SLOWEST + 7
    assert slowest_node_seconds(with_hooks("b")) == SLOWEST + 14
    assert slowest_node_seconds(with_hooks(), playbooks=2) == SLOWEST + 21


def test_a_control_plane_without_static_pods_is_not_blocked() -> None:
    assert not blocked(without_pods_on(control_plane(*THREE), *THREE))


def test_a_static_pod_that_has_done_its_work_is_no_concern() -> None:
    given = control_plane(*THREE)
    done = structs.replace(
        given.snapshot.pods[0], name="installer-cp-1", ready=False, phase=PodPhase.SUCCEEDED
    )
    assert not blocked(
        replace(given, snapshot=replace(given.snapshot, pods=(*given.snapshot.pods, done)))
    )


@pytest.mark.parametrize("unready", ["", "cp-1"])
@pytest.mark.parametrize("names", [THREE[:2], THREE, FIVE[:4], FIVE])
def test_what_a_blocker_of_etcd_advises_clears_it(names: tuple[str, ...], unready: str) -> None:
    found = build_plan(control_plane(*names, unready=unready)).blockers
    advised = {blocker.message for blocker in found if blocker.object == "pod/shop/etcd-cp-2"}
    members = (*names, "cp-6") if any("add a member" in message for message in advised) else names
    is_fixed = any("fix the member on cp-1" in message for message in advised)
    assert "cp-2" not in quorums(control_plane(*members, unready="" if is_fixed else unready))
