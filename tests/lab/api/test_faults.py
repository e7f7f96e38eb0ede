import threading
import time
from collections.abc import Iterator

import msgspec
import pytest
import urllib3

from rollout.lab.api.faults import ApiFault, FaultAnswer, FaultPlan
from rollout.lab.api.requests import parse_target
from tests.contract.cluster import Answer, Cluster
from tests.standalone_api import StandaloneApi

NODES = "/api/v1/nodes"
BROKEN = (urllib3.exceptions.ProtocolError, urllib3.exceptions.NewConnectionError)


def put_in_force(api: StandaloneApi, fault: ApiFault) -> None:
    api.call(lambda: api.server.faults.add(fault))


@pytest.mark.parametrize(
    ("rule", "struck"),
    [
        (ApiFault(answer=FaultAnswer.DROP), [True] * 6),
        (ApiFault(answer=FaultAnswer.DROP, requests=2), [True, True, False, False, False, False]),
        (ApiFault(answer=FaultAnswer.DROP, from_request=3), [False, False, True, True, True, True]),
        (ApiFault(answer=FaultAnswer.DROP, from_request=2, requests=1), [False, True, False, False, False, False]),
        (ApiFault(answer=FaultAnswer.DROP, after=2), [False, False, True, True, True, True]),
        (ApiFault(answer=FaultAnswer.DROP, after=1, duration=2), [False, True, True, False, False, False]),
        (ApiFault(answer=FaultAnswer.OUTAGE, after=1, duration=1), [False, True, False, False, False, False]),
        (ApiFault(answer=FaultAnswer.DROP, verb="create"), [False] * 6),
    ],
)
def test_when_rules_strike(rule: ApiFault, struck: list[bool]) -> None:
    times: Iterator[float] = iter([0.0, *range(6)])
    plan = FaultPlan([rule], now=lambda: next(times))
    asked = parse_target("GET", NODES, {})
    assert [plan.strike(asked) is not None for _ in range(6)] == struck


@pytest.mark.parametrize(
    ("words", "covered"),
    [
        ({"verb": "create", "resource": "pods/eviction"}, True),
        ({"resource": "pods"}, False),
        ({"namespace": "n", "name": "p"}, True),
        ({"name": "q"}, False),
        ({"path": "/api/v1/namespaces/n"}, True),
    ],
)
def test_which_requests_rules_cover(words: dict[str, str], *, covered: bool) -> None:
    rule = msgspec.convert({"answer": "internal-error", **words}, ApiFault)
    assert rule.covers(parse_target("POST", "/api/v1/namespaces/n/pods/p/eviction", {})) is covered


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        (FaultAnswer.INTERNAL_ERROR, 500, "InternalError"),
        (FaultAnswer.UNAVAILABLE, 503, "ServiceUnavailable"),
        (FaultAnswer.TIMEOUT, 504, "Timeout"),
    ],
)
def test_failing_answers(api: StandaloneApi, client: Cluster, answer: FaultAnswer, status: int, reason: str) -> None:
    put_in_force(api, ApiFault(answer=answer, verb="list", requests=1))
    failed = client.get(NODES)
    assert (failed.status, failed.reason, failed.body["kind"]) == (status, reason, "Status")
    assert client.get(NODES).status == 200


def test_flow_control_is_no_status(api: StandaloneApi, client: Cluster) -> None:
    put_in_force(api, ApiFault(answer=FaultAnswer.TOO_MANY_REQUESTS, retry_after=3, requests=1))
    refused = client.get(NODES)
    assert (refused.status, refused.headers["Retry-After"]) == (429, "3")
    assert refused.headers["Content-Type"].startswith("text/plain")


def test_dropped_connections_do_nothing(api: StandaloneApi, client: Cluster) -> None:
    put_in_force(api, ApiFault(answer=FaultAnswer.DROP, verb="create", requests=1))
    with pytest.raises(BROKEN):
        client.node()
    assert client.get(NODES).items == []
    dropped = api.call(lambda: api.server.requests.asked("create", "nodes"))
    assert [record.status for record in dropped] == [0]


def test_lost_answers_leave_the_deed_done(api: StandaloneApi, client: Cluster) -> None:
    put_in_force(api, ApiFault(answer=FaultAnswer.LOSE_ANSWER, verb="create", requests=1))
    with pytest.raises(BROKEN):
        client.node()
    assert len(client.get(NODES).items) == 1


def test_hanging_requests_break_when_the_fault_ends(api: StandaloneApi, client: Cluster) -> None:
    put_in_force(api, ApiFault(answer=FaultAnswer.HANG, duration=10))
    began = time.monotonic()
    with pytest.raises(BROKEN):
        client.get(NODES)
    assert 0.3 < time.monotonic() - began < 20
    assert client.get(NODES).status == 200


def test_slow_answers_are_right(api: StandaloneApi, client: Cluster) -> None:
    put_in_force(api, ApiFault(answer=FaultAnswer.SLOW, delay=10, requests=1))
    began = time.monotonic()
    assert client.get(NODES).status == 200
    assert time.monotonic() - began >= 0.5


def test_an_outage_closes_the_port_and_ends(api: StandaloneApi, client: Cluster) -> None:
    port = api.server.port
    put_in_force(api, ApiFault(answer=FaultAnswer.OUTAGE, duration=100))
    with pytest.raises(BROKEN):
        client.get(NODES)
    with pytest.raises(urllib3.exceptions.NewConnectionError):
        client.get(NODES)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            assert client.get(NODES).status == 200
            break
        except BROKEN:
            time.sleep(0.1)
    assert api.server.port == port
    assert client.get(NODES).status == 200


def test_a_server_that_is_back_may_not_know_yet_who_may_do_what(api: StandaloneApi, client: Cluster) -> None:
    put_in_force(api, ApiFault(answer=FaultAnswer.OUTAGE, duration=1, refused=2))
    with pytest.raises(BROKEN):
        client.get(NODES)
    answers = list[Answer]()
    deadline = time.monotonic() + 60
    while len(answers) < 3 and time.monotonic() < deadline:
        try:
            answers.append(client.get(NODES))
        except BROKEN:
            time.sleep(0.05)
    assert [answer.status for answer in answers] == [403, 403, 200]
    assert "RBAC: [clusterrole" in answers[0].body["message"]


def test_an_outage_breaks_watches(api: StandaloneApi, client: Cluster) -> None:
    broken = threading.Event()

    def watch() -> None:
        try:
            client.watch(NODES, seconds=30)
        except BROKEN:
            broken.set()

    thread = threading.Thread(target=watch)
    thread.start()
    while not api.call(lambda: api.server.requests.asked("watch")):
        time.sleep(0.01)
    api.outage(1)
    thread.join(timeout=25)
    assert broken.is_set()
