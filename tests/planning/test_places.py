"""Where a pod finds a place among its neighbors: each rule of the scheduler, on the smallest
cluster that shows it.
"""

from collections.abc import Mapping
from random import Random

import pytest
from msgspec import structs
from msgspec.structs import replace

from rollout.model.cluster import ZONE_LABEL, LabelSelector, Node, PersistentVolume, Pod, Resources
from rollout.model.placement import NodeTerm, Placement, PodTerm, Spread
from rollout.model.plan import BlockerKind, WarningKind
from rollout.model.policy import Policy
from rollout.model.quantity import Count
from rollout.model.selectors import Requirement, SelectorOperator
from rollout.planning.drain.scheduler import Scheduler
from rollout.planning.plan.build import PlanInputs, build_plan, decide
from rollout.planning.plan.explanation import explain
from tests.planning.builders import HOSTNAME, budget, inputs, node, pod, random_cluster, waves


def app(name: str) -> LabelSelector:
    return LabelSelector((Requirement("app", SelectorOperator.IN, (name,)),))


def named(name: str, zone: str = "a", **changes: object) -> Node:
    return node(name, labels={HOSTNAME: name, ZONE_LABEL: zone}, **changes)  # type: ignore[arg-type]


NODES = [named("w-1"), named("w-2"), named("w-3", "b")]


MOVING = pod("web-0", "w-1")


def place(
    moving: Pod,
    others: list[Pod],
    nodes: list[Node] | None = None,
    namespaces: Mapping[str, Mapping[str, str]] | None = None,
) -> set[str]:
    """Every node but the pod's own that would take it: each is asked alone."""
    snapshot = inputs(nodes or NODES, pods=[moving, *others]).snapshot
    found = set()
    for only in snapshot.nodes:
        rooms = Scheduler.of(replace(snapshot, namespaces=dict(namespaces or {})))
        rooms.set_cordoned(each.name for each in snapshot.nodes if each is not only)
        rooms.take_out(moving)
        found.add(rooms.choose_node(moving))
    return found - {"", moving.node}


def demanding(**demands: object) -> Pod:
    return structs.replace(MOVING, placement=Placement(**demands))  # type: ignore[arg-type]


def chosen_node(others: list[Pod], nodes: list[Node]) -> str:
    """Where the moving pod goes once its node is cordoned."""
    scheduler = Scheduler.of(inputs(nodes, pods=[MOVING, *others]).snapshot)
    scheduler.set_cordoned([MOVING.node])
    scheduler.take_out(MOVING)
    return scheduler.choose_node(MOVING)


LARGE = Resources(2000, 4 << 30, 1)


def test_it_goes_where_its_owner_has_the_fewest_pods_even_if_another_node_is_emptier() -> None:
    others = [pod("web-1", "w-2"), pod("db-1", "w-3", app="db", requests=LARGE)]
    assert chosen_node(others, NODES) == "w-3"
    others.append(pod("web-2", "w-3"))
    assert chosen_node(others, NODES) == "w-2"


def test_pods_that_have_moved_count_where_they_are_now() -> None:
    web = pod("web-1", "w-2")
    others = [web, pod("db-1", "w-2", app="db", requests=LARGE)]
    scheduler = Scheduler.of(inputs(NODES, pods=[MOVING, *others]).snapshot)
    scheduler.take_out(web)
    scheduler.put(web, "w-3")
    scheduler.set_cordoned([MOVING.node])
    scheduler.take_out(MOVING)
    assert scheduler.choose_node(MOVING) == "w-2"


def test_in_a_small_cluster_it_goes_to_the_emptiest_of_all_nodes() -> None:
    nodes = [named(f"w-{number}") for number in range(1, 10)]
    others = [pod(f"db-{at.name}", at.name, app=at.name, requests=LARGE) for at in nodes[1:-1]]
    assert chosen_node(others, nodes) == "w-9"


def test_it_keeps_away_from_those_whom_its_anti_affinity_names() -> None:
    shy = demanding(repulsions=(PodTerm(HOSTNAME, app("db")),))
    assert place(shy, [pod("db-0", "w-2", app="db")]) == {"w-3"}
    by_zone = demanding(repulsions=(PodTerm(ZONE_LABEL, app("db")),))
    assert place(by_zone, [pod("db-0", "w-2", app="db")]) == {"w-3"}


