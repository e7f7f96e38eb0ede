"""Random clusters as large as real ones: three zones, many small workloads, budgets of every kind."""

from collections.abc import Iterator
from random import Random

from rollout.model.cluster import (
    ZONE_LABEL,
    Budget,
    LabelSelector,
    Node,
    Pod,
    Requirement,
    Resources,
    SelectorOperator,
)
from rollout.model.placement import ANYWHERE, Placement, PodTerm, Spread
from rollout.model.policy import Policy
from rollout.model.quantity import Count
from rollout.planning.plan.build import PlanInputs
from tests.planning.builders import budget, inputs, node, pod

ZONES = ("a", "b", "c")


HOSTNAME = "kubernetes.io/hostname"


def random_cluster(
    seed: int, nodes: int, pods_per_node: int, at_once: int | None = None, *, demanding: bool = False
) -> PlanInputs:
    """A cluster of so many nodes and about so many pods a node; `at_once` is the limit, otherwise drawn.

    In a `demanding` one most workloads keep their pods apart, spread them strictly or are drawn to a zone.
    """
    random = Random(seed)  # noqa: S311 - reproducible, not secret
    offered = Resources(8000, 32 << 30, 250)
    machines = [
        node(f"w-{i}", labels={ZONE_LABEL: ZONES[i % 3], "kubernetes.io/hostname": f"w-{i}"}, allocatable=offered)
        for i in range(nodes)
    ]
    pods: list[Pod] = []
    budgets: list[Budget] = []
    while len(pods) < nodes * pods_per_node:
        replicas = min(random.choice((1, 2, 2, 3, 3, 5, 8, 20, nodes // 10 or 1)), nodes * pods_per_node - len(pods))
        app = f"app-{len(pods)}"
        placement = _placement(random, app) if demanding else ANYWHERE
        pods += _pods(random, machines, app, replicas, placement)
        budgets += _budgets(random, app, replicas)
    limit = at_once or random.choice((1, 3, nodes // 20 or 1, nodes // 10 or 1, nodes // 4))
    return inputs(machines, pods=pods, budgets=budgets, policy=Policy(max_unavailable=Count(limit)))


def _placement(random: Random, app: str) -> Placement:
    """One of what real workloads demand of their neighbours, mostly of their own pods."""
    own = LabelSelector((Requirement("app", SelectorOperator.IN, (app,)),))
    kinds = (
        ANYWHERE,
        Placement(repulsions=(PodTerm(HOSTNAME, own),)),
        Placement(spreads=(Spread(HOSTNAME, 1, own),)),
        Placement(spreads=(Spread(ZONE_LABEL, 1, own),)),
        Placement(spreads=(Spread(ZONE_LABEL, 1, own), Spread(HOSTNAME, 2, own))),
        Placement(attractions=(PodTerm(ZONE_LABEL, own),)),
    )
    return random.choice(kinds)


def _pods(random: Random, machines: list[Node], app: str, replicas: int, placement: Placement) -> Iterator[Pod]:
    places = random.sample(machines, min(replicas, len(machines)))
    asked = Resources(random.choice((10, 20, 50)), random.choice((32, 64, 128)) << 20, 1)
    for index in range(replicas):
        where = places[index % len(places)].name
        yield pod(f"{app}-{index}", where, app=app, requests=asked, placement=placement)


def _budgets(random: Random, app: str, replicas: int) -> Iterator[Budget]:
    """None, one that allows a pod, a third, a half or all but one; for single replicas rarely one that allows none."""
    kind = random.randrange(6)
    if kind <= 1 or (replicas == 1 and random.random() > 0.02):
        return
    allowed = {2: 1, 3: max(1, replicas // 3), 4: max(1, replicas // 2), 5: max(1, replicas - 1)}[kind]
    yield budget(app, allowed=0 if replicas == 1 else min(allowed, replicas - 1), expected=replicas)
