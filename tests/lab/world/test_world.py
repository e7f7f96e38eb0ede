"""The world as a whole, in time that really passes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from typing_extensions import override

from rollout.lab.api.resources import DEPLOYMENTS, NODES, PODS
from rollout.lab.api.store import Change, Json, ObjectStore
from rollout.lab.clock import LabClock
from rollout.lab.objects import is_ready
from rollout.lab.world.world import World
from tests.lab.world.simulation import NAMESPACE, machine, workload


def web(replicas: int) -> Json:
    metadata = {"name": "web", "namespace": NAMESPACE, "generation": 1}
    return {"metadata": metadata, "spec": workload("web", replicas=replicas)}


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not holds():  # noqa: ASYNC110 - it is the store that changes, and it knows no events
            await asyncio.sleep(0.01)


@asynccontextmanager
async def passing_time(world: World) -> AsyncIterator[None]:
    running = asyncio.create_task(world.run())
    yield
    world.stop()
    await running


class HeldUpClock(LabClock):
    """Between two readings of it nothing much happens, but for one: before that the process was
    held up for long.
    """

    def __init__(self) -> None:
        super().__init__(speed=1e6)
        self.readings = self.held_up_before = 0
        self._elapsed = 0.0

    @override
    def monotonic(self) -> float:
        self.readings += 1
        self._elapsed += 300 if self.readings == self.held_up_before else 0.25
        return self._elapsed


class Cluster:
    def __init__(self, speed: float, nodes: int, clock: LabClock | None = None) -> None:
        self.clock = clock or LabClock(speed)
        self.store = ObjectStore(now=self.clock.now)
        self.world = World(self.store, self.clock)
        for number in range(1, nodes + 1):
            self.world.kubelets.add(machine(number, self.clock))

    def ready_nodes(self) -> int:
        return sum(map(is_ready, self.store.items(NODES)))

    def ready_pods(self) -> int:
        return sum(map(is_ready, self.store.items(PODS)))


@pytest.mark.parametrize("moment", range(1, 31))
def test_at_whatever_moment_it_is_held_up_no_living_node_is_taken_for_silent(moment: int) -> None:
    clock = HeldUpClock()
    cluster = Cluster(speed=1, nodes=12, clock=clock)
    cluster.world.fast_forward()
    clock.held_up_before = clock.readings + moment
    least = cluster.ready_nodes()

    def look(_change: Change) -> None:
        nonlocal least
        least = min(least, cluster.ready_nodes())

    async def live() -> None:
        async with passing_time(cluster.world):
            await until(lambda: cluster.world.agenda.time > 400)

    cluster.store.subscribe(look)
    asyncio.run(live())
    assert clock.readings >= clock.held_up_before
    assert least == 12


def test_an_object_that_no_controller_understands_stops_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster(speed=100, nodes=1)
    cluster.world.fast_forward()

    async def live() -> None:
        async with passing_time(cluster.world):
            await asyncio.sleep(0.01)
            nonsense = {
                "metadata": {"name": "broken", "namespace": NAMESPACE},
                "spec": {"replicas": 1},
            }
            cluster.store.create(DEPLOYMENTS, nonsense)
            containers = [{"name": "c", "resources": {"requests": {"cpu": "much"}}}]
            greedy = {
                "metadata": {"name": "greedy", "namespace": NAMESPACE},
                "spec": {"containers": containers},
            }
            cluster.store.create(PODS, greedy)
            cluster.store.create(DEPLOYMENTS, web(1))
            await until(lambda: cluster.ready_pods() == 1)

    asyncio.run(live())
    assert sum("the simulated cluster failed" in message for message in caplog.messages) >= 2
    caplog.clear()
