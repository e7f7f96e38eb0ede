"""Rollouts of random clusters, planned and played twice: the first run is the second one's past.

A seed is a cluster with its workloads and rules. Beside the plain ones there are such with pools
(several, one after another or side by side, with limits and strategies of their own), such whose
replacements take minutes, and such with databases.
"""

from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any

from msgspec.structs import replace

from rollout.lab.api.resources import CLUSTERS
from rollout.lab.hosts.machine import HostSettings
from rollout.model.plan import RolloutPlan
from rollout.model.policy import ControlPlaneOrder, Policy, Pool, Strategy
from rollout.model.quantity import Count, Duration
from rollout.planning.play.pace import HANDOVER_SECONDS
from tests.lab.world.simulation import Simulation
from tests.lab.world.simulation import workload as template
from tests.planning.chance import leave_to_chance
from tests.planning.played import Played, is_placed, is_warned, plan_of, play

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
LAB = "lab.node-rollout.dev"
LIMITS: tuple[tuple[str, int | str] | None, ...] = (
    None,
    ("maxUnavailable", 1),
    ("maxUnavailable", 2),
    ("maxUnavailable", "50%"),
    ("minAvailable", 1),
    ("minAvailable", "50%"),
    ("minAvailable", "90%"),
)
# Plans are estimated for a cluster at rest: that long, in seconds, and longer until what was moved
# last is well.
REST = 180
LONGEST_REST = 7200


class Variety(StrEnum):
    """What a random rollout is about."""

    PLAIN = "plain"
    POOLS = "pools"
    SLOW = "slow"
    DATABASES = "databases"


class End(StrEnum):
    """How a random rollout ended; those that tell nothing are `NOTHING`."""

    NOTHING = "nothing"
    WARNED = "warned"
    STUCK = "stuck"
    BROKEN = "broken"
    MEASURED = "measured"


@dataclass(frozen=True)
class Trial:
    """How it ended, and of a measured one its estimate and what it took, in seconds."""

    seed: int
    variety: Variety
    end: End
    told: str = ""
    estimate: float = 0.0
    took: float = 0.0

    @property
    def ratio(self) -> float:
        """The estimate to what it took."""
        return self.estimate / self.took


def tried(seed: int, variety: Variety, chance: int | None = None) -> Trial:
    """Plan and play the rollout of this seed twice, and judge it.

    `chance` is the seed of what no plan knows of the second.
    """
    random = Random(seed)  # noqa: S311 - reproducible, not secret
    is_slow = variety is Variety.SLOW
    sim = cluster(random, is_slow=is_slow)
    if variety is Variety.DATABASES:
        for number in range(random.randint(1, 3)):
            database(sim, random, f"data{number}")
    policy = policy_of(random, len(sim.hosts), is_slow=is_slow)
    if variety is Variety.POOLS:
        policy = replace(policy, pools=tuple(pools(random)))
    first_plan = plan_of(sim, policy) if is_at_rest(sim) else None
    if first_plan is None or first_plan.blockers or not first_plan.waves:
        return Trial(seed, variety, End.NOTHING)
    first = play(sim, first_plan)
    if first.stuck:
        return stuck(seed, variety, first_plan, first)
    plan = plan_of(sim, policy, first.past) if is_at_rest(sim) else first_plan
    if plan is first_plan or plan.blockers:
        return Trial(seed, variety, End.NOTHING)
    if chance is not None:
        leave_to_chance(sim, chance)
    second = play(sim, plan)
    if second.stuck:
        return stuck(seed, variety, plan, second)
    scores = sim.keeper.scoreboard()
    if (
        scores.budgets_broken
        or scores.killed
        or scores.most_unavailable > policy.max_unavailable.of(len(sim.hosts))
    ):
        return Trial(seed, variety, End.BROKEN, str(scores))
    told = f"{policy.strategy}, limit {policy.max_unavailable}"
    return Trial(seed, variety, End.MEASURED, told, plan.estimate.seconds, second.seconds)


def stuck(seed: int, variety: Variety, plan: RolloutPlan, played: Played) -> Trial:
    """What could not be finished, as the plan has warned, or not."""
    warned = {warning.node for warning in plan.warnings if is_warned(warning)}
    end = End.WARNED if played.stuck <= warned else End.STUCK
    return Trial(seed, variety, end, f"{sorted(played.stuck)} in a plan by {plan.policy.strategy}")


