"""What a plan foresees, case by case, on the smallest clusters that show it."""

from random import Random

import pytest
from msgspec import structs
from msgspec.structs import replace

from rollout.model.cluster import LabelSelector, OwnerRef, Pod, PodPhase, Resources
from rollout.model.placement import ANYWHERE, Placement, PodTerm, Spread, Toleration
from rollout.model.plan import BlockerKind, RolloutPlan, WarningKind
from rollout.model.policy import Critical, DrainPolicy, Policy
from rollout.model.quantity import Count, Duration
from rollout.model.selectors import Requirement, SelectorOperator
from rollout.planning.drain.budgets import critical_budget
from rollout.planning.plan.build import PlanInputs, build_plan
from tests.planning.builders import HOSTNAME, ago, budget, hosted, inputs, node, pod, random_cluster

WEB = LabelSelector((Requirement("app", SelectorOperator.IN, ("web",)),))


def kinds(plan: RolloutPlan) -> list[BlockerKind]:
    return [found.kind for found in plan.blockers]


def homeless(plan: RolloutPlan) -> list[str]:
    return [found.message for found in plan.warnings if found.kind is WarningKind.FITS_NOWHERE]


TWO = [hosted("w-1"), hosted("w-2")]


@pytest.mark.parametrize(
    ("seconds", "expected"), [(601, [BlockerKind.STUCK_TERMINATING]), (599, []), (-30, [])]
)
def test_a_pod_long_overdue_blocks(seconds: int, expected: list[BlockerKind]) -> None:
    plan = build_plan(
        inputs(TWO, pods=[pod("web-0", "w-1", deleted_at=ago(seconds), finalizers=("x/y",))])
    )
    assert kinds(plan) == expected
    assert all("x/y" in found.message for found in plan.blockers)


@pytest.mark.parametrize(
    ("seconds", "always_allow", "expected"),
    [(700, False, [BlockerKind.BUDGET_UNHEALTHY]), (60, False, []), (700, True, [])],
)
def test_long_unready_pods_keep_a_budget_from_allowing(
    seconds: int, *, always_allow: bool, expected: list[BlockerKind]
) -> None:
    pods = [pod("web-0", "w-1", ready=False, unready_since=ago(seconds))]
    guard = budget("web", allowed=0, expected=2, desired_healthy=1, current_healthy=0)
    guard = replace(guard, always_allow_unhealthy=always_allow)
    assert kinds(build_plan(inputs(TWO, pods=pods, budgets=[guard]))) == expected


@pytest.mark.parametrize(
    ("phase", "seconds", "expected"),
    [
        (PodPhase.PENDING, 700, []),
        (PodPhase.PENDING, 60, [BlockerKind.TWO_BUDGETS]),
        (PodPhase.RUNNING, 700, [BlockerKind.TWO_BUDGETS]),
    ],
)
def test_what_has_never_run_is_evicted_under_two_budgets_as_well(
    phase: PodPhase, seconds: int, expected: list[BlockerKind]
) -> None:
    """As where an image cannot be pulled; one that has only just come may run by its turn."""
    pods = [pod("web-0", "w-1", phase=phase, ready=False, unready_since=ago(seconds))]
    guards = [budget("web", allowed=1), budget("web", allowed=1, name="other")]
    assert kinds(build_plan(inputs(TWO, pods=pods, budgets=guards))) == expected


def test_a_budget_whose_selector_repeats_a_value_is_one_budget() -> None:
    repeated = Requirement("app", SelectorOperator.IN, ("web", "web"))
    guard = budget("web", allowed=1, selector=LabelSelector((repeated,)))
    assert kinds(build_plan(inputs(TWO, pods=[pod("web-0", "w-1")], budgets=[guard]))) == []


