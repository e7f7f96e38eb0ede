"""Plans of random clusters, played: each without a blocker can be finished, and takes about what was estimated."""

from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, assume, example, given, note, settings
from hypothesis import strategies as st

from rollout.lab.world.host import NodeSetting
from rollout.model.plan import RolloutPlan
from rollout.model.policy import Policy, Strategy
from rollout.model.quantity import Count
from tests.lab.world.simulation import Simulation
from tests.planning.played import Played, is_budget, is_placed, plan_of, play

# Seconds after which what was moved last is well: plans are estimated for a cluster at rest.
REST = 60
APART = {"topologyKey": "kubernetes.io/hostname"}


class App(NamedTuple):
    """A workload of a random cluster; `budget` is the field of its disruption budget, if any, and what stands in it."""

    stateful: bool
    replicas: int
    cpu: int
    budget: tuple[str, int | str] | None
    apart: bool


BUDGETS = st.sampled_from(
    (
        None,
        ("maxUnavailable", 1),
        ("maxUnavailable", 2),
        ("maxUnavailable", "50%"),
        ("minAvailable", 1),
        ("minAvailable", "50%"),
        ("minAvailable", "90%"),
    )
)
APPS = st.builds(
    App,
    stateful=st.booleans(),
    replicas=st.integers(1, 8),
    cpu=st.sampled_from((100, 300, 800, 1500)),
    budget=BUDGETS,
    apart=st.booleans(),
)
POLICIES = st.builds(
    Policy,
    max_unavailable=st.integers(1, 6).map(Count),
    strategy=st.sampled_from(Strategy),
    prefer_no_schedule_taint=st.booleans(),
)


def cluster(nodes: int, apps: list[App]) -> Simulation:
    """Nodes of four cores with these workloads on them, at rest."""
    sim = Simulation()
    for index in range(1, nodes + 1):
        labels = {"kubernetes.io/hostname": f"n{index}"}
        capacity = {"cpu": "4", "memory": "16Gi", "pods": "20"}
        sim.add_node(f"n{index}", NodeSetting(capacity=capacity, labels=labels))
    sim.daemon_set("agent")
    for index, app in enumerate(apps):
        name = f"app{index}"
        term = {**APART, "labelSelector": {"matchLabels": {"app": name}}}
        repelled = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        more = {"affinity": repelled} if app.apart else {}
        make = sim.stateful_set if app.stateful else sim.deployment
        make(name, app.replicas, cpu=f"{app.cpu}m", **more)
        if app.budget:
            sim.budget(name, **dict([app.budget]))
    sim.begin()
    return sim


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(
    max_examples=40,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),  # each play takes a second: shrinking one takes longer than reading it
)
@given(nodes=st.integers(2, 8), apps=st.lists(APPS, min_size=1, max_size=4), policy=POLICIES)
@example(  # room lets one begin at a time, so that no drain has the company that the limit allows
    nodes=4,
    apps=[
        App(True, 6, 800, ("maxUnavailable", 1), False),
        App(True, 3, 100, ("maxUnavailable", 2), True),
        App(True, 6, 100, ("maxUnavailable", 2), False),
    ],
    policy=Policy(max_unavailable=Count(6), strategy=Strategy.ROLLING, prefer_no_schedule_taint=False),
)
@example(  # a StatefulSet starts its pods one after another, however many its budget lets go together
    nodes=2,
    apps=[App(False, 2, 100, ("maxUnavailable", "50%"), True), App(True, 8, 300, ("maxUnavailable", "50%"), False)],
    policy=Policy(max_unavailable=Count(4), prefer_no_schedule_taint=False),
)
def test_a_plan_without_blockers_can_be_finished(nodes: int, apps: list[App], policy: Policy) -> None:
    sim = cluster(nodes, apps)
    assume(is_placed(sim))
    trial = plan_of(sim, policy)
    assume(not trial.blockers)
    first = finished(sim, trial)
    sim.advance(REST)
    again = plan_of(sim, policy, first.past)
    assume(not first.stuck and not again.blockers)
    second = finished(sim, again)
    scores = sim.keeper.scoreboard()
    assert (scores.budgets_broken, scores.killed) == ((), ())
    assert scores.most_unavailable <= policy.max_unavailable.of(nodes)
    assert scores.taints_left == ()
    assert 0.75 <= again.estimate.seconds / second.seconds <= 1.25


def finished(sim: Simulation, plan: RolloutPlan) -> Played:
    """The plan, played to its end, but for nodes of which it has warned that a budget may wait for room in vain."""
    played = play(sim, plan)
    for wave in plan.waves:
        note(f"{[node.name for node in wave.nodes]}: {wave.because}")
    note(f"{plan.estimate}, and it took {played}")
    warned = {warning.node for warning in plan.warnings if is_budget(warning)}
    assert set(played.stuck) <= warned
    return played
