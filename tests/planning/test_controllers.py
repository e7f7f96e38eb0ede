"""Budgets that a database's operator opens do not block a plan."""

from collections.abc import Sequence

import pytest
from msgspec import structs
from msgspec.structs import replace

from rollout.model.cluster import Budget, LabelSelector, OwnerRef, Pod
from rollout.model.plan import BlockerKind, PlanWarning, RolloutPlan, WarningKind
from rollout.model.policy import Critical, DrainPolicy, Policy, Strategy
from rollout.model.quantity import Count
from rollout.model.selectors import Requirement, SelectorOperator
from rollout.planning.plan.build import PlanInputs, build_plan
from rollout.planning.play.pace import HANDOVER_SECONDS, PastDurations
from tests.planning.builders import ago, budget, inputs, node, pod, waves

NODES = [node(name) for name in ("w-1", "w-2", "w-3", "w-4")]
CLUSTER = OwnerRef("postgresql.cnpg.io/v1", "Cluster", "db", "uid-db")
STATEFUL_SET = OwnerRef("apps/v1", "StatefulSet", "db", "uid-set")
FOREIGN_DEPLOYMENT = OwnerRef("example.com/v1", "Deployment", "db", "uid-foreign")
REPLICA_SET = OwnerRef("apps/v1", "ReplicaSet", "db", "uid-rs")


def instance(
    number: int, on: str, role: str = "replica", *, owner: OwnerRef | None = CLUSTER
) -> Pod:
    labels = {"app": "db", "role": role}
    return structs.replace(pod(f"db-{number}", on), labels=labels, owner=owner)


def guard(role: str, *, allowed: int, expected: int, owner: OwnerRef | None = None) -> Budget:
    selector = LabelSelector((Requirement("role", SelectorOperator.IN, (role,)),))
    return budget(
        f"db-{role}",
        allowed=allowed,
        expected=expected,
        selector=selector,
        owner=owner,
        min_available=str(expected - allowed),
        max_unavailable="",
    )


PRIMARY = guard("primary", allowed=0, expected=1)
REPLICAS = guard("replica", allowed=1, expected=2)
DATABASE = [instance(1, "w-1", "primary"), instance(2, "w-2"), instance(3, "w-3")]


def database(
    pods: Sequence[Pod] = DATABASE,
    budgets: Sequence[Budget] = (PRIMARY, REPLICAS),
    policy: Policy | None = None,
) -> PlanInputs:
    return inputs(NODES, pods=pods, budgets=budgets, policy=policy)


def managed(plan: RolloutPlan) -> list[PlanWarning]:
    return [warning for warning in plan.warnings if warning.kind is WarningKind.BUDGET_MANAGED]


def test_the_primarys_budget_is_a_warning_that_says_who_opens_it() -> None:
    plan = build_plan(database())
    assert plan.blockers == ()
    assert managed(plan) == [
        PlanWarning(
            "w-1",
            "pdb/shop/db-primary",
            "allows evictions again once the controller of Cluster shop/db moves its pod, usually"
            " after the node is cordoned",
            WarningKind.BUDGET_MANAGED,
        )
    ]


def test_a_lone_instance_is_warned_of_as_such() -> None:
    (warning,) = managed(build_plan(database(DATABASE[:1])))
    assert "Cluster shop/db has no other pod to switch to" in warning.message


