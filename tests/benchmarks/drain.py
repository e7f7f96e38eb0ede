"""A node with 100 pods, drained by us and by kubectl on the same API server: time and requests, as ratios.

`python tests/benchmarks/drain.py`. Pods end half a second after they are told to. The second part drains them through
a budget that lets ten go at a time.
"""

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from rollout.adapters.kube import connect
from rollout.execution.drain import drain
from rollout.lab.api.standalone import StandaloneApi, standalone_api
from rollout.model.policy import DrainPolicy
from rollout.model.progress import StepEvent
from rollout.model.quantity import Duration
from tests.execution.drains import (
    add_budget,
    add_node,
    add_pod,
    allow,
    context_of,
    end_pods_at_once,
    kubectl,
    owner,
    pods_on,
    requests,
)

PODS = 100
ENDING = 0.5


class Deaf:
    """An observer that hears nothing."""

    def notify(self, event: StepEvent) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Cost:
    seconds: float
    requests: int


def measured(server: StandaloneApi, act: Callable[[], object], node: str) -> Cost:
    before, began = requests(server), time.monotonic()
    act()
    cost = Cost(time.monotonic() - began, requests(server) - before)
    assert pods_on(server, node) == set()
    return cost


def fill(server: StandaloneApi, node: str) -> None:
    add_node(server, node)
    for number in range(PODS):
        labels = {"labels": {"app": node}}
        add_pod(server, node, f"{node}-{number}", owned=owner("ReplicaSet"), metadata=labels)


@contextmanager
def dripping(server: StandaloneApi, budget: str) -> Iterator[None]:
    """A budget's controller that lets ten more go each second."""
    over = threading.Event()

    def drip() -> None:
        while not over.wait(1):
            allow(server, budget, 10)

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def compare(title: str, ours: Cost, theirs: Cost) -> None:
    print(title)
    print(f"  rollout   {ours.seconds:6.2f} s  {ours.requests:5} requests")
    print(f"  kubectl   {theirs.seconds:6.2f} s  {theirs.requests:5} requests")
    times, asked = theirs.seconds / ours.seconds, theirs.requests / ours.requests
    print(f"  kubectl / rollout: {times:.1f} times the time, {asked:.1f} times the requests")


def main() -> None:
    with tempfile.TemporaryDirectory() as name, standalone_api(Path(name)) as server:
        end_pods_at_once(server, ENDING)
        api = connect(server.kubeconfig, None)
        policy = DrainPolicy(Duration(600))

        def by_us(node: str) -> None:
            drain(context_of(node, api, Deaf(), policy))

        def by_kubectl(node: str) -> None:
            ended = kubectl(server, Path(name), "drain", node, "--ignore-daemonsets", "--timeout=95s")
            assert ended.returncode == 0, ended.stderr[-2000:]

        for node in ("ours", "theirs", "ours-budget", "theirs-budget"):
            fill(server, node)
        costs = (
            measured(server, lambda: by_us("ours"), "ours"),
            measured(server, lambda: by_kubectl("theirs"), "theirs"),
        )
        compare(f"{PODS} pods, no budget", *costs)
        found = []
        for node, act in (("ours-budget", by_us), ("theirs-budget", by_kubectl)):
            add_budget(server, node, allowed=10, needs=90, has=100)
            with dripping(server, node):
                found.append(measured(server, lambda act=act, node=node: act(node), node))  # type: ignore[misc]
        compare(f"{PODS} pods under a budget that lets ten go a second", *found)


if __name__ == "__main__":
    main()
