"""The operator of a database: its pods, its budgets, and when the primary moves."""

from rollout.lab.api.resources import BUDGETS, CLUSTERS, PODS
from rollout.lab.objects import is_ready, labels_of, name_of, node_name, with_metadata
from tests.lab.world.simulation import Simulation, names, workload

ROLE = "cnpg.io/instanceRole"


def database(switchover: str = "10", instances: int = 3, nodes: int = 4) -> Simulation:
    sim = Simulation(nodes)
    annotations = {"lab.node-rollout.dev/switchover-seconds": switchover}
    spec = workload("shop", annotations=annotations)
    sim.create(CLUSTERS, "shop", {**spec, "instances": instances})
    sim.world.fast_forward()
    return sim


def primary(sim: Simulation) -> str:
    (pod,) = [pod for pod in sim.pods("shop") if labels_of(pod)[ROLE] == "primary"]
    return name_of(pod)


def node_of_primary(sim: Simulation) -> str:
    return node_name(sim.get(PODS, primary(sim)))


def allowed(sim: Simulation, budget: str) -> int:
    return int(sim.get(BUDGETS, budget)["status"]["disruptionsAllowed"])


def test_a_database_has_a_primary_replicas_and_a_budget_for_each() -> None:
    sim = database()
    assert names(sim.pods("shop")) == ["shop-1", "shop-2", "shop-3"]
    assert primary(sim) == "shop-1"
    assert allowed(sim, "shop-primary") == 0
    assert allowed(sim, "shop") == 1
    assert sim.get(BUDGETS, "shop-primary")["metadata"]["ownerReferences"][0]["kind"] == "Cluster"


def test_the_primary_moves_some_seconds_after_the_cordon_of_its_node() -> None:
    sim = database()
    sim.cordon(node_of_primary(sim))
    sim.advance(9)
    assert primary(sim) == "shop-1"
    sim.advance(2)
    assert primary(sim) == "shop-2"
    assert labels_of(sim.get(PODS, "shop-1"))[ROLE] == "replica"
    assert allowed(sim, "shop") == 1


def test_a_primary_whose_node_is_uncordoned_in_time_stays() -> None:
    sim = database()
    node = node_of_primary(sim)
    sim.cordon(node)
    sim.advance(5)
    sim.cordon(node, wanted=False)
    sim.advance(60)
    assert primary(sim) == "shop-1"


def test_an_operator_may_never_move_the_primary() -> None:
    sim = database("never")
    sim.cordon(node_of_primary(sim))
    sim.advance(3600)
    assert primary(sim) == "shop-1"


def test_the_primary_stays_without_a_replica_on_a_node_that_is_not_cordoned() -> None:
    sim = database()
    for node in {node_name(pod) for pod in sim.pods("shop")}:
        sim.cordon(node)
    sim.advance(60)
    assert primary(sim) == "shop-1"


def test_an_evicted_instance_returns_elsewhere_as_a_replica() -> None:
    sim = database()
    node = node_of_primary(sim)
    sim.cordon(node)
    sim.advance(11)
    sim.evict("shop-1")
    sim.advance(60)
    instance = sim.get(PODS, "shop-1")
    assert is_ready(instance)
    assert node_name(instance) != node
    assert labels_of(instance)[ROLE] == "replica"


def test_a_replica_takes_over_when_the_primary_is_deleted() -> None:
    sim = database("never")
    sim.delete(PODS, "shop-1")
    assert primary(sim) == "shop-2"


def test_a_single_instance_has_only_the_primarys_budget() -> None:
    sim = database(instances=1)
    assert primary(sim) == "shop-1"
    assert not sim.has(BUDGETS, "shop")
    sim.cordon(node_of_primary(sim))
    sim.advance(60)
    assert primary(sim) == "shop-1"


def test_pods_of_a_stateful_set_are_switched_over_once_one_is_ready_elsewhere() -> None:
    sim = Simulation(2)
    sim.cordon("n2")
    sim.stateful_set("pg", 2)
    sim.advance(60)
    sim.cordon("n2", wanted=False)
    for value, pod in zip(("primary", "replica"), sim.pods("pg"), strict=True):
        sim.store.put(PODS, with_metadata(pod, labels={**labels_of(pod), "role": value}))
    template = {"metadata": {"annotations": {"lab.node-rollout.dev/switchover-seconds": "10"}}}
    role = {"label": "role", "primary": "primary", "replica": "replica"}
    selector = {"matchLabels": {"app": "pg"}}
    spec = {"template": template, "instanceNames": [], "podSelector": selector, "role": role}
    sim.create(CLUSTERS, "pg", spec)
    sim.cordon("n1")
    sim.advance(60)
    assert labels_of(sim.get(PODS, "pg-0"))["role"] == "primary"
    sim.evict("pg-1")
    sim.advance(60)
    assert labels_of(sim.get(PODS, "pg-1"))["role"] == "primary"
    assert labels_of(sim.get(PODS, "pg-0"))["role"] == "replica"
    assert names(sim.pods()) == ["pg-0", "pg-1"]
