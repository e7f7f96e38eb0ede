import json
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest
import urllib3

from rollout.lab.api.faults import ApiFault, FaultAnswer
from tests.contract.cluster import Cluster, connected
from tests.standalone_api import StandaloneApi, standalone_api

NODES = "/api/v1/nodes"
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "made"}}
PAGES = [FaultAnswer.HTML, FaultAnswer.EMPTY, FaultAnswer.WRONG_KIND]


def raw(client: Cluster, method: str, path: str, body: Any = None) -> urllib3.BaseHTTPResponse:
    headers = {**client._authorization, "Content-Type": "application/json"}
    payload = None if body is None else json.dumps(body).encode()
    return client._http.request(method, client.url + path, body=payload, headers=headers)


@pytest.mark.parametrize("path", [NODES, f"{NODES}?watch=true", "/version"])
@pytest.mark.parametrize("answer", [*PAGES, FaultAnswer.TRUNCATED])
def test_garbled_answers_say_200(api: StandaloneApi, client: Cluster, answer: FaultAnswer, path: str) -> None:
    api.call(lambda: api.server.faults.add(ApiFault(answer=answer, path=path.partition("?")[0], requests=1)))
    garbled = raw(client, "GET", path)
    assert (garbled.status, int(garbled.headers["Content-Length"])) == (200, len(garbled.data))
    assert is_other_than_asked(garbled.data)
    assert client.get(NODES).body["kind"] == "NodeList"


def is_other_than_asked(body: bytes) -> bool:
    try:
        return bool(json.loads(body)["kind"] == "Status")
    except ValueError:
        return True


@pytest.mark.parametrize("path", [NODES, f"{NODES}?watch=true"])
def test_an_answer_that_breaks_off_has_announced_more(api: StandaloneApi, client: Cluster, path: str) -> None:
    api.call(lambda: api.server.faults.add(ApiFault(answer=FaultAnswer.BROKEN_OFF, requests=1)))
    with pytest.raises(urllib3.exceptions.ProtocolError, match="IncompleteRead"):
        raw(client, "GET", path)


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("answer", PAGES)
def test_a_garbled_write_is_carried_out_where_the_rule_says_so(
    api: StandaloneApi, client: Cluster, answer: FaultAnswer, *, done: bool
) -> None:
    rule = ApiFault(answer=answer, verb="create", resource="nodes", requests=1, done=done)
    api.call(lambda: api.server.faults.add(rule))
    raw(client, "POST", NODES, NODE)
    assert client.get(NODES).items == (["made"] if done else [])
    assert api.call(lambda: api.server.faults.struck(rule)) == 1


@pytest.mark.parametrize("ahead", [-86400, 300])
def test_a_server_whose_clock_is_off_dates_and_stamps_by_it(tmp_path: Path, ahead: int) -> None:
    with (
        standalone_api(tmp_path, ahead=ahead) as api,
        connected(api.kubeconfig, tmp_path, controllers=False) as client,
    ):
        made = raw(client, "POST", NODES, NODE)
        stamps = (
            parsedate_to_datetime(made.headers["Date"]),
            datetime.fromisoformat(made.json()["metadata"]["creationTimestamp"]),
            parsedate_to_datetime(raw(client, "GET", f"{NODES}?watch=1&timeoutSeconds=1").headers["Date"]),
        )
        for stamp in stamps:
            assert abs(stamp - datetime.now(UTC) - timedelta(seconds=ahead)) < timedelta(seconds=20)