def test_others_keep_it_away_by_theirs() -> None:
    guard = pod(
        "db-0", "w-2", app="db", placement=Placement(repulsions=(PodTerm(HOSTNAME, app("web")),))
    )
    assert place(MOVING, [guard]) == {"w-3"}
    assert place(
        MOVING, [structs.replace(guard, labels={"app": "other"}, namespace="elsewhere")]
    ) == {
        "w-2",
        "w-3",
    }


def test_it_goes_where_those_are_whom_its_affinity_names() -> None:
    drawn = demanding(attractions=(PodTerm(HOSTNAME, app("db")),))
    assert place(drawn, [pod("db-0", "w-2", app="db")]) == {"w-2"}
    assert place(drawn, []) == set()
    by_zone = demanding(attractions=(PodTerm(ZONE_LABEL, app("db")),))
    assert place(by_zone, [pod("db-0", "w-3", app="db")]) == {"w-3"}


def test_the_first_of_those_who_are_drawn_to_each_other_goes_anywhere() -> None:
    sociable = demanding(attractions=(PodTerm(ZONE_LABEL, app("web")),))
    assert place(sociable, []) == {"w-2", "w-3"}
    assert place(sociable, [pod("web-1", "w-2")]) == {"w-2"}


@pytest.mark.parametrize(
    ("term", "namespaces", "expected"),
    [
        ({}, {}, {"w-2", "w-3"}),
        ({"namespaces": ("bank",)}, {}, {"w-3"}),
        ({"namespace_selector": LabelSelector()}, {}, {"w-3"}),
        (
            {
                "namespace_selector": LabelSelector(
                    (Requirement("kubernetes.io/metadata.name", SelectorOperator.IN, ("bank",)),)
                )
            },
            {},
            {"w-3"},
        ),
        (
            {
                "namespace_selector": LabelSelector(
                    (Requirement("team", SelectorOperator.IN, ("money",)),)
                )
            },
            {"bank": {"team": "money"}},
            {"w-3"},
        ),
        (
            {
                "namespace_selector": LabelSelector(
                    (Requirement("team", SelectorOperator.IN, ("money",)),)
                )
            },
            {"bank": {"team": "art"}},
            {"w-2", "w-3"},
        ),
    ],
)
def test_a_term_looks_in_the_namespaces_that_it_means(
    term: dict[str, object], namespaces: dict[str, dict[str, str]], expected: set[str]
) -> None:
    shy = demanding(repulsions=(PodTerm(HOSTNAME, app("db"), **term),))  # type: ignore[arg-type]
    assert (
        place(shy, [pod("db-0", "w-2", app="db", namespace="bank")], namespaces=namespaces)
        == expected
    )


@pytest.mark.parametrize(
    ("keys", "expected"),
    [({"match_keys": ("hash",)}, {"w-3"}), ({"mismatch_keys": ("hash",)}, {"w-2"})],
)
def test_a_term_takes_in_the_values_of_its_pod(
    keys: dict[str, tuple[str, ...]], expected: set[str]
) -> None:
    labels = {"app": "web", "hash": "1"}
    term = PodTerm(HOSTNAME, app("web"), **keys)  # type: ignore[arg-type]
    shy = structs.replace(demanding(repulsions=(term,)), labels=labels)
    same = pod("web-1", "w-2", labels=labels)
    other = pod("web-2", "w-3", labels={**labels, "hash": "2"})
    assert place(shy, [same, other]) == expected


