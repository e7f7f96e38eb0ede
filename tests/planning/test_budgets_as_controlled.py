"""Budgets as a disruption controller reckons them: what the forecast says of a drain, beside what becomes of it.

The controller is the lab's, and the evictions are asked of its API server, in simulated time. Each
case is one node of a cluster with room to spare: nothing but a budget can keep it from being
emptied.
"""

from collections.abc import Callable

import pytest

from rollout.lab.api.evicting import EvictionEndpoint
from rollout.lab.api.requests import Target
from rollout.lab.api.resources import BUDGETS, PODS
from rollout.lab.api.statuses import StatusError
from rollout.lab.api.store import Json
from rollout.lab.api.writing import Writer
from rollout.lab.objects import is_daemon, is_deleting, node_name
from rollout.model.policy import DrainPolicy, Policy
from tests.lab.world.simulation import NAMESPACE, Simulation
from tests.planning.played import plan_of

# As long as the forecast takes a drain to last at most.
PATIENCE = 600
# A budget's, and that of a pod with two.
REFUSALS = (429, 500)
NEVER_READY = {"lab.node-rollout.dev/ready": "never"}
POLICY = Policy(drain=DrainPolicy(force=True))

Build = Callable[[Simulation], None]


def bare(number: int, **limit: int | str) -> Build:
    """Pods without a controller, side by side on one node, and a budget over them."""

    def build(sim: Simulation) -> None:
        for index in range(number):
            sim.pod(f"web-{index}", node="n1", labels={"app": "web"})
        sim.budget("web", **limit)

    return build


def deployment(
    replicas: int, *, leftovers: int = 0, ready: bool = True, **limit: int | str
) -> Build:
    """A Deployment under a budget; `leftovers` are Failed pods, as a kubelet leaves them that has
    evicted some.
    """

    def build(sim: Simulation) -> None:
        sim.deployment("web", replicas, annotations={} if ready else NEVER_READY)
        for index in range(leftovers):
            over = sim.pod(f"web-evicted-{index}", node="n2", labels={"app": "web"})
            sim.store.put(PODS, {**over, "status": {"phase": "Failed", "reason": "Evicted"}})
        sim.budget("web", **limit)

    return build


def mixed(*others: Build, **limit: int | str) -> Build:
    """Two pods of a Deployment and those of others, under one budget that picks all of them."""

    def build(sim: Simulation) -> None:
        sim.deployment("web", 2)
        for other in others:
            other(sim)
        picked = {
            "key": "app",
            "operator": "In",
            "values": ["web", "api", "agent", "sick", "lone", "custom"],
        }
        sim.create(BUDGETS, "all", {"selector": {"matchExpressions": [picked]}, **limit})

    return build


def with_api(sim: Simulation) -> None:
    sim.deployment("api", 2)


def with_lone(sim: Simulation) -> None:
    sim.pod("lone", node="n2", labels={"app": "lone"})


def with_agent(sim: Simulation) -> None:
    sim.daemon_set("agent")


def with_sick(sim: Simulation) -> None:
    sim.deployment("sick", 1, annotations=NEVER_READY)


def with_custom(sim: Simulation) -> None:
    """A pod of a controller that has no scale subresource."""
    owner = {
        "apiVersion": "example.org/v1",
        "kind": "Fleet",
        "name": "custom",
        "uid": "fleet",
        "controller": True,
    }
    sim.pod("custom", node="n2", labels={"app": "custom"}, ownerReferences=[owner])


def doubly(sim: Simulation) -> None:
    """Two budgets over one pod: the API server asks neither, it refuses."""
    deployment(2, maxUnavailable=1)(sim)
    sim.create(BUDGETS, "too", {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 0})


CASES = {
    "a number of pods without a controller": (bare(1, maxUnavailable=1), "web", False),
    "a share of pods without a controller": (bare(2, maxUnavailable="50%"), "web", False),
    "a plain number of pods without a controller": (bare(2, minAvailable=2), "web", False),
    "none of the pods without a controller": (bare(2, minAvailable=0), "web", True),
    "two controllers, by number": (mixed(with_api, maxUnavailable=1), "web", True),
    "two controllers, by share": (mixed(with_api, minAvailable="75%"), "api", True),
    "a pod without a controller on top of a scale": (
        mixed(with_lone, maxUnavailable=0),
        "web",
        True,
    ),
    "a DaemonSet among them": (mixed(with_agent, maxUnavailable=1), "web", False),
    "a controller without a scale among them": (mixed(with_custom, maxUnavailable=1), "web", False),
    "a controller without a scale among a plain number": (
        mixed(with_custom, minAvailable=1),
        "web",
        True,
    ),
    "leftovers that make up the number": (deployment(2, leftovers=1, minAvailable=2), "web", False),
    "leftovers are no part of a scale": (deployment(2, leftovers=2, maxUnavailable=1), "web", True),
    "none may ever go": (deployment(2, maxUnavailable=0), "web", False),
    "a share to keep that rounds up to all": (deployment(3, minAvailable="70%"), "web", False),
    "unready, with a budget that never lets them go": (
        deployment(2, ready=False, maxUnavailable=1),
        "web",
        False,
    ),
    "unready, and always let go": (
        deployment(2, ready=False, maxUnavailable=1, unhealthyPodEvictionPolicy="AlwaysAllow"),
        "web",
        True,
    ),
    "unready, let go while enough are healthy": (mixed(with_sick, maxUnavailable=1), "sick", True),
    "ready, kept by one that is not": (mixed(with_sick, maxUnavailable=1), "web", False),
    "two budgets": (doubly, "web", False),
}


def is_emptied(sim: Simulation, name: str) -> bool:
    """Whether the node's pods all go within a drain's time, as its evictions are asked for again
    and again.
    """
    evictor = EvictionEndpoint(sim.store, Writer(sim.store))
    sim.cordon(name)
    for _ in range(PATIENCE):
        leaving = [pod for pod in sim.pods(node=name) if not is_daemon(pod)]
        if not leaving:
            return True
        for pod in leaving:
            if not is_deleting(pod):
                ask(evictor, pod)
        sim.advance(1)
    return False


def ask(evictor: EvictionEndpoint, pod: Json) -> None:
    target = Target("create", "", PODS, "eviction", NAMESPACE, name := pod["metadata"]["name"])
    try:
        evictor.evict(target, {"metadata": {"name": name}}, {})
    except StatusError as error:
        if error.code not in REFUSALS:
            raise


@pytest.mark.parametrize("case", CASES)
def test_the_forecast_says_what_the_controller_does(case: str) -> None:
    build, app, goes = CASES[case]
    sim = Simulation(4)
    build(sim)
    sim.begin()
    sim.advance(60)
    node = node_name(sim.pods(app)[0])
    blocked = {blocker.node: blocker for blocker in plan_of(sim, POLICY).blockers}
    assert (node not in blocked) is goes, blocked.get(node)
    assert is_emptied(sim, node) is goes
