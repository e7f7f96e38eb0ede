"""A node with 100 pods, drained by us and by kubectl on the same API server: time and requests, as ratios.

`python tests/benchmarks/drain.py`. Pods end half a second after they are told to. Further parts
drain them through a budget that lets ten go a second, through one that stays closed for the first
forty seconds, which are not counted, and from a StatefulSet, whose pods may have namesakes elsewhere.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from rollout.adapters.kube.api import connect
from rollout.execution.drain.drain import drain
from rollout.model.policy import DrainPolicy
from rollout.model.progress import StepEvent
from rollout.model.quantity import Duration
from tests.execution.drains import (
    add_budget,
    add_node,
    add_pod,
    allow,
    end_pods_at_once,
    kubectl,
    owner,
    pods_on,
    requests,
    task_of,
)
from tests.standalone_api import StandaloneApi, standalone_api

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
    before = requests(server)
    began = time.monotonic()
    act()
    cost = Cost(time.monotonic() - began, requests(server) - before)
    assert pods_on(server, node) == set()
    return cost


def fill(server: StandaloneApi, node: str, kind: str) -> None:
    add_node(server, node)
    for number in range(PODS):
        labels = {"labels": {"app": node}}
        add_pod(server, node, f"{node}-{number}", owned=owner(kind), metadata=labels)


@contextmanager
def opening(
    server: StandaloneApi, budget: str, *, after: float, then_every: float, by: int
) -> Iterator[None]:
    """A budget's controller that lets so many more go at a time. Seconds."""
    over = threading.Event()

    def open_up() -> None:
        pause = after
        while not over.wait(pause):
            allow(server, budget, by)
            pause = then_every

    thread = threading.Thread(target=open_up)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@dataclass(frozen=True)
class Part:
    """One comparison. `opening` is None without a budget, else when it opens first, how often, and
    by how many.
    """

    title: str
    kind: str = "ReplicaSet"
    opening: tuple[float, float, int] | None = None


PARTS = (
    Part(f"{PODS} pods, no budget"),
    Part(f"{PODS} pods of a StatefulSet, no budget", kind="StatefulSet"),
    Part(f"{PODS} pods under a budget that lets ten go a second", opening=(0.0, 1.0, 10)),
    Part(
        f"{PODS} pods under a budget that opens after 40 s, from then on", opening=(40.0, 1.0, PODS)
    ),
)


def compare(title: str, ours: Cost, theirs: Cost) -> None:
    print(title)
    print(f"  rollout   {ours.seconds:6.2f} s  {ours.requests:5} requests")
    print(f"  kubectl   {theirs.seconds:6.2f} s  {theirs.requests:5} requests")
    times = theirs.seconds / ours.seconds
    asked = theirs.requests / ours.requests
    print(f"  kubectl / rollout: {times:.1f} times the time, {asked:.1f} times the requests")


def main() -> None:
    """Drain each part by us, then by kubectl."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    with tempfile.TemporaryDirectory() as name, standalone_api(Path(name)) as server:
        end_pods_at_once(server, ENDING)
        api = connect(server.kubeconfig, None)
        policy = DrainPolicy(Duration(600))

        def by_us(node: str) -> None:
            drain(task_of(node, api, Deaf(), policy))

        def by_kubectl(node: str) -> None:
            ended = kubectl(
                server, Path(name), "drain", node, "--ignore-daemonsets", "--timeout=95s"
            )
            assert ended.returncode == 0, ended.stderr[-2000:]

        for number, part in enumerate(PARTS):
            ours = f"ours-{number}"
            theirs = f"theirs-{number}"
            compare(
                part.title,
                drained(server, part, ours, lambda ours=ours: by_us(ours)),  # type: ignore[misc]
                drained(server, part, theirs, lambda theirs=theirs: by_kubectl(theirs)),  # type: ignore[misc]
            )


def drained(server: StandaloneApi, part: Part, node: str, act: Callable[[], object]) -> Cost:
    fill(server, node, part.kind)
    if part.opening is None:
        return measured(server, act, node)
    after, every, number = part.opening
    add_budget(server, node, allowed=0, needs=PODS - number, has=PODS - number, expected=PODS)
    with opening(server, node, after=after, then_every=every, by=number):
        cost = measured(server, act, node)
    return replace(cost, seconds=cost.seconds - after)


if __name__ == "__main__":
    main()
