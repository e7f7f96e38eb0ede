"""Where pods go, and why they do not."""

from typing import Any

import pytest

from rollout.lab.api.resources import NODES
from rollout.lab.api.store import Json
from rollout.lab.hosts.machine import HostSettings
from rollout.lab.objects import condition
from rollout.lab.world.placement import NodeRoom, NodeUsage, PlacementDemand, refusal, requests_of
from tests.lab.world.simulation import Simulation

HOSTNAME = "kubernetes.io/hostname"
GPU: Json = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
GONE: Json = {"key": "maintenance", "effect": "NoExecute"}


def affinity(operator: str, *values: str) -> Json:
    expression = {"key": "zone", "operator": operator, "values": list(values)}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


@pytest.mark.parametrize(
    ("spec", "room", "reason"),
    [
        ({}, {}, None),
        ({}, {"unschedulable": True}, "node(s) were unschedulable"),
        (
            {
                "tolerations": [
                    {
                        "key": "node.kubernetes.io/unschedulable",
                        "operator": "Exists",
                        "effect": "NoSchedule",
                    }
                ]
            },
            {"unschedulable": True},
            None,
        ),
        ({}, {"taints": (GPU,)}, "node(s) had untolerated taint(s)"),
        (
            {"tolerations": [{"key": "gpu", "value": "no"}]},
            {"taints": (GPU,)},
            "node(s) had untolerated taint(s)",
        ),
        ({"tolerations": [{"operator": "Exists"}]}, {"taints": (GPU, GONE)}, None),
        ({}, {"taints": ({"key": "soft", "effect": "PreferNoSchedule"},)}, None),
        ({"nodeSelector": {"zone": "b"}}, {}, "node(s) didn't match Pod's node affinity/selector"),
        (
            {"affinity": affinity("NotIn", "a")},
            {},
            "node(s) didn't match Pod's node affinity/selector",
        ),
        (
            {"affinity": affinity("DoesNotExist")},
            {},
            "node(s) didn't match Pod's node affinity/selector",
        ),
        ({"cpu": "500m"}, {"used": NodeUsage(cpu=3500)}, None),
        ({"cpu": "501m"}, {"used": NodeUsage(cpu=3500)}, "Insufficient cpu"),
        ({"cpu": "5"}, {}, "Insufficient cpu"),
        ({"memory": "9Gi"}, {}, "Insufficient memory"),
        ({"example.com/gpu": "1"}, {}, "Insufficient example.com/gpu"),
        ({"example.com/gpu": "2"}, {"others": {"example.com/gpu": 2}}, None),
        (
            {"example.com/gpu": "3"},
            {"others": {"example.com/gpu": 2}},
            "Insufficient example.com/gpu",
        ),
        ({"ephemeral-storage": "1Gi"}, {}, None),
        (
            {"ephemeral-storage": "1Gi"},
            {"others": {"ephemeral-storage": 2**20}},
            "Insufficient ephemeral-storage",
        ),
        ({"initContainers": [{"resources": {"requests": {"cpu": "5"}}}]}, {}, "Insufficient cpu"),
        (
            {"initContainers": [{"resources": {"limits": {"memory": "9Gi"}}}]},
            {},
            "Insufficient memory",
        ),
        ({"cpu": "2", "initContainers": [{"resources": {"requests": {"cpu": "3"}}}]}, {}, None),
        ({}, {"used": NodeUsage(pods=10)}, "Too many pods"),
    ],
)
def test_what_a_node_refuses(spec: Json, room: dict[str, Any], reason: str | None) -> None:
    resources = ("cpu", "memory", "example.com/gpu", "ephemeral-storage")
    requests = {name: spec[name] for name in resources if name in spec}
    rest = {name: value for name, value in spec.items() if name not in requests}
    pod = {
        "metadata": {"name": "p"},
        "spec": {**rest, "containers": [{"resources": {"requests": requests}}]},
    }
    base = {
        "unschedulable": False,
        "taints": (),
        "cpu": 4000,
        "memory": 2**33,
        "pods": 10,
        "used": NodeUsage(),
    }
    offered = NodeRoom(**{"name": "n", "labels": {"zone": "a"}, **base, **room})
    assert refusal(PlacementDemand(pod, *requests_of(pod)), offered) == reason


def test_an_init_container_runs_beside_the_sidecars_before_it() -> None:
    def container(cpu: str, **more: str) -> Json:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    spec = {
        "initContainers": [container("1", restartPolicy="Always"), container("2")],
        "containers": [container("500m")],
    }
    cpu, _memory, _others = requests_of({"spec": spec})
    assert cpu == 3000


def test_a_waiting_pod_is_placed_when_a_pod_goes_or_a_node_opens() -> None:
    sim = Simulation(1, settings=HostSettings(capacity={"cpu": "1", "memory": "1Gi", "pods": "10"}))
    sim.deployment("one", 1, cpu="800m")
    sim.world.fast_forward()
    sim.pod("late", labels={"app": "late"})
    sim.cordon("n1")
    sim.deployment("two", 1, cpu="800m")
    sim.advance(5)
    assert not sim.ready_pods("two")
    sim.cordon("n1", wanted=False)
    sim.advance(5)
    assert not sim.ready_pods("two")
    sim.delete(NODES, "n1")
    sim.add_node("n2")
    sim.advance(6)
    assert [pod["spec"]["nodeName"] for pod in sim.ready_pods("two")] == ["n2"]
    scheduled = condition(sim.ready_pods("two")[0], "PodScheduled") or {}
    assert scheduled["status"] == "True"
    assert "reason" not in scheduled


def anti_affinity(app: str, topology: str) -> Json:
    return {"podAntiAffinity": required(app, topology)}


def required(app: str, topology: str) -> Json:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": topology}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def spread(topology: str) -> Json:
    """As evenly as one pod allows, or not at all."""
    selector = {"matchLabels": {"app": "web"}}
    return {
        "maxSkew": 1,
        "topologyKey": topology,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
    }


def test_anti_affinity_holds_in_both_directions_and_by_zone() -> None:
    sim = Simulation()
    for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b")):
        sim.add_node(name, HostSettings(labels={"zone": zone}))
    sim.deployment("loner", 1, affinity=anti_affinity("web", "zone"), nodeSelector={"zone": "a"})
    sim.world.fast_forward()
    sim.deployment("web", 2)
    sim.world.fast_forward()
    assert {pod["spec"]["nodeName"] for pod in sim.ready_pods("web")} == {"n3"}


def test_pods_go_where_those_are_to_whom_they_are_drawn_and_wait_for_them() -> None:
    sim = Simulation(3)
    sim.deployment("follower", 2, affinity={"podAffinity": required("hub", HOSTNAME)})
    sim.advance(5)
    assert sim.ready_pods("follower") == []
    sim.deployment("hub", 1)
    sim.advance(10)
    [hub] = sim.ready_pods("hub")
    assert {pod["spec"]["nodeName"] for pod in sim.ready_pods("follower")} == {
        hub["spec"]["nodeName"]
    }
    assert len(sim.ready_pods("follower")) == 2


@pytest.mark.parametrize(("more", "placed"), [({}, 2), ({"maxSkew": 2}, 4)])
def test_a_spread_over_two_open_nodes_and_a_cordoned_one_heeds_its_rules(
    more: Json, placed: int
) -> None:
    sim = Simulation(3)
    sim.cordon("n3")
    sim.deployment("other", 2)
    sim.deployment("web", 4, topologySpreadConstraints=[{**spread(HOSTNAME), **more}])
    sim.advance(10)
    assert len(sim.ready_pods("web")) == placed
