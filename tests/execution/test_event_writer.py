"""Events on Nodes: what is written, and that nothing waits for it or fails by it."""

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rollout.adapters.clock import SystemClock
from rollout.execution.events import EVENTS, NodeEvents
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.model.plan import PlannedNode
from rollout.model.progress import NodeFinished, Notice, Outcome, Phase, PodBlocked, PodReleased
from rollout.ports import ClusterApi
from tests.execution.conftest import Recorder
from tests.execution.drains import asked
from tests.standalone_api import StandaloneApi
from tests.waiting import wait_until

pytestmark = pytest.mark.in_memory
NODE = PlannedNode("n1", "b", "uid-n1", "1", "2", 3, 0)
AT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def tell(
    writer: NodeEvents,
    reason: str = "Draining",
    *,
    at: datetime = AT,
    message: str = "Evicting 3 pods",
) -> None:
    writer.queue_event("n1", reason, message, at)


def writing(
    api: ClusterApi, closing_seconds: float = 10, run: str = "run-1", told: Recorder | None = None
) -> NodeEvents:
    return NodeEvents(
        api, run, [NODE], [told] if told else [], SystemClock(), closing_seconds=closing_seconds
    )


def written(api: ClusterApi) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(api.get(EVENTS))["items"]
    return found


def fault(server: StandaloneApi, answer: FaultAnswer) -> None:
    server.call(lambda: server.server.faults.add(ApiFault(answer=answer, resource="events")))


def test_it_is_an_event_of_the_node_as_kubectl_describe_looks_for_it(api: ClusterApi) -> None:
    with writing(api) as writer:
        tell(writer)
    (event,) = written(api)
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "n1",
        "uid": "uid-n1",
    }
    assert event["type"] == "Normal"
    assert event["reason"] == "Draining"
    assert event["message"] == "Evicting 3 pods (rollout run-1)"
    assert event["source"] == {"component": "node-rollout"}
    assert event["reportingInstance"] == "run-1"
    assert event["count"] == 1
    assert event["firstTimestamp"] == "2026-03-04T05:06:07Z"


def test_what_is_told_again_is_brought_up_to_date_by_any_process_of_the_run(
    api: ClusterApi, server: StandaloneApi
) -> None:
    later = AT + timedelta(minutes=5)
    with writing(api) as writer:
        tell(writer)
        tell(writer, at=later, message="Evicting 2 pods")
    with writing(api) as resumed:
        tell(resumed, at=later, message="Evicting 1 pod")
    with writing(api, run="run-2") as another:
        tell(another)
    # the rights that a rollout is granted are to create and to patch Events
    assert asked(server, "get", "events") == []
    first, second = sorted(written(api), key=lambda event: event["reportingInstance"])
    assert first["message"] == "Evicting 1 pod (rollout run-1)"
    assert first["lastTimestamp"] == "2026-03-04T05:11:07Z"
    assert first["firstTimestamp"] == second["lastTimestamp"] == "2026-03-04T05:06:07Z"


def test_one_of_the_pods_that_a_budget_holds_back_is_told_until_it_goes(api: ClusterApi) -> None:
    def held(pod: str) -> PodBlocked:
        return PodBlocked(AT, "n1", pod, "shop/web", AT, "needs 2 healthy pods and has 2", 9.0)

    with writing(api) as events:
        for event in (
            held("shop/a"),
            held("shop/b"),
            PodReleased(AT, "n1", "shop/a", "shop/web", AT),
            held("shop/c"),
        ):
            events.notify(event)
    (told,) = written(api)
    assert told["type"] == "Warning"
    assert told["reason"] == "DrainBlocked"
    assert (
        told["message"]
        == "Eviction of shop/c is blocked by PDB shop/web: needs 2 healthy pods and has 2 (rollout run-1)"
    )


def test_a_denied_eviction_names_the_webhook_and_its_message(api: ClusterApi) -> None:
    denied = PodBlocked(
        AT, "n1", "shop/a", "", AT, "it is being moved", 9.0, webhook="guard.example.com"
    )
    with writing(api) as events:
        events.notify(denied)
    (told,) = written(api)
    holder = "admission webhook guard.example.com"
    assert (
        told["message"]
        == f"Eviction of shop/a is blocked by {holder}: it is being moved (rollout run-1)"
    )


@pytest.mark.parametrize(
    ("phase", "message"),
    [
        (Phase.PENDING, "Not changed: it is held (rollout run-1)"),
        (Phase.DRAINED, "skipped in phase drained after 9s: it is held (rollout run-1)"),
    ],
)
def test_a_skipped_node_is_untouched_only_if_nothing_was_done_to_it(
    phase: Phase, message: str, api: ClusterApi
) -> None:
    with writing(api) as events:
        events.notify(
            NodeFinished(AT, "n1", Outcome.SKIPPED, phase, message="it is held", seconds=9)
        )
    (told,) = written(api)
    assert told["message"] == message


@pytest.mark.wire
def test_an_outage_only_puts_it_off(api: ClusterApi, server: StandaloneApi) -> None:
    with writing(api, 20) as writer:
        server.outage(None)
        began = time.monotonic()
        for reason in ("Cordoned", "Draining", "Drained"):
            tell(writer, reason)
        assert time.monotonic() - began < 10
        time.sleep(1)
        server.come_back()
        wait_until(lambda: len(written(api)) == 3)
        found = written(api)
    assert [event["reason"] for event in found if event["lastTimestamp"] == "2026-03-04T05:06:07Z"]
    assert {event["reason"] for event in found} == {"Cordoned", "Draining", "Drained"}


@pytest.mark.parametrize("answer", [FaultAnswer.BAD_REQUEST, FaultAnswer.INVALID])
def test_a_server_that_refuses_is_asked_once_and_that_is_told_once(
    answer: FaultAnswer, api: ClusterApi, server: StandaloneApi
) -> None:
    fault(server, answer)
    told = Recorder()
    with writing(api, told=told) as writer:
        for number in range(5):
            tell(writer, f"Reason{number}")
    assert len([event for event in told.events if isinstance(event, Notice)]) == 1
    assert len(asked(server, "create", "events")) == 1


@pytest.mark.wire
@pytest.mark.parametrize("answer", [FaultAnswer.HANG, FaultAnswer.UNAVAILABLE, FaultAnswer.DROP])
def test_leaving_waits_no_longer_than_it_may(
    answer: FaultAnswer, api: ClusterApi, server: StandaloneApi
) -> None:
    fault(server, answer)
    with writing(api, 0.5) as writer:
        tell(writer)
        began = time.monotonic()
    assert time.monotonic() - began < 3
