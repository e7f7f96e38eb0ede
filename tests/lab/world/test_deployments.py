"""Deployments: how a restart replaces their pods."""

from collections.abc import Iterator
from typing import Any

import pytest

from rollout.gather.cluster.decode import RESTARTED_AT
from rollout.lab.api.resources import BUDGETS, DEPLOYMENTS, REPLICASETS
from rollout.lab.api.store import Json
from rollout.lab.objects import (
    is_deleting,
    is_ready,
    labels_of,
    name_of,
    node_name,
    with_spec,
)
from tests.lab.world.simulation import Simulation, names

STARTUP = {"lab.node-rollout.dev/startup-seconds": "10"}


def deployed(replicas: int, **spec: Any) -> Simulation:
    sim = Simulation(4)
    sim.deployment("web", replicas, annotations=STARTUP)
    sim.world.fast_forward()
    change(sim, **spec)
    return sim


def change(sim: Simulation, **spec: Any) -> None:
    sim.store.put(DEPLOYMENTS, with_spec(sim.get(DEPLOYMENTS, "web"), **spec))
    sim.advance(0)


def restart(sim: Simulation, at: str = "2026-01-01T00:00:00Z") -> None:
    template = sim.get(DEPLOYMENTS, "web")["spec"]["template"]
    annotations = {**template["metadata"]["annotations"], RESTARTED_AT: at}
    change(
        sim, template={**template, "metadata": {**template["metadata"], "annotations": annotations}}
    )


def ready_counts(sim: Simulation, seconds: int = 60) -> Iterator[int]:
    for _ in range(seconds):
        sim.advance(1)
        yield len(sim.ready_pods("web"))


def rolling(surge: int | str, unavailable: int | str) -> Json:
    return {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
    }


@pytest.mark.parametrize(
    ("replicas", "strategy", "least", "most"),
    [
        (1, {}, 1, 2),
        (3, {}, 3, 4),
        (4, {}, 3, 5),
        (3, rolling(2, 0), 3, 5),
        (1, rolling(0, 1), 0, 1),
        (3, rolling("34%", "34%"), 2, 5),
        (2, {"type": "Recreate"}, 0, 2),
    ],
)
def test_a_restart_replaces_all_pods_within_the_strategy(
    replicas: int, strategy: Json, least: int, most: int
) -> None:
    sim = deployed(replicas, strategy=strategy)
    before = set(names(sim.pods("web")))
    restart(sim)
    counts = list(ready_counts(sim))
    assert min(counts) == least
    assert max(counts) <= most
    after = set(names(sim.ready_pods("web")))
    assert len(after) == replicas
    assert not after & before


def seconds_until_gone(sim: Simulation, *pods: Json) -> list[float]:
    """When each of the pods is terminating or gone, at the latest after a minute."""
    ended = dict.fromkeys(map(name_of, pods), 0)
    for seconds in range(1, 60):
        sim.advance(1)
        staying = {name_of(pod) for pod in sim.pods("web") if not is_deleting(pod)}
        for name in ended.keys() & staying:
            ended[name] = seconds
    return list(ended.values())


@pytest.mark.parametrize("crowded", [0, 1])
def test_pods_that_share_a_node_with_others_of_the_deployment_end_first(crowded: int) -> None:
    """All other nodes are cordoned, so that the new pods start beside one of the old ones."""
    sim = deployed(2)
    pods = sim.pods("web")
    for node in {"n1", "n2", "n3", "n4"} - {node_name(pods[crowded])}:
        sim.cordon(node)
    restart(sim)
    first, second = seconds_until_gone(sim, pods[crowded], pods[1 - crowded])
    assert first < second


def test_pods_that_became_ready_last_end_first() -> None:
    sim = deployed(1, strategy=rolling(1, 0))
    sim.advance(1000)
    (older,) = sim.pods("web")
    change(sim, replicas=2)
    sim.advance(60)
    (younger,) = (pod for pod in sim.pods("web") if name_of(pod) != name_of(older))
    restart(sim)
    first, second = seconds_until_gone(sim, younger, older)
    assert first < second


def test_old_pods_that_are_not_ready_end_first() -> None:
    """A second restart finds a pod of the first one that still starts."""
    sim = deployed(2)
    before = sim.pods("web")
    restart(sim)
    sim.advance(5)
    (starting,) = (pod for pod in sim.pods("web") if not is_ready(pod))
    restart(sim, "2026-01-01T00:00:05Z")
    sim.advance(1)
    staying = {name_of(pod) for pod in sim.pods("web") if not is_deleting(pod)}
    assert name_of(starting) not in staying
    assert staying.issuperset(names(before))


def test_each_template_has_a_replica_set_whose_hash_its_pods_have() -> None:
    sim = deployed(1)
    (first,) = sim.pods("web")
    restart(sim)
    sim.advance(60)
    (pod,) = sim.pods("web")
    assert labels_of(pod)["pod-template-hash"] != labels_of(first)["pod-template-hash"]
    owner = pod["metadata"]["ownerReferences"][0]["name"]
    assert owner == f"web-{labels_of(pod)['pod-template-hash']}"
    replicas = {name_of(item): item["spec"]["replicas"] for item in sim.store.items(REPLICASETS)}
    assert sorted(replicas.values()) == [0, 1]
    assert replicas[owner] == 1


def test_the_status_says_how_far_a_restart_is() -> None:
    sim = deployed(1)
    restart(sim)
    sim.advance(5)
    status = sim.get(DEPLOYMENTS, "web")["status"]
    assert status["replicas"] == 2
    assert status["updatedReplicas"] == 1
    assert status["availableReplicas"] == 1


def test_a_paused_deployment_replaces_nothing() -> None:
    sim = deployed(1, paused=True)
    before = names(sim.pods("web"))
    restart(sim)
    sim.advance(60)
    assert names(sim.pods("web")) == before


def test_an_undone_restart_leaves_the_old_pods() -> None:
    sim = deployed(1)
    before = names(sim.pods("web"))
    template = sim.get(DEPLOYMENTS, "web")["spec"]["template"]
    restart(sim)
    sim.advance(5)
    change(sim, template=template)
    sim.advance(60)
    assert names(sim.pods("web")) == before


def test_a_budget_counts_the_scale_of_the_deployment_once() -> None:
    sim = deployed(3)
    sim.budget("web", maxUnavailable=0)
    sim.world.fast_forward()
    restart(sim)
    sim.advance(5)
    assert sim.get(BUDGETS, "web")["status"]["expectedPods"] == 3