def test_longhorns_budget_is_no_blocker_for_it_goes_with_the_cordon() -> None:
    manager = OwnerRef("longhorn.io/v1beta2", "InstanceManager", "im-1", "uid-im-1")
    of_longhorn = structs.replace(pod("im-1", "w-1"), owner=manager)
    guard = budget("web", allowed=0, expected=1, min_available="1", max_unavailable="")
    plan = build_plan(inputs(TWO, pods=[of_longhorn], budgets=[guard]))
    assert kinds(plan) == []
    assert ["last healthy replica" in warning.message for warning in plan.warnings] == [True]
    assert kinds(build_plan(inputs(TWO, pods=[pod("im-1", "w-1")], budgets=[guard]))) == [
        BlockerKind.BUDGET_NEVER
    ]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"node_selector": {HOSTNAME: "w-1"}}, "node selector"),
        ({"requests": Resources(5000, 0, 1)}, "5 CPU"),
        ({"placement": Placement(repulsions=(PodTerm(HOSTNAME, WEB),))}, "anti-affinity"),
        ({"placement": Placement(spreads=(Spread(HOSTNAME, 1, WEB),))}, "topology spread"),
    ],
)
def test_a_pod_that_fits_nowhere_else_is_warned_of(changes: dict[str, object], says: str) -> None:
    others = [pod("web-1", "w-2"), pod("web-2", "w-2")]
    plan = build_plan(inputs(TWO, pods=[pod("web-0", "w-1", **changes), *others]))  # type: ignore[arg-type]
    assert [says in told for told in homeless(plan)][:1] == [True]
    assert not plan.blockers


def waiting_for(pods: list[Pod], allowed: int) -> PlanInputs:
    return inputs(TWO, pods=pods, budgets=[budget("web", allowed=allowed, expected=2)])


def test_a_budget_that_waits_for_what_fits_nowhere_blocks() -> None:
    pinned = [pod(f"web-{i}", "w-1", node_selector={HOSTNAME: "w-1"}) for i in range(2)]
    assert kinds(build_plan(waiting_for(pinned, 1))) == [BlockerKind.FITS_NOWHERE]
    assert kinds(build_plan(waiting_for(pinned[:1], 1))) == []
    free = [pod(f"web-{i}", "w-1") for i in range(2)]
    assert kinds(build_plan(waiting_for(free, 1))) == []


def test_the_last_replicas_of_an_owner_do_not_share_a_wave() -> None:
    nodes = [*TWO, hosted("w-3")]
    pods = [pod("web-0", "w-1"), pod("web-1", "w-2")]
    plan = build_plan(inputs(nodes, pods=pods, policy=Policy(Count(3))))
    assert [len(wave.nodes) for wave in plan.waves] == [2, 1]
    assert plan.summary.waves_lower_bound == 2
    assert "replicaset shop/web" in plan.waves[0].because
    together = build_plan(
        inputs(nodes, pods=[pod("web-0", "w-1"), pod("web-1", "w-1")], policy=Policy(Count(3)))
    )
    assert WarningKind.ALL_REPLICAS in [found.kind for found in together.warnings]


@pytest.mark.parametrize(
    ("owner", "drain"), [("ReplicaSet", 30 + 65), ("Job", 30 + 65), ("StatefulSet", 65 + 30 + 65)]
)
def test_replacements_start_as_their_controllers_have_it_whatever_the_past(
    owner: str, drain: int
) -> None:
    """Once the pod is to go, or once it has gone: then the budget lets the second one go."""
    pods = [pod(f"web-{i}", "w-1", grace_period=60, owner=owner) for i in range(2)]
    plan = build_plan(
        inputs(
            [hosted("w-1"), hosted("w-2")],
            pods=pods,
            budgets=[budget("web", allowed=1, expected=2)],
        )
    )
    assert [wave.estimate.drain for wave in plan.waves if wave.nodes[0].name == "w-1"] == [drain]


