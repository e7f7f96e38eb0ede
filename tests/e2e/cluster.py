"""A cluster whose Nodes are real machines: the lab's API server and controllers, with kubelets that
follow them.
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollout.lab.api.lifecycle import ensure_namespace, with_defaults
from rollout.lab.api.resources import NODES, Resource
from rollout.lab.api.store import Change
from rollout.lab.clock import LabClock
from rollout.lab.hostplan import HostPlan, plan_hosts
from rollout.lab.manifests import workload_objects
from rollout.lab.scenario import (
    NodeGroup,
    Role,
    Scenario,
    ScenarioBudget,
    ScenarioWorkload,
    WorkloadKind,
)
from rollout.lab.scoreboard import Scoreboard, ScoreKeeper
from rollout.lab.world.world import World
from tests.e2e.machines import Machines
from tests.e2e.real_host import RealHost, Watch
from tests.standalone_api import StandaloneApi, standalone_api

# Controllers and kubelets hurry; the machines take the time they take.
_SPEED = 10
SCENARIO = Scenario(
    description="six real machines",
    nodes=(
        NodeGroup(prefix="control", role=Role.CONTROL_PLANE, count=1),
        NodeGroup(prefix="worker", role=Role.WORKER, count=5),
    ),
    workloads=(
        ScenarioWorkload(kind=WorkloadKind.STATIC_POD, name="etcd", role=Role.CONTROL_PLANE),
        ScenarioWorkload(
            kind=WorkloadKind.DAEMON_SET,
            name="proxy",
            spec={"tolerations": [{"operator": "Exists"}]},
        ),
        ScenarioWorkload(
            kind=WorkloadKind.DEPLOYMENT,
            name="web",
            replicas=6,
            spread="kubernetes.io/hostname",
            budget=ScenarioBudget(max_unavailable="1"),
        ),
    ),
)
NAMES = tuple(plan.name for plan in plan_hosts(SCENARIO))


@dataclass(frozen=True)
class Cluster:
    """What a test sees of it."""

    kubeconfig: Path
    hosts: Sequence[RealHost]
    scoreboard: Callable[[], Scoreboard]
    # Calls a function with each change of an object from now on.
    subscribe: Callable[[Callable[[Change], None]], None]


@contextmanager
def cluster_of(
    machines: Machines, directory: Path, *, scenario: Scenario = SCENARIO, speed: float = _SPEED
) -> Iterator[Cluster]:
    """A cluster of these machines at rest, for as long as the context lasts."""
    with standalone_api(directory, speed=speed) as api:
        world = api.call(
            lambda: World(
                api.store,
                LabClock(speed),
                timings=scenario.timings,
                rng=random.Random(1),  # noqa: S311 - repeatable on purpose
            )
        )
        hosts = {machine.name: RealHost(machine) for machine in machines}
        api.call(lambda: _populate(api, world, hosts, scenario))
        keeper = api.call(lambda: ScoreKeeper(world))
        passing = asyncio.run_coroutine_threadsafe(world.run(), api.loop)
        watch = Watch(tuple(hosts.values()), api.call)
        try:
            yield Cluster(
                kubeconfig=api.kubeconfig,
                hosts=tuple(hosts.values()),
                scoreboard=lambda: api.call(keeper.scoreboard),
                subscribe=lambda observer: api.call(lambda: api.store.subscribe(observer)),
            )
        finally:
            watch.stop()
            api.call(world.stop)
            passing.result(10)


def _populate(
    api: StandaloneApi, world: World, hosts: dict[str, RealHost], scenario: Scenario
) -> None:
    plans = plan_hosts(scenario)
    for plan in plans:
        hosts[plan.name].settings = plan.settings
        world.kubelets.add(hosts[plan.name])
    uids = {node["metadata"]["name"]: node["metadata"]["uid"] for node in api.store.items(NODES)}
    for kind, obj in _objects(scenario, plans, uids):
        if kind.namespaced:
            ensure_namespace(api.store, obj["metadata"]["namespace"])
        api.store.create(kind, with_defaults(kind, obj))
    world.fast_forward()


def _objects(
    scenario: Scenario, plans: tuple[HostPlan, ...], uids: dict[str, str]
) -> Iterator[tuple[Resource, dict[str, Any]]]:
    for workload in scenario.workloads:
        yield from workload_objects(workload, plans, uids)