SPREAD = [pod("web-1", "w-2"), pod("web-2", "w-2"), pod("web-3", "w-3")]


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        ({"max_skew": 1}, set()),
        ({"max_skew": 2}, {"w-3"}),
        ({"max_skew": 3}, {"w-2", "w-3"}),
        ({"max_skew": 2, "min_domains": 9}, {"w-3"}),
        ({"max_skew": 1, "heeds_taints": True}, {"w-3"}),
    ],
)
def test_a_spread_counts_the_cordoned_node_too_unless_it_heeds_taints(
    constraint: dict[str, object], expected: set[str]
) -> None:
    spread = demanding(spreads=(Spread(HOSTNAME, selector=app("web"), **constraint),))  # type: ignore[arg-type]
    rooms = Scheduler.of(inputs(NODES, pods=[spread, *SPREAD]).snapshot)
    rooms.set_cordoned(["w-1"])
    rooms.take_out(spread)
    checks = rooms.neighbors.topology_checks(spread, rooms.cordoned)
    assert {
        each.name for each in NODES[1:] if all(check.admits(each) for check in checks)
    } == expected


def test_a_spread_whose_selector_repeats_a_value_counts_each_pod_once() -> None:
    repeated = LabelSelector((Requirement("app", SelectorOperator.IN, ("web", "web")),))
    spread = demanding(spreads=(Spread(HOSTNAME, max_skew=2, selector=repeated),))
    assert place(spread, [pod("web-1", "w-2")]) == {"w-2", "w-3"}


def test_too_few_places_count_as_if_one_were_empty() -> None:
    even = [pod("web-1", "w-2"), pod("web-2", "w-3"), pod("web-3", "w-1")]
    plain = demanding(spreads=(Spread(HOSTNAME, 1, app("web")),))
    assert place(plain, even) == {"w-2", "w-3"}
    wide = demanding(spreads=(Spread(HOSTNAME, 1, app("web"), min_domains=4),))
    assert place(wide, even) == set()


def test_a_spread_counts_only_nodes_where_its_pod_may_run_unless_told_otherwise() -> None:
    nodes = [named("w-1"), named("w-2"), named("w-3", "b")]
    chosen = (NodeTerm((Requirement(ZONE_LABEL, SelectorOperator.IN, ("a",)),)),)
    crowd = [pod("web-1", "w-1"), pod("web-2", "w-2")]
    honest = demanding(node_terms=chosen, spreads=(Spread(HOSTNAME, 1, app("web")),))
    assert place(honest, crowd, nodes) == {"w-2"}
    wide = demanding(
        node_terms=chosen, spreads=(Spread(HOSTNAME, 1, app("web"), ignores_affinity=True),)
    )
    assert place(wide, crowd, nodes) == set()


def test_a_node_without_the_key_is_no_place_for_a_spread_and_one_for_a_distance() -> None:
    bare = [named("w-1"), node("w-2")]
    assert place(demanding(spreads=(Spread(ZONE_LABEL, 1, app("web")),)), [], bare) == set()
    assert place(demanding(repulsions=(PodTerm(ZONE_LABEL, app("db")),)), [], bare) == {"w-2"}


def test_volumes_of_a_zone_keep_to_it() -> None:
    stateful = structs.replace(MOVING, claims=("data",))
    here = NodeTerm((Requirement(ZONE_LABEL, SelectorOperator.IN, ("a",)),))
    snapshot = inputs(NODES, pods=[stateful]).snapshot
    rooms = Scheduler.of(replace(snapshot, volumes=(PersistentVolume("pv", "shop/data", (here,)),)))
    rooms.set_cordoned(["w-1"])
    rooms.take_out(stateful)
    assert rooms.choose_node(stateful) == "w-2"


@pytest.mark.parametrize("seed", range(6))
def test_counting_as_pods_move_is_counting_anew(seed: int) -> None:
    made = random_cluster(seed, 8, 12, demanding=True)
    random = Random(seed)  # noqa: S311 - reproducible, not secret
    names = [each.name for each in made.snapshot.nodes]
    moving = random.sample(made.snapshot.pods, 40)
    kept = Scheduler.of(made.snapshot)
    where = dict[str, str]()
    for each in moving:
        kept.neighbors.topology_checks(each, frozenset())
    for each in moving:
        target = where[each.uid] = random.choice(names)
        kept.take_out(each)
        kept.put(each, target)
    for each in random.sample(moving, 15):
        assert verdicts(kept, each, made) == verdicts(
            Scheduler.of(moved(made, where).snapshot), each, moved(made, where)
        )


