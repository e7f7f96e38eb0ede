"""Waiting for pods to go: outages, other parties, pods that never end, and what is said when the time is up."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollout.adapters.kube import KubeApi
from rollout.errors import DrainError
from rollout.execution.drain import drain
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.resources import PODS
from rollout.lab.api.standalone import StandaloneApi, standalone_api
from rollout.model.policy import DrainPolicy
from rollout.model.quantity import Duration
from tests.execution.conftest import Recorder
from tests.execution.drains import (
    add_budget,
    add_node,
    add_pod,
    allow,
    asked,
    context_of,
    end_pods_at_once,
    owner,
    pods_on,
    requests,
)

RS = owner("ReplicaSet")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StandaloneApi]:
    with standalone_api(tmp_path) as running:
        end_pods_at_once(running)
        yield running


def run(node: str, api: KubeApi, recorder: Recorder, seconds: int) -> None:
    drain(context_of(node, api, recorder, DrainPolicy(Duration(seconds))))


def test_an_outage_in_the_middle_is_ridden_out_with_few_requests(
    server: StandaloneApi, api: KubeApi, recorder: Recorder
) -> None:
    add_node(server, "n1")
    for number in range(30):
        add_pod(server, "n1", f"p{number}", owned=RS)
    rule = ApiFault(answer=FaultAnswer.OUTAGE, resource="pods/eviction", from_request=10, duration=3)
    server.call(lambda: server.server.faults.add(rule))
    run("n1", api, recorder, 40)
    assert pods_on(server, "n1") == set()
    assert requests(server) <= 30 + 30


def test_what_another_party_removes_is_gone(server: StandaloneApi, api: KubeApi, recorder: Recorder) -> None:
    add_node(server, "n1")
    add_pod(server, "n1", "p", owned=RS)
    add_budget(server, "p", allowed=0)
    threading.Timer(1, lambda: server.call(lambda: server.store.remove(PODS, "p", "default"))).start()
    began = time.monotonic()
    run("n1", api, recorder, 20)
    assert time.monotonic() - began < 4
    assert asked(server, "create", "pods/eviction") == []


def test_a_finalizer_is_named_at_the_deadline(server: StandaloneApi, api: KubeApi, recorder: Recorder) -> None:
    add_node(server, "n1")
    add_pod(server, "n1", "p", owned=RS, metadata={"finalizers": ["example.org/hold"]})
    began = time.monotonic()
    with pytest.raises(DrainError, match=r"default/p is still terminating \(finalizers: example.org/hold\)"):
        run("n1", api, recorder, 3)
    assert time.monotonic() - began < 6
    assert len(asked(server, "create", "pods/eviction")) == 1


def test_a_dead_kubelet_is_named_at_the_deadline(server: StandaloneApi, api: KubeApi, recorder: Recorder) -> None:
    add_node(server, "n1", ready=False)
    add_pod(server, "n1", "p", owned=RS, metadata={"finalizers": ["example.org/hold"]})
    with pytest.raises(DrainError, match=r"the Node is not Ready.*kubelet stopped posting"):
        run("n1", api, recorder, 2)


def test_a_pod_that_must_not_go_comes_in_the_middle(server: StandaloneApi, api: KubeApi, recorder: Recorder) -> None:
    add_node(server, "n1")
    add_pod(server, "n1", "p", owned=RS)
    add_budget(server, "p", allowed=0)
    threading.Timer(1, lambda: add_pod(server, "n1", "naked", owned=None)).start()
    with pytest.raises(DrainError, match="pods have come that must not be touched: default/naked"):
        run("n1", api, recorder, 20)


def test_two_drains_of_one_budget_side_by_side(server: StandaloneApi, api: KubeApi, recorder: Recorder) -> None:
    """Whoever is refused waits for the budget, and comes to its turn."""
    for node in ("n1", "n2"):
        add_node(server, node)
        add_pod(server, node, f"web-{node}", owned=RS, metadata={"labels": {"app": "web"}})
    add_budget(server, "web", allowed=1, has=2)
    drains = [threading.Thread(target=run, args=(node, api, recorder, 20)) for node in ("n1", "n2")]
    for each in drains:
        each.start()
    time.sleep(3)
    assert len(pods_on(server, "n1") | pods_on(server, "n2")) == 1
    allow(server, "web", 1)
    for each in drains:
        each.join()
    assert pods_on(server, "n1") | pods_on(server, "n2") == set()
    answers = sorted(record.status for record in asked(server, "create", "pods/eviction"))
    assert answers in ([201, 201], [201, 201, 429])


def test_events_that_cannot_be_written_matter_to_nobody(
    server: StandaloneApi, api: KubeApi, recorder: Recorder
) -> None:
    add_node(server, "n1")
    add_pod(server, "n1", "p", owned=RS)
    add_budget(server, "p", allowed=0)
    rule = ApiFault(answer=FaultAnswer.INTERNAL_ERROR, resource="events")
    server.call(lambda: server.server.faults.add(rule))
    threading.Timer(7, lambda: server.call(lambda: server.store.remove(PODS, "p", "default"))).start()
    run("n1", api, recorder, 20)
    assert {record.status for record in asked(server, "create", "events")} == {500}


def test_a_long_wait_costs_almost_nothing(server: StandaloneApi, api: KubeApi, recorder: Recorder) -> None:
    """Eighty held-back pods, and not one request more after twelve seconds than after two, but for their Events."""
    add_node(server, "n1")
    for number in range(80):
        add_pod(server, "n1", f"p{number}", owned=RS, metadata={"labels": {"app": "web"}})
    add_budget(server, "web", allowed=0, needs=80, has=80)
    with pytest.raises(DrainError, match=r"80 pods left.*held back by default/web.*; and 75 more"):
        run("n1", api, recorder, 12)
    assert len(asked(server, "create", "events")) == 10
    assert requests(server) <= 10 + 9
