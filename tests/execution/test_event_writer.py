"""Events on Nodes: what is written, and that nothing waits for it or fails by it."""

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rollout.adapters.clock import SystemClock
from rollout.errors import RolloutError
from rollout.execution.events import EVENTS, EventWriter, NodeNote
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.ports import ClusterApi
from tests.execution.drains import asked
from tests.standalone_api import StandaloneApi
from tests.waiting import wait_until

pytestmark = pytest.mark.in_memory
AT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def note(reason: str = "Draining", *, at: datetime = AT, message: str = "Evicting 3 pods") -> NodeNote:
    return NodeNote("n1", "uid-n1", reason, reason, message, at, AT)


def written(api: ClusterApi) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(api.get(EVENTS))["items"]
    return found


def fault(server: StandaloneApi, answer: FaultAnswer) -> None:
    server.call(lambda: server.server.faults.add(ApiFault(answer=answer, resource="events")))


def test_it_is_an_event_of_the_node_as_kubectl_describe_looks_for_it(api: ClusterApi) -> None:
    with EventWriter(api, "run-1", SystemClock(), closing_seconds=10) as writer:
        writer.tell(note())
    (event,) = written(api)
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-n1"}
    assert (event["type"], event["reason"], event["message"]) == ("Normal", "Draining", "Evicting 3 pods")
    assert (event["source"], event["reportingInstance"]) == ({"component": "node-rollout"}, "run-1")
    assert (event["count"], event["firstTimestamp"]) == (1, "2026-03-04T05:06:07Z")


def test_what_is_told_again_is_brought_up_to_date_by_any_process_of_the_run(
    api: ClusterApi, server: StandaloneApi
) -> None:
    later = AT + timedelta(minutes=5)
    with EventWriter(api, "run-1", SystemClock(), closing_seconds=10) as writer:
        writer.tell(note())
        writer.tell(note(at=later, message="Evicting 2 pods"))
    with EventWriter(api, "run-1", SystemClock(), closing_seconds=10) as resumed:
        resumed.tell(note(at=later, message="Evicting 1 pod"))
    with EventWriter(api, "run-2", SystemClock(), closing_seconds=10) as another:
        another.tell(note())
    # the rights that a rollout is granted are to create and to patch Events
    assert asked(server, "get", "events") == []
    first, second = sorted(written(api), key=lambda event: event["reportingInstance"])
    assert (first["message"], first["lastTimestamp"]) == ("Evicting 1 pod", "2026-03-04T05:11:07Z")
    assert first["firstTimestamp"] == second["lastTimestamp"] == "2026-03-04T05:06:07Z"


@pytest.mark.wire
def test_an_outage_only_puts_it_off(api: ClusterApi, server: StandaloneApi) -> None:
    with EventWriter(api, "run-1", SystemClock(), closing_seconds=20) as writer:
        server.outage(None)
        began = time.monotonic()
        for reason in ("Cordoned", "Draining", "Drained"):
            writer.tell(note(reason))
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
    told: list[RolloutError] = []
    with EventWriter(api, "run-1", SystemClock(), closing_seconds=10, refused=told.append) as writer:
        for number in range(5):
            writer.tell(note(f"Reason{number}"))
    assert len(told) == 1
    assert len(asked(server, "create", "events")) == 1


@pytest.mark.wire
@pytest.mark.parametrize("answer", [FaultAnswer.HANG, FaultAnswer.UNAVAILABLE, FaultAnswer.DROP])
def test_leaving_waits_no_longer_than_it_may(answer: FaultAnswer, api: ClusterApi, server: StandaloneApi) -> None:
    fault(server, answer)
    with EventWriter(api, "run-1", SystemClock(), closing_seconds=0.5) as writer:
        writer.tell(note())
        began = time.monotonic()
    assert time.monotonic() - began < 3