def moved(made: PlanInputs, where: Mapping[str, str]) -> PlanInputs:
    pods = tuple(
        structs.replace(each, node=where.get(each.uid, each.node)) for each in made.snapshot.pods
    )
    return replace(made, snapshot=replace(made.snapshot, pods=pods))


def verdicts(rooms: Scheduler, moving: Pod, made: PlanInputs) -> list[bool]:
    """Of every node, whether the pod's neighbors let it in."""
    here = next(each for each in made.snapshot.pods if each.uid == moving.uid)
    at = rooms.node_of(here)
    rooms.take_out(here)
    checks = rooms.neighbors.topology_checks(here, frozenset())
    found = [all(check.admits(each) for check in checks) for each in made.snapshot.nodes]
    rooms.put(here, at)
    return found


# A wave goes only as large as its pods find places, all its nodes away at once.


ALL_AT_ONCE = Policy(max_unavailable=Count(9))


def hosted(name: str, pool: str, cores: int = 4) -> Node:
    return node(
        name,
        labels={HOSTNAME: name, "pool": pool},
        allocatable=Resources(cores * 1000, 8 << 30, 110),
    )


def pooled(name: str, on: str, pool: str, cores: int = 2) -> Pod:
    return pod(
        name, on, app=name, node_selector={"pool": pool}, requests=Resources(cores * 1000, 0, 1)
    )


def small_pool() -> PlanInputs:
    """Three nodes for certain pods, with room for those of one node besides their own; ample room
    elsewhere.
    """
    nodes = [
        *(hosted(f"p-{i}", "p", 3) for i in range(3)),
        *(hosted(f"w-{i}", "w", 16) for i in range(6)),
    ]
    pods = [pooled(f"a-{i}", f"p-{i}", "p", 1) for i in range(3)] + [pooled("b", "p-0", "p", 1)]
    return inputs(nodes, pods=pods, policy=ALL_AT_ONCE)


def test_an_error_while_a_node_is_emptied_puts_its_pods_back() -> None:
    snapshot = small_pool().snapshot
    scheduler = Scheduler.of(snapshot)
    pods = [pod for pod in snapshot.pods if pod.node == "p-0"]
    with pytest.raises(KeyError), scheduler.emptied({"p-0": pods}):
        raise KeyError
    assert {scheduler.node_of(pod) for pod in pods} == {"p-0"}


def test_a_pool_is_not_emptied_at_once_though_the_cluster_has_room() -> None:
    plan = build_plan(small_pool())
    sizes = [sum(name.startswith("p-") for name in wave) for wave in waves(plan)]
    assert sum(sizes) == 3
    assert max(sizes) < 3
    assert not [found for found in plan.warnings if found.kind is WarningKind.FITS_NOWHERE]
    assert sorted(name for wave in waves(plan) for name in wave) == sorted(
        each.name for each in small_pool().snapshot.nodes
    )


def test_one_turned_away_goes_later_and_the_explanation_says_for_which_pod() -> None:
    made = decide(small_pool())
    late = made.waves[-1].demands[0].name
    found = explain(made, late)
    assert found.wave > 1
    reasons = [reason for entry in found.not_earlier for reason in entry.because]
    assert any(
        "will be down until the reboot is done" in reason and "shop/" in reason
        for reason in reasons
    )


def test_a_budget_does_not_wait_in_vain_for_pods_that_follow_another() -> None:
    nodes = [hosted("w-1", "w"), hosted("w-2", "w")]
    drawn = Placement(attractions=(PodTerm(HOSTNAME, app("hub")),))
    pods = [pod(f"f-{i}", "w-1", app="f", placement=drawn) for i in range(2)] + [
        pod("hub", "w-1", app="hub")
    ]
    guarded = inputs(nodes, pods=pods, budgets=[budget("f", allowed=1, expected=2)])
    assert not build_plan(guarded).blockers
    pinned = [*pods[:2], structs.replace(pods[2], node_selector={HOSTNAME: "w-1"})]
    plan = build_plan(inputs(nodes, pods=pinned, budgets=[budget("f", allowed=1, expected=2)]))
    assert [found.kind for found in plan.blockers] == [BlockerKind.FITS_NOWHERE]
    assert "the pod affinity rules" in plan.blockers[0].message