@pytest.mark.parametrize(
    ("of_pod", "of_budget", "is_managed"),
    [
        (CLUSTER, None, True),
        (FOREIGN_DEPLOYMENT, None, True),
        (STATEFUL_SET, CLUSTER, True),
        (STATEFUL_SET, None, False),
        (REPLICA_SET, None, False),
        (OwnerRef("v1", "ReplicationController", "db", "uid-rc"), None, False),
        (OwnerRef("batch/v1", "Job", "db", "uid-job"), None, False),
        (OwnerRef("scheduling.k8s.io/v1", "Workload", "db", "uid-w"), None, False),
        (OwnerRef("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "db", "uid-l"), None, True),
        (STATEFUL_SET, OwnerRef("apps/v1", "Deployment", "db", "uid-d"), False),
    ],
)
def test_the_api_group_of_the_owner_decides(
    of_pod: OwnerRef, of_budget: OwnerRef | None, *, is_managed: bool
) -> None:
    pods = [instance(1, "w-1", "primary", owner=of_pod)]
    plan = build_plan(database(pods, [replace(PRIMARY, owner=of_budget)]))
    assert bool(managed(plan)) is is_managed
    assert [blocker.kind for blocker in plan.blockers] == (
        [] if is_managed else [BlockerKind.BUDGET_NEVER]
    )


def test_zalandos_pods_are_known_by_their_label() -> None:
    master = instance(0, "w-1", "primary", owner=STATEFUL_SET)
    spilo = structs.replace(master, labels={**master.labels, "application": "spilo"})
    plan = build_plan(database([spilo], [PRIMARY]))
    assert plan.blockers == ()
    assert "controller of postgresql shop/db" in managed(plan)[0].message


def test_every_pod_of_the_budget_on_the_node_needs_such_a_controller() -> None:
    """The controller of one pod does not move the others."""
    pods = [instance(1, "w-1", "primary"), instance(2, "w-1", "primary", owner=REPLICA_SET)]
    both = guard("primary", allowed=0, expected=2)
    plan = build_plan(database(pods, [both]))
    assert [blocker.kind for blocker in plan.blockers] == [BlockerKind.BUDGET_NEVER]
    apart = [pods[0], structs.replace(pods[1], node="w-2")]
    assert [blocker.node for blocker in build_plan(database(apart, [both])).blockers] == ["w-2"]


def test_unready_replicas_close_a_managed_budget_without_blocking() -> None:
    pods = [
        instance(1, "w-1", "primary"),
        structs.replace(instance(2, "w-2"), ready=False, unready_since=ago(3600)),
        instance(3, "w-3"),
    ]
    closed = replace(REPLICAS, disruptions_allowed=0, current_healthy=1, desired_healthy=1)
    plan = build_plan(database(pods, [PRIMARY, closed]))
    assert plan.blockers == ()
    assert [warning.node for warning in managed(plan)] == ["w-1", "w-3"]


def test_an_open_budget_is_not_warned_of() -> None:
    assert managed(build_plan(database(DATABASE[1:], [REPLICAS]))) == []


def test_rules_for_critical_pods_stay_blockers() -> None:
    critical = Critical("shop", "role=primary", 1)
    policy = Policy(drain=DrainPolicy(critical=(critical,)))
    plan = build_plan(database(budgets=(), policy=policy))
    assert [blocker.kind for blocker in plan.blockers] == [BlockerKind.BUDGET_NEVER]


@pytest.mark.parametrize("strategy", list(Strategy))
def test_one_node_of_the_database_is_away_at_a_time(strategy: Strategy) -> None:
    """Also those of its replicas: the primary may move to any of them."""
    policy = Policy(max_unavailable=Count(4), strategy=strategy)
    plan = build_plan(database(policy=policy))
    of_database = {"w-1", "w-2", "w-3"}
    if strategy is Strategy.WAVES:
        assert [len(of_database.intersection(wave)) for wave in waves(plan)] == [1, 1, 1]
        assert plan.waves[0].note == "one node with pods of Cluster shop/db at a time"
        return
    (wave,) = plan.waves
    assert wave.rolling is not None
    key = "controller:Cluster shop/db"
    assert wave.rolling.capacity[key] == 1
    assert {name for name, held in wave.rolling.holds.items() if held.get(key)} == of_database


def test_a_replica_without_a_budget_is_kept_apart_from_its_primary() -> None:
    """With two instances, CloudNativePG has a budget for the primary only."""
    plan = build_plan(database(DATABASE[:2], [PRIMARY], Policy(max_unavailable=Count(4))))
    assert [len({"w-1", "w-2"}.intersection(wave)) for wave in waves(plan)] == [1, 1]


def test_a_controller_with_open_budgets_does_not_limit_nodes() -> None:
    pods = [instance(number, f"w-{number}") for number in (1, 2, 3, 4)]
    policy = Policy(max_unavailable=Count(4))
    open_budget = guard("replica", allowed=4, expected=4)
    plan = build_plan(database(pods, [open_budget], policy))
    assert len(waves(plan)[0]) > 1


def test_the_forecast_waits_on_each_node_that_has_the_primary_by_then() -> None:
    """It moves to the second node, which then waits too."""
    past = PastDurations(drains=(5,), reboots=(60,), settles=(0,), endings=(5,))
    plan = build_plan(replace(database(), past=past))
    assert waves(plan) == [["w-1"], ["w-2"], ["w-3"], ["w-4"]]
    drains = [wave.estimate.drain for wave in plan.waves]
    assert [seconds >= HANDOVER_SECONDS for seconds in drains[:2]] == [True, True]
    without = build_plan(replace(database(budgets=[REPLICAS]), past=past))
    assert max(wave.estimate.drain for wave in without.waves) < HANDOVER_SECONDS


def test_a_replica_beside_the_primary_moves_first() -> None:
    """Only then is there a pod on another node to switch to."""
    past = PastDurations(drains=(5,), reboots=(60,), settles=(0,), endings=(5,))
    pods = [instance(number, "w-1", role) for number, role in ((1, "primary"), (2, "replica"))]
    given = replace(database(pods, [PRIMARY]), past=past, selected=("w-1", "w-2"))
    drain = max(wave.estimate.drain for wave in build_plan(given).waves)
    assert drain >= 2 * HANDOVER_SECONDS


def test_a_database_with_replicas_on_nodes_without_an_update_moves_there() -> None:
    given = database()
    selected = replace(given, selected=("w-1",), past=PastDurations(reboots=(60,), endings=(5,)))
    (wave,) = build_plan(selected).waves
    assert HANDOVER_SECONDS <= wave.estimate.drain < HANDOVER_SECONDS + 10
