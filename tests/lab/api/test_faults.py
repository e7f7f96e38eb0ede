"""The lab's API server on its bad days: outages, answers of something else, a past that it has
forgotten.
"""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest
import urllib3

from rollout.lab.api.faults import ApiFault, FaultAnswer, FaultPlan
from rollout.lab.api.lifecycle import with_defaults
from rollout.lab.api.requests import parse_target
from rollout.lab.api.resources import CONFIGMAPS
from tests.contract.cluster import Answer, Cluster, connected
from tests.standalone_api import StandaloneApi, standalone_api

NODES = "/api/v1/nodes"
CONFIG = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[StandaloneApi]:
    """An API server of its own over real HTTPS, without a world; simulated time passes twenty times
    faster.
    """
    with standalone_api(tmp_path, speed=20) as running:
        yield running


@pytest.fixture
def client(api: StandaloneApi, tmp_path: Path) -> Iterator[Cluster]:
    with connected(api.kubeconfig, tmp_path) as cluster:
        yield cluster


BROKEN = (urllib3.exceptions.ProtocolError, urllib3.exceptions.NewConnectionError)


def put_in_force(api: StandaloneApi, fault: ApiFault) -> None:
    api.call(lambda: api.server.faults.add(fault))


@pytest.mark.parametrize(
    ("rule", "struck"),
    [
        (ApiFault(answer=FaultAnswer.DROP), [True] * 6),
        (ApiFault(answer=FaultAnswer.DROP, requests=2), [True, True, False, False, False, False]),
        (ApiFault(answer=FaultAnswer.DROP, from_request=3), [False, False, True, True, True, True]),
        (
            ApiFault(answer=FaultAnswer.DROP, from_request=2, requests=1),
            [False, True, False, False, False, False],
        ),
        (ApiFault(answer=FaultAnswer.DROP, after=2), [False, False, True, True, True, True]),
        (
            ApiFault(answer=FaultAnswer.DROP, after=1, duration=2),
            [False, True, True, False, False, False],
        ),
        (
            ApiFault(answer=FaultAnswer.OUTAGE, after=1, duration=1),
            [False, True, False, False, False, False],
        ),
        (ApiFault(answer=FaultAnswer.DROP, verb="create"), [False] * 6),
    ],
)
def test_when_rules_strike(rule: ApiFault, struck: list[bool]) -> None:
    times: Iterator[float] = iter([0.0, *range(6)])
    plan = FaultPlan(now=lambda: next(times))
    plan.add(rule)
    asked = parse_target("GET", NODES, {})
    assert [plan.strike(asked) is not None for _ in range(6)] == struck


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


def test_a_server_that_is_back_may_not_know_yet_who_may_do_what(
    api: StandaloneApi, client: Cluster
) -> None:
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


NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "made"}}


PAGES = [FaultAnswer.HTML, FaultAnswer.EMPTY, FaultAnswer.WRONG_KIND]


def raw(client: Cluster, method: str, path: str, body: Any = None) -> urllib3.BaseHTTPResponse:
    headers = {**client._authorization, "Content-Type": "application/json"}
    payload = None if body is None else json.dumps(body).encode()
    return client._http.request(method, client.url + path, body=payload, headers=headers)


@pytest.mark.parametrize("path", [NODES, f"{NODES}?watch=true", "/version"])
@pytest.mark.parametrize("answer", [*PAGES, FaultAnswer.TRUNCATED])
def test_garbled_answers_say_200(
    api: StandaloneApi, client: Cluster, answer: FaultAnswer, path: str
) -> None:
    put_in_force(api, ApiFault(answer=answer, path=path.partition("?")[0], requests=1))
    garbled = raw(client, "GET", path)
    assert garbled.status == 200
    assert int(garbled.headers["Content-Length"]) == len(garbled.data)
    assert is_other_than_asked(garbled.data)
    assert client.get(NODES).body["kind"] == "NodeList"


def is_other_than_asked(body: bytes) -> bool:
    try:
        return bool(json.loads(body)["kind"] == "Status")
    except ValueError:
        return True


@pytest.mark.parametrize("path", [NODES, f"{NODES}?watch=true"])
def test_an_answer_that_breaks_off_has_announced_more(
    api: StandaloneApi, client: Cluster, path: str
) -> None:
    put_in_force(api, ApiFault(answer=FaultAnswer.BROKEN_OFF, requests=1))
    with pytest.raises(urllib3.exceptions.ProtocolError, match="IncompleteRead"):
        raw(client, "GET", path)


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("answer", PAGES)
def test_a_garbled_write_is_carried_out_where_the_rule_says_so(
    api: StandaloneApi, client: Cluster, answer: FaultAnswer, *, done: bool
) -> None:
    rule = ApiFault(answer=answer, verb="create", resource="nodes", requests=1, done=done)
    put_in_force(api, rule)
    raw(client, "POST", NODES, NODE)
    assert client.get(NODES).items == (["made"] if done else [])
    assert api.call(lambda: api.server.faults.struck(rule)) == 1


@pytest.mark.parametrize("ahead", [-86400, 300])
def test_a_server_whose_clock_is_off_dates_and_stamps_by_it(tmp_path: Path, ahead: int) -> None:
    with (
        standalone_api(tmp_path, ahead=ahead) as api,
        connected(api.kubeconfig, tmp_path) as client,
    ):
        made = raw(client, "POST", NODES, NODE)
        stamps = (
            parsedate_to_datetime(made.headers["Date"]),
            datetime.fromisoformat(made.json()["metadata"]["creationTimestamp"]),
            parsedate_to_datetime(
                raw(client, "GET", f"{NODES}?watch=1&timeoutSeconds=1").headers["Date"]
            ),
        )
        for stamp in stamps:
            assert abs(stamp - datetime.now(UTC) - timedelta(seconds=ahead)) < timedelta(seconds=20)


# A past that is forgotten, and one that is not.


def fill(api: StandaloneApi, count: int, size: int = 0) -> None:
    def create() -> None:
        for number in range(count):
            metadata = {"name": f"c{number:04}", "namespace": "default"}
            api.store.create(
                CONFIGMAPS,
                with_defaults(CONFIGMAPS, {"metadata": metadata, "data": {"x": "x" * size}}),
            )

    api.call(create)


def test_a_watch_from_forgotten_times_ends_with_an_error(
    api: StandaloneApi, client: Cluster
) -> None:
    client.make(NODES, NODE)
    api.call(api.store.compact)
    event = json.loads(client.get(NODES, watch=1, timeoutSeconds=5, resourceVersion=1).body)
    assert event["type"] == "ERROR"
    assert event["object"]["code"] == 410
    assert event["object"]["reason"] == "Expired"


def test_a_page_of_a_forgotten_list_has_expired(api: StandaloneApi, client: Cluster) -> None:
    fill(api, 4)
    token = client.get(CONFIG, limit=2).body["metadata"]["continue"]
    client.send("DELETE", f"{CONFIG}/c0003")
    assert client.get(CONFIG, limit=2, **{"continue": token}).items == ["c0002", "c0003"]
    api.call(api.store.compact)
    expired = client.get(CONFIG, limit=2, **{"continue": token})
    assert expired.status == 410
    assert expired.body["reason"] == "Expired"
