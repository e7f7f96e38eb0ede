"""Controllers of workloads: names, order, replacement, status, garbage."""

import re

from rollout.lab.api.resources import (
    DAEMONSETS,
    DEPLOYMENTS,
    NAMESPACES,
    PODS,
    REPLICASETS,
    STATEFULSETS,
)
from rollout.lab.objects import is_deleting
from tests.lab.world.simulation import NAMESPACE, Simulation, names


def test_a_deployment_owns_a_replica_set_that_owns_pods() -> None:
    sim = Simulation(3)
    sim.deployment("web", 3)
    sim.world.settle()
    (replica_set,) = sim.store.items(REPLICASETS)
    assert re.fullmatch(r"web-[bcdfghjklmnpqrstvwxz2456789]{10}", replica_set["metadata"]["name"])
    assert replica_set["metadata"]["ownerReferences"][0]["uid"] == sim.get(DEPLOYMENTS, "web")["metadata"]["uid"]
    for pod in sim.pods("web"):
        assert re.fullmatch(replica_set["metadata"]["name"] + r"-[a-z0-9]{5}", pod["metadata"]["name"])
        (owner,) = pod["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["controller"], owner["uid"]) == (
            "ReplicaSet",
            True,
            replica_set["metadata"]["uid"],
        )
        hashed = replica_set["metadata"]["labels"]["pod-template-hash"]
        assert pod["metadata"]["labels"] == {"app": "web", "pod-template-hash": hashed}


def test_a_leaving_pod_is_replaced_at_once() -> None:
    sim = Simulation(2)
    sim.deployment("web", 2)
    sim.world.settle()
    sim.evict(names(sim.pods("web"))[0])
    assert len(sim.pods("web")) == 3
    assert sum(is_deleting(pod) for pod in sim.pods("web")) == 1


def test_a_stateful_set_creates_its_ordinals_in_order() -> None:
    sim = Simulation(3)
    sim.stateful_set("db", 3)
    sim.advance(0)
    assert names(sim.pods("db")) == ["db-0"]
    sim.seconds_until(lambda: len(sim.pods("db")) == 2)
    assert names(sim.ready_pods("db")) == ["db-0"]
    sim.seconds_until(lambda: len(sim.ready_pods("db")) == 3)
    status = sim.get(STATEFULSETS, "db")["status"]
    assert (status["replicas"], status["readyReplicas"]) == (3, 3)


def test_an_ordinal_is_replaced_only_when_the_old_pod_is_gone() -> None:
    sim = Simulation(3)
    sim.stateful_set("db", 2, annotations={"lab.node-rollout.dev/termination-seconds": "10"})
    sim.world.settle()
    old = sim.get(PODS, "db-0")["metadata"]["uid"]
    sim.evict("db-0")
    sim.advance(9)
    assert sim.get(PODS, "db-0")["metadata"]["uid"] == old
    sim.advance(1.5)
    assert sim.get(PODS, "db-0")["metadata"]["uid"] != old
    sim.advance(5)
    assert names(sim.ready_pods("db")) == ["db-0", "db-1"]


def test_a_daemon_set_runs_on_every_node_cordoned_ones_included() -> None:
    sim = Simulation(3)
    sim.cordon("n2")
    sim.daemon_set("agent")
    sim.world.settle()
    assert sorted(pod["spec"]["nodeName"] for pod in sim.ready_pods("agent")) == ["n1", "n2", "n3"]
    status = sim.get(DAEMONSETS, "agent")["status"]
    assert (status["desiredNumberScheduled"], status["numberReady"], status["numberMisscheduled"]) == (3, 3, 0)


def test_a_deleted_daemon_pod_comes_back_on_its_node_when_it_is_gone() -> None:
    sim = Simulation(2)
    sim.daemon_set("agent")
    sim.world.settle()
    (old,) = sim.pods("agent", node="n1")
    sim.delete(PODS, old["metadata"]["name"])
    assert len(sim.pods("agent")) == 2
    sim.advance(8)
    (new,) = sim.pods("agent", node="n1")
    assert new["metadata"]["uid"] != old["metadata"]["uid"]


def test_what_a_deleted_owner_owned_goes_too() -> None:
    sim = Simulation(2)
    sim.deployment("web", 3)
    sim.world.settle()
    sim.delete(DEPLOYMENTS, "web")
    sim.advance(5)
    assert not sim.pods("web")
    assert not list(sim.store.items(REPLICASETS))
    assert sim.keeper.scoreboard().deletions == 0


def test_a_deleted_namespace_empties_itself_and_goes() -> None:
    sim = Simulation(1)
    sim.deployment("web", 2)
    sim.pod("alone")
    sim.store.put(NAMESPACES, {**sim.get(NAMESPACES, NAMESPACE), "spec": {"finalizers": ["kubernetes"]}})
    sim.world.settle()
    sim.delete(NAMESPACES, NAMESPACE)
    assert sim.has(NAMESPACES, NAMESPACE)
    sim.advance(5)
    assert not sim.pods()
    assert not sim.has(NAMESPACES, NAMESPACE)