def test_estimates_go_by_graces_budgets_and_past_reboots() -> None:
    result = '{"outcome":"succeeded","at":"","version":"1","run":"r","took":"4m"}'
    nodes = [hosted("w-1", annotations={"node-rollout.dev/last-result": result}), hosted("w-2")]
    pods = [pod(f"web-{i}", "w-1", grace_period=60) for i in range(2)]
    plan = build_plan(inputs(nodes, pods=pods, budgets=[budget("web", allowed=1, expected=2)]))
    first = plan.waves[0].estimate
    # a ReplicaSet replaces a pod while that ends: after 30 s the second may go, and ends by its
    # grace
    assert first.drain == 30 + 65
    assert first.reboot == 240 - 95
    assert first.settle == 0
    assert plan.estimate.seconds == sum(wave.estimate.seconds for wave in plan.waves)
    assert "median of 1 past" in plan.estimate.basis[0]
    short = Policy(drain=DrainPolicy(timeout=Duration(20)))
    assert build_plan(inputs(nodes, pods=pods, policy=short)).waves[0].estimate.drain == 20
    assert "assumed" in build_plan(inputs(TWO)).estimate.basis[0]


# Nodes that can never be emptied, wherever their pods go until then; and those of which that may
# come about.


NODES = [node("w-1"), node("w-2")]


def spread(app: str, number: int, cpu: int, placement: Placement = ANYWHERE) -> list[Pod]:
    """Half of them on each node."""
    asked = Resources(cpu, 0, 1)
    return [
        pod(f"{app}-{i}", f"w-{i % 2 + 1}", app=app, requests=asked, placement=placement)
        for i in range(number)
    ]


ANYWHERE_AT_ALL = replace(ANYWHERE, tolerations=(Toleration(operator="Exists"),))


SMALL = spread("small", 8, 300)
LARGE = spread("large", 4, 800)


BUDGETS = [budget("small", allowed=1, expected=8), budget("large", allowed=1, expected=4)]


def full(pods: list[Pod] = [*SMALL, *LARGE], **changes: object) -> PlanInputs:  # noqa: B006 - never changed
    """Without one of its two nodes of 4 CPU a cluster of which budgets keep 4500m running."""
    return inputs(**{"nodes": NODES, "pods": pods, "budgets": BUDGETS, **changes})  # type: ignore[arg-type]


def budgets_warned_of(plan: RolloutPlan) -> list[tuple[str, str]]:
    warnings = [warning for warning in plan.warnings if warning.kind is WarningKind.FITS_NOWHERE]
    return [
        (warning.node, warning.object) for warning in warnings if warning.object.startswith("pdb/")
    ]


def test_two_budgets_that_alone_could_be_met_block_nodes_without_room_for_what_both_keep() -> None:
    plan = build_plan(full())
    assert [(found.node, found.kind, found.object) for found in plan.blockers] == [
        (name, BlockerKind.FITS_NOWHERE, "pdb/shop/small") for name in ("w-1", "w-2")
    ]
    assert (
        "(and 2 more pods of this PDB) cannot be scheduled on another node"
        in plan.blockers[0].message
    )
    lacking = "no other schedulable node has room for the requests (300m CPU): "
    assert lacking in plan.blockers[0].message


def test_room_that_is_free_only_in_pieces_is_told_as_such() -> None:
    nodes = [
        node("w-1"),
        *(node(f"w-{i}", allocatable=Resources(400, 8 << 30, 110)) for i in (2, 3)),
    ]
    blocked = [pod(f"web-{i}", "w-1", requests=Resources(500, 0, 1)) for i in range(2)]
    plan = build_plan(inputs(nodes, pods=blocked, budgets=[budget("web", allowed=1, expected=2)]))
    assert kinds(plan) == [BlockerKind.FITS_NOWHERE]
    assert (
        "800m CPU free in total, but at most 400m CPU on any one node" in plan.blockers[0].message
    )
    full_up = [
        node("w-1"),
        node("w-2", allocatable=Resources(4000, 0, 110)),
        node("w-3", allocatable=Resources(1)),
    ]
    asking = [pod("web-0", "w-1", requests=Resources(2, 1 << 30, 1))]
    assert [
        "1024Mi memory" in told for told in homeless(build_plan(inputs(full_up, pods=asking)))
    ] == [True]


