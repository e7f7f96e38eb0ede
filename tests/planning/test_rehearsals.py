"""What is forecast of a cluster, and what the rollout of its copy takes, in simulated time.

A seed is a random cluster with workloads that leave their nodes in a way of their own: databases
whose operator moves the primary, single replicas that a restart moves, and Jobs that are waited
for. It is planned, copied as `lab up --like` copies it, planned again, and played.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import pytest

from rollout.cli.stages.preview import cluster_copy
from rollout.gather.cluster.snapshot import CachedObjects
from rollout.lab.api.resources import (
    BUDGETS,
    DEPLOYMENTS,
    PODS,
    REPLICASETS,
)
from rollout.lab.api.store import Json
from rollout.lab.objects import labels_of, node_name, spec_of, with_metadata
from rollout.model.plan import RolloutPlan
from rollout.model.policy import CompletionPolicy, DrainPolicy, Policy, Restart, Strategy
from rollout.model.quantity import Count, Duration
from rollout.planning.plan.build import build_plan
from rollout.planning.play.pace import HANDOVER_SECONDS
from tests.lab.world.simulation import Simulation, names, workload
from tests.planning.chance import leave_to_chance
from tests.planning.played import Played, copied, inputs_of, is_warned, play
from tests.planning.random_rollouts import LAB, cluster, database, is_at_rest

Add = Callable[[Simulation, Random, str], None]

JOB_TIMEOUT = 2400
DRAIN = DrainPolicy(
    restart=Restart.BLOCKED,
    completion=CompletionPolicy(("job-name",), Duration(JOB_TIMEOUT)),
)


def single_replica(sim: Simulation, random: Random, name: str) -> None:
    """A Deployment whose budget needs its only pod."""
    annotations = {f"{LAB}/startup-seconds": str(random.choice([5, 20, 60, 120]))}
    sim.deployment(name, 1, cpu="100m", annotations=annotations)
    sim.budget(name, minAvailable=1)


def job(sim: Simulation, random: Random, name: str) -> None:
    """A pod that completes, and when, if that is known."""
    deadline = random.choice([400, 900, 1500, None])
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"uid-{name}"}
    sim.create(
        PODS,
        f"{name}-x",
        {
            "containers": [{"name": "main", "image": "i"}],
            "terminationGracePeriodSeconds": 30,
            **({"activeDeadlineSeconds": deadline} if deadline else {}),
        },
        labels={"app": name, "job-name": name},
        annotations={f"{LAB}/run-seconds": str(deadline or JOB_TIMEOUT)},
        ownerReferences=[{**owner, "controller": True}],
    )


def stateful_database(sim: Simulation, random: Random, name: str) -> None:
    """A database whose pods belong to a StatefulSet: only its budget belongs to the operator."""
    sim.stateful_set(name, random.randint(2, 3), cpu="100m")
    sim.advance(120)
    for number, pod in enumerate(sim.pods(name)):
        role = "replica" if number else "primary"
        sim.store.put(PODS, with_metadata(pod, labels={**labels_of(pod), "role": role}))
    operated: Json = {
        "apiVersion": "db.example/v1",
        "kind": "Db",
        "name": name,
        "uid": f"uid-{name}",
    }
    selector = {"matchLabels": {"app": name, "role": "primary"}}
    sim.create(
        BUDGETS,
        name,
        {"selector": selector, "minAvailable": 1},
        ownerReferences=[{**operated, "controller": True}],
    )


ADDED: dict[str, tuple[Add, ...]] = {
    "databases": (database,),
    "stateful-databases": (stateful_database,),
    "single-replicas": (single_replica,),
    "jobs": (job,),
    "all": (database, stateful_database, single_replica, job),
}


@dataclass(frozen=True)
class Rehearsal:
    """A plan, the plan of the copy, and how its run went."""

    plan: RolloutPlan
    plan_of_copy: RolloutPlan
    played: Played
    # The snapshot.
    document: bytes

    @property
    def warned(self) -> set[str]:
        """The nodes whose drain may wait for a budget in vain, by the plan."""
        return {warning.node for warning in self.plan.warnings if is_warned(warning)}

    def repeated(self, times: int) -> list[Played]:
        """Rehearse the plan on other copies, which differ by chance."""
        runs = []
        for seed in range(1, times + 1):
            copy, down = copied(self.document)
            leave_to_chance(copy, seed)
            runs.append(play(copy, self.plan_of_copy, down))
        return runs

    @property
    def ratio(self) -> float:
        """The forecast to what the copy took."""
        return self.plan.estimate.seconds / self.played.seconds


def rehearsed(seed: int, kind: str) -> Rehearsal | None:
    """None for a cluster that is not at rest, or whose plan is blocked."""
    random = Random(seed)  # noqa: S311 - reproducible, not secret
    sim = cluster(random, is_slow=False)
    for add in ADDED[kind]:
        for number in range(random.randint(1, 3)):
            add(sim, random, f"{add.__name__.replace('_', '-')}{number}")
    policy = Policy(
        max_unavailable=Count(random.randint(1, 3)),
        strategy=random.choice(list(Strategy)),
        drain=DRAIN,
        prefer_no_schedule_taint=True,
    )
    if not is_at_rest(sim):
        return None
    kept: CachedObjects = {}
    inputs = inputs_of(sim, policy, now=sim.clock.now(), kept=kept)
    plan = build_plan(inputs)
    if plan.blockers or not plan.waves:
        return None
    document = cluster_copy(inputs, kept, anonymous=False)
    copy, down = copied(document)
    plan_of_copy = build_plan(inputs_of(copy, policy, now=copy.clock.now()))
    return Rehearsal(plan, plan_of_copy, play(copy, plan_of_copy, down), document)


# With 11, 143 and 241, Deployments of several replicas are restarted. With 50 and 82, pods of an
# owner could share a node.
SEEDS = (0, 5, 7, 9, 10, 11, 12, 13, 16, 17, 19, 20, 21, 23, 50, 82, 143, 241)


@pytest.mark.slow
@pytest.mark.sample(10)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ADDED)
def test_a_copy_takes_as_long_as_was_forecast_within_a_tenth(seed: int, kind: str) -> None:
    rehearsal = rehearsed(seed, kind)
    assert rehearsal is not None
    assert rehearsal.plan_of_copy.blockers == ()
    assert rehearsal.plan_of_copy.warnings == rehearsal.plan.warnings
    assert rehearsal.plan_of_copy.estimate == rehearsal.plan.estimate
    assert rehearsal.played.stuck == set()
    assert 0.9 <= rehearsal.ratio <= 1.1


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "kind"), [(71, "stateful-databases"), (457, "databases")])
def test_where_chance_decides_more_than_a_tenth_the_forecast_is_one_of_its_outcomes(
    seed: int, kind: str
) -> None:
    """Restarts end equal pods in any order."""
    rehearsal = rehearsed(seed, kind)
    assert rehearsal is not None
    runs = rehearsal.repeated(10)
    assert not any(run.stuck for run in runs)
    shortest, longest = (limit(run.seconds for run in runs) for limit in (min, max))
    assert longest > 1.09 * shortest
    assert 0.99 * shortest <= rehearsal.plan.estimate.seconds <= 1.02 * longest


@pytest.mark.slow
def test_where_chance_decides_whether_a_drain_ends_the_plan_warns_of_its_node() -> None:
    """There is room for some pods only, and a budget waits for the others."""
    rehearsal = rehearsed(72, "databases")
    assert rehearsal is not None
    outcomes = [frozenset(run.stuck) for run in rehearsal.repeated(8)]
    assert set(outcomes) == {frozenset(), frozenset({"n2"})}
    assert "n2" in rehearsal.warned


def copy_of(sim: Simulation) -> Simulation:
    kept: CachedObjects = {}
    inputs = inputs_of(sim, Policy(drain=DRAIN), now=sim.clock.now(), kept=kept)
    copy, _ = copied(cluster_copy(inputs, kept, anonymous=False))
    return copy


def test_a_copy_has_the_deployments_with_their_names_and_strategies() -> None:
    sim = Simulation(2)
    strategies: dict[str, Json] = {
        "web": {"type": "Recreate"},
        "api": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}},
    }
    for name, strategy in strategies.items():
        sim.create(DEPLOYMENTS, name, {**workload(name, replicas=2), "strategy": strategy})
    sim.budget("web", minAvailable=2)
    sim.advance(60)
    copy = copy_of(sim)
    for name, strategy in strategies.items():
        spec = spec_of(copy.get(DEPLOYMENTS, name))
        assert (spec["replicas"], spec["strategy"]["type"]) == (2, strategy["type"])
        assert names(copy.pods(name)) == names(sim.pods(name))
    assert spec_of(copy.get(DEPLOYMENTS, "api"))["strategy"] == strategies["api"]
    assert names(copy.store.items(REPLICASETS)) == names(sim.store.items(REPLICASETS))


def test_pods_in_the_copy_have_started_as_slowly_as_the_forecast_assumes() -> None:
    sim = Simulation(2)
    sim.deployment("web", 1, annotations={f"{LAB}/startup-seconds": "120"})
    sim.advance(180)
    (pod,) = inputs_of(copy_of(sim), Policy()).snapshot.pods
    assert pod.start_seconds == 120


@pytest.mark.parametrize(("application", "is_moved"), [("spilo", True), ("other", False)])
def test_the_copy_plays_the_operator_of_pods_that_planning_knows_by_their_label(
    application: str, *, is_moved: bool
) -> None:
    sim = Simulation(3)
    sim.stateful_set("pg", 2)
    sim.advance(60)
    for role, pod in zip(("primary", "replica"), sim.pods("pg"), strict=True):
        labels = {**labels_of(pod), "role": role, "application": application}
        sim.store.put(PODS, with_metadata(pod, labels=labels))
    selector = {"matchLabels": {"app": "pg", "role": "primary"}}
    sim.create(BUDGETS, "pg", {"selector": selector, "minAvailable": 1})
    sim.advance(60)
    copy = copy_of(sim)
    (primary,) = primaries = [pod for pod in copy.pods("pg") if labels_of(pod)["role"] == "primary"]
    copy.cordon(node_name(primary))
    copy.advance(HANDOVER_SECONDS + 1)
    after = [pod for pod in copy.pods("pg") if labels_of(pod)["role"] == "primary"]
    assert (names(after) != names(primaries)) is is_moved