def cluster(random: Random, *, is_slow: bool) -> Simulation:
    """Two to seven nodes of four cores with up to four workloads, at rest."""
    sim = Simulation()
    nodes = random.randint(2, 7)
    for index in range(1, nodes + 1):
        is_control_plane = index == 1 and random.random() < 0.4
        labels = {HOSTNAME: f"n{index}", ZONE: "abc"[index % 3], "kind": "xyz"[index * 7 % 5 % 3]}
        if is_control_plane:
            labels["node-role.kubernetes.io/control-plane"] = ""
        settings = HostSettings(
            capacity={"cpu": "4", "memory": "16Gi", "pods": "20"}, labels=labels
        )
        sim.add_node(f"n{index}", settings)
    for number in range(random.choice([1, 1, 4])):
        sim.daemon_set(f"agent{number}")
    for number in range(random.randint(1, 4)):
        workload(sim, random, f"app{number}", is_slow=is_slow)
    sim.begin()
    return sim


def is_at_rest(sim: Simulation) -> bool:
    """Let it come to rest; whether it does."""
    sim.advance(REST)
    began = sim.clock.monotonic()
    while not is_placed(sim) and sim.clock.monotonic() - began < LONGEST_REST:
        sim.advance(REST)
    return is_placed(sim)


def workload(sim: Simulation, random: Random, name: str, *, is_slow: bool) -> None:
    """A Deployment or a StatefulSet, kept apart or not, with pods that end and start as slowly as
    they will.
    """
    more: dict[str, Any] = {}
    if random.random() < 0.3:
        term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": name}}}
        more["affinity"] = {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        }
    annotations: dict[str, str] = {}
    if random.random() < 0.3:
        grace = random.choice([5, 30, 90])
        more["terminationGracePeriodSeconds"] = grace
        annotations[f"{LAB}/termination-seconds"] = str(random.choice([1, 5, grace]))
    if random.random() < 0.2:
        annotations[f"{LAB}/startup-seconds"] = str(random.choice([5, 20, 60]))
    if is_slow and random.random() < 0.6:
        annotations[f"{LAB}/startup-seconds"] = str(random.choice([90, 150, 240, 400]))
    make = sim.stateful_set if random.random() < 0.5 else sim.deployment
    replicas = random.randint(1, 8)
    cpu = random.choice([100, 300, 800, 1500])
    make(name, replicas, cpu=f"{cpu}m", annotations=annotations or None, **more)
    limit = random.choice(LIMITS)
    if limit:
        sim.budget(name, **dict([limit]))


def database(sim: Simulation, random: Random, name: str) -> None:
    """A primary, which its operator moves off a cordoned node, and its replicas."""
    annotations = {f"{LAB}/switchover-seconds": str(HANDOVER_SECONDS)}
    spec = template(name, cpu="100m", annotations=annotations)
    sim.create(CLUSTERS, name, {**spec, "instances": random.randint(2, 4)})


def policy_of(random: Random, nodes: int, *, is_slow: bool) -> Policy:
    """Rules; those for slow replacements wait long enough for a few of them."""
    policy = Policy(
        max_unavailable=Count(random.randint(1, 5)),
        strategy=random.choice(list(Strategy)),
        prefer_no_schedule_taint=random.random() < 0.6,
        canary=random.choice([0, 0, 1]),
        spread_by=random.choice(["", ZONE]),
        control_plane=random.choice(list(ControlPlaneOrder)),
    )
    if not is_slow:
        return policy
    drain = replace(policy.drain, timeout=Duration(random.choice([600, 1800, 3600])))
    return replace(policy, drain=drain, settle_timeout=Duration(3600))


def pools(random: Random) -> list[Pool]:
    """One to three of them, by their nodes' kind; what none matches is the default pool's."""
    kinds = random.sample(["x", "y", "z"], random.randint(1, 3))
    return [
        Pool(
            kind,
            f"kind={kind}",
            after=tuple(earlier for earlier in kinds[:place] if random.random() < 0.4),
            max_unavailable=random.choice([None, Count(1), Count(2), Count(50, percent=True)]),
            canary=random.choice([None, 0, 1]),
            strategy=random.choice([None, *Strategy]),
            spread_by=random.choice([None, None, "", ZONE]),
            drain_timeout=random.choice([None, Duration(300), Duration(1200)]),
        )
        for place, kind in enumerate(kinds)
    ]
