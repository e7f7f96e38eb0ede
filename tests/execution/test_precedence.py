"""Of several drains that want one budget's permits, the node that is nearest to being empty goes first."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from rollout.adapters.kube.api import KubeApi
from rollout.execution.drain.drain import drain
from rollout.execution.drain.task import Demand, Precedence
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.model.policy import DrainPolicy
from rollout.model.progress import PodBlocked
from rollout.model.quantity import Duration
from tests.execution.conftest import Recorder
from tests.execution.drains import add_budget, add_node, add_pod, allow, asked, owner, task_of
from tests.standalone_api import StandaloneApi
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("kubelet")


def update(drains: Precedence, **standings: tuple[int, int]) -> None:
    for node, (left, wanted) in standings.items():
        drains.update(node, Demand(left, {"shop/web": wanted}))


def test_the_nearest_to_empty_goes_first_and_others_take_what_it_leaves() -> None:
    drains = Precedence()
    update(drains, near=(2, 2), far=(5, 5), other=(9, 1))
    assert drains.ahead("near", "shop/web", 1, 0.0) == ""
    assert drains.ahead("far", "shop/web", 2, 0.0) == "near"
    assert drains.ahead("far", "shop/web", 3, 0.0) == ""
    assert drains.ahead("other", "shop/web", 7, 0.0) == "near"
    assert drains.ahead("far", "shop/else", 1, 0.0) == ""
    drains.leave("near")
    assert drains.ahead("far", "shop/web", 1, 0.0) == ""


def test_a_drain_that_has_used_up_half_of_its_time_goes_before_those_that_have_not() -> None:
    drains = Precedence()
    update(drains, near=(1, 1))
    drains.update("late", Demand(5, {"shop/web": 5}, pressed=True))
    assert drains.ahead("late", "shop/web", 1, 0.0) == ""
    assert drains.ahead("near", "shop/web", 1, 0.0) == "late"


@contextmanager
def drains(server: StandaloneApi, api: KubeApi, recorder: Recorder, nodes: Mapping[str, int]) -> Iterator[None]:
    """Drains of these nodes, with so many pods of one application each, side by side in one process."""
    precedence = Precedence()
    for node, number in nodes.items():
        add_node(server, node)
        for each in range(number):
            labels = {"labels": {"app": "web"}}
            add_pod(server, node, f"{node}-{each}", owned=owner("ReplicaSet"), metadata=labels)
    with ExitStack() as stack:
        for node in nodes:
            task = task_of(node, api, recorder, DrainPolicy(Duration(120)))
            thread = threading.Thread(target=drain, args=(replace(task, precedence=precedence),))
            thread.start()
            stack.callback(thread.join, 30)
        yield


def waiting(recorder: Recorder) -> set[str]:
    return {event.node for event in list(recorder.events) if isinstance(event, PodBlocked)}


def test_a_permit_goes_to_the_node_that_it_empties_soonest(
    server: StandaloneApi, api: KubeApi, recorder: Recorder
) -> None:
    add_budget(server, "web", allowed=0, needs=8, has=8)
    with drains(server, api, recorder, {"a-far": 4, "b-near": 1, "c-mid": 2}):
        wait_until(lambda: len(waiting(recorder)) == 3)
        for number in range(1, 8):
            allow(server, "web", 1)
            wait_until(lambda number=number: len(evicted(server)) == number)  # type: ignore[misc]
    assert [name.rpartition("-")[0] for name in evicted(server)] == ["b-near", *["c-mid"] * 2, *["a-far"] * 4]
    told = [event.message for event in recorder.events if isinstance(event, PodBlocked)]
    assert all("needs 8 healthy pods" in message or "nearer to being empty" in message for message in told)


@pytest.mark.sample
def test_what_the_first_cannot_use_is_not_lost(server: StandaloneApi, api: KubeApi, recorder: Recorder) -> None:
    """The nearest node's pod is refused again and again: the other's goes all the same."""
    add_budget(server, "web", allowed=1, needs=8, has=9)
    rule = ApiFault(verb="create", resource="pods/eviction", name="b-near-0", answer=FaultAnswer.CONFLICT, requests=2)
    server.call(lambda: server.server.faults.add(rule))
    with drains(server, api, recorder, {"a-far": 2, "b-near": 1}):
        wait_until(lambda: "a-far-0" in evicted(server) or "a-far-1" in evicted(server))
        allow(server, "web", 9)


def evicted(server: StandaloneApi) -> list[str]:
    return [each.target.name for each in asked(server, "create", "pods/eviction") if each.status == 201]