@pytest.mark.parametrize(
    "made",
    [
        full(budgets=[BUDGETS[0]]),
        full(budgets=[BUDGETS[0], budget("large", allowed=2, expected=4)]),
        full(nodes=[*NODES, node("w-3", allocatable=Resources(700, 8 << 30, 110))]),
        full([*SMALL[:-2], *(structs.replace(one, owner=None) for one in SMALL[-2:]), *LARGE]),
        full(
            [
                *SMALL[:-2],
                *(structs.replace(one, deleted_at="2026-01-01T00:00:00Z") for one in SMALL[-2:]),
                *LARGE,
            ]
        ),
        full(
            [
                *SMALL[:-2],
                *(structs.replace(one, phase=PodPhase.SUCCEEDED) for one in SMALL[-2:]),
                *LARGE,
            ]
        ),
        full(spread("small", 8, 300, placement=ANYWHERE_AT_ALL) + LARGE),
        full(policy=Policy(drain=DrainPolicy(disable_eviction=True))),
        full(policy=Policy(drain=DrainPolicy(pod_selector="app=small"))),
    ],
    ids=[
        "no budget keeps them",
        "its budget lets more be away",
        "another node",
        "nothing replaces them",
        "going",
        "ended",
        "they come back",
        "budgets are not asked",
        "they are left",
    ],
)
def test_what_a_cluster_may_do_without_is_no_blocker(made: PlanInputs) -> None:
    assert not [
        found for found in build_plan(made).blockers if found.kind is BlockerKind.FITS_NOWHERE
    ]


def test_where_chance_decides_a_warning_names_the_budget_and_nothing_is_blocked() -> None:
    """Two large pods that no budget keeps may take the room of small ones, whose budget lets one be
    away.
    """
    made = full(
        [*spread("small", 6, 300), *spread("db", 2, 1500)],
        budgets=[budget("small", allowed=1, expected=6)],
    )
    plan = build_plan(made)
    assert not plan.blockers
    assert budgets_warned_of(plan) == [("w-1", "pdb/shop/small"), ("w-2", "pdb/shop/small")]
    first, then = [found.message for found in plan.warnings if found.object == "pdb/shop/small"]
    assert "allows only 1 of the 3 pods" in first
    assert "allows only 1 of the 3 pods" in then
    assert "make room on other nodes" in then


@pytest.mark.parametrize("seed", range(20))
def test_what_is_critical_is_played_as_a_budget_is(seed: int) -> None:
    """Whatever is unready: the same waves, times and findings, but for who is named."""
    random = Random(seed)  # noqa: S311
    made = random_cluster(seed, 9, 6, demanding=seed % 2 == 1)
    pods = tuple(structs.replace(one, ready=random.random() > 0.1) for one in made.snapshot.pods)
    apps = sorted({one.labels["app"] for one in pods})
    rules = tuple(Critical("shop", f"app={app}", random.randint(1, 4)) for app in apps)
    budgets = [
        replace(critical_budget(rule, pods), name=f"{rule.selector}", critical=False)
        for rule in rules
    ]
    snapshot = replace(made.snapshot, pods=pods, budgets=())
    by_budget = build_plan(replace(made, snapshot=replace(snapshot, budgets=tuple(budgets))))
    policy = replace(made.policy, drain=replace(made.policy.drain, critical=rules))
    by_rule = build_plan(replace(made, snapshot=snapshot, policy=policy))
    assert [(wave.nodes, wave.estimate) for wave in by_rule.waves] == [
        (wave.nodes, wave.estimate) for wave in by_budget.waves
    ]
    for of_rule, of_budget in (
        (by_rule.blockers, by_budget.blockers),
        (by_rule.warnings, by_budget.warnings),
    ):
        assert {
            (one.node, one.kind, one.object.replace("critical/", "pdb/")) for one in of_rule
        } == {(one.node, one.kind, one.object) for one in of_budget}
