"""How long a large lab takes to come to rest, what memory it takes, and what it costs when idle.

Run: python tests/benchmarks/lab_scale.py [NODES] [PODS] [SPEED]
"""

import argparse
import asyncio
import resource
import time
from dataclasses import dataclass
from typing import Any

from rollout.lab.api.resources import BUDGETS, DAEMONSETS, DEPLOYMENTS, NAMESPACES, PODS
from rollout.lab.api.store import ObjectStore
from rollout.lab.clock import LabClock
from rollout.lab.scoreboard import ScoreKeeper
from rollout.lab.world.objects import is_ready
from rollout.lab.world.world import World

REPLICAS = 28
IDLE_SECONDS = 20.0


@dataclass(frozen=True)
class PlainHost:
    """A host that only is."""

    name: str
    address: str
    machine_id: str
    boot_id: str = "0b1c2d3e-0000-4000-8000-000000000001"
    running: bool = True
    os_image: str = "Flatcar Container Linux by Kinvolk 4081.2.0 (Oklo)"
    os_version: str = "4081.2.0"
    staged_version: str = ""
    kernel_version: str = "6.6.60-flatcar"


def template(app: str) -> dict[str, Any]:
    """A pod of one small container."""
    container = {
        "name": "main",
        "image": "registry.example/app:1",
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    }
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": [container]}}


def seed(store: ObjectStore, world: World, nodes: int, pods: int) -> None:
    """Nodes, one DaemonSet, and Deployments with a budget each."""
    for index in range(nodes):
        address = f"127.{1 + index // 65536}.{index // 256 % 256}.{index % 256}"
        world.add_host(PlainHost(f"node-{index:04}", address, f"{index:032x}"))
    store.create(NAMESPACES, {"metadata": {"name": "apps"}, "status": {"phase": "Active"}})
    spec = {"selector": {"matchLabels": {"app": "agent"}}, "template": template("agent")}
    store.create(DAEMONSETS, _object("agent", spec))
    for index in range(max(0, pods - nodes) // REPLICAS):
        name = f"app-{index:04}"
        selector = {"matchLabels": {"app": name}}
        store.create(
            DEPLOYMENTS,
            _object(name, {"replicas": REPLICAS, "selector": selector, "template": template(name)}),
        )
        store.create(BUDGETS, _object(name, {"maxUnavailable": 1, "selector": selector}))


def _object(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "apps", "generation": 1}, "spec": spec}


def resident_megabytes() -> float:
    """The most memory the process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def idle(world: World) -> float:
    """The share of one CPU that the world takes when nothing happens."""
    began = time.process_time()
    task = asyncio.create_task(world.run())
    await asyncio.sleep(IDLE_SECONDS)
    world.stop()
    await task
    return (time.process_time() - began) / IDLE_SECONDS


def main(nodes: int, pods: int, speed: float) -> None:
    """Print the figures."""
    clock = LabClock(speed)
    store = ObjectStore(now=clock.now)
    world = World(store, clock)
    keeper = ScoreKeeper(world)
    began = time.perf_counter()
    seed(store, world, nodes, pods)
    world.settle()
    keeper.begin()
    took = time.perf_counter() - began
    ready = sum(map(is_ready, store.items(PODS)))
    print(f"{nodes} nodes, {pods} pods, {ready} of them ready")
    print(f"settled in {took:.1f} s, {resident_megabytes():.0f} MB resident at most")
    print(f"idle at speed {speed:g}: {asyncio.run(idle(world)):.1%} of one CPU")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nodes", type=int, nargs="?", default=1000)
    parser.add_argument("pods", type=int, nargs="?", default=30_000)
    parser.add_argument("speed", type=float, nargs="?", default=1.0)
    asked = parser.parse_args()
    main(asked.nodes, asked.pods, asked.speed)
