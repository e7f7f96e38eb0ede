"""Which bodies of good answers are believed, and what the server's clock is taken to say."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rollout.adapters.clock import ServerTime
from rollout.adapters.kube.answers import check_answer
from rollout.errors import ApiUnavailableError
from tests.scripted_api import Exchange, client, scripted

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
POD = "/api/v1/namespaces/shop/pods/web-0"
SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
FAILURE = {**SUCCESS, "status": "Failure"}


def of(kind: str, version: str = "v1", **more: Any) -> dict[str, Any]:
    return {"kind": kind, "apiVersion": version, "metadata": {}, **more}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/api/v1/nodes", of("NodeList", items=[])),
        ("GET", "/api/v1/nodes/w-1", of("Node")),
        ("GET", POD, of("Pod", status={"phase": "Running"})),
        ("POST", LEASES, of("Lease", "coordination.k8s.io/v1")),
        ("PUT", f"{LEASES}/node-rollout", of("Lease", "coordination.k8s.io/v1")),
        (
            "GET",
            "/apis/policy/v1beta1/poddisruptionbudgets",
            of("PodDisruptionBudgetList", "policy/v1beta1"),
        ),
        ("GET", "/apis/networking.k8s.io/v1/ingresses", of("IngressList", "networking.k8s.io/v1")),
        ("GET", "/apis/example.com/v1/policies/one", of("Policy", "example.com/v1")),
        ("DELETE", POD, of("Pod")),
        ("DELETE", POD, SUCCESS),
        ("POST", f"{POD}/eviction", SUCCESS),
        ("POST", f"{POD}/eviction", of("Eviction", "policy/v1")),
        ("GET", "/api/v1", {"kind": "APIResourceList", "groupVersion": "v1", "resources": []}),
        ("GET", "/apis/policy/v1", {"kind": "APIResourceList", "apiVersion": "v1"}),
        ("GET", "/version", {"major": "1", "gitVersion": "v1.31.0"}),
    ],
)
def test_answers_of_an_api_server_are_believed(
    method: str, path: str, body: dict[str, Any]
) -> None:
    assert check_answer(json.dumps(body).encode(), method, path) == ""


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/api/v1/nodes", b"<html>"),
        ("GET", "/version", b"<html>"),
        (
            "GET",
            "/api/v1/nodes",
            b'{"kind":"NodeList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name"',
        ),
        (
            "GET",
            "/api/v1/nodes",
            b'{"kind":"NodeList","apiVersion":"v1","metadata":{},"x":' + b"[" * 100_000,
        ),
        ("GET", "/api/v1/nodes", b'{"kind":"NodeList","apiVersion":"v1","metadata":[]}'),
        ("GET", "/api/v1/nodes", b"{}"),
        ("GET", "/api/v1/nodes", SUCCESS),
        ("GET", "/api/v1/nodes", of("PodList")),
        ("GET", "/api/v1/nodes", of("Node")),
        ("GET", "/api/v1/nodes", of("NodeList", "v2")),
        ("GET", "/api/v1/nodes/w-1", of("NodeList")),
        ("GET", "/api/v1/nodes/w-1", SUCCESS),
        ("PATCH", "/api/v1/nodes/w-1", SUCCESS),
        ("POST", LEASES, of("LeaseList", "coordination.k8s.io/v1")),
        ("POST", f"{POD}/eviction", FAILURE),
        ("POST", f"{POD}/eviction", {**SUCCESS, "status": None}),
        ("DELETE", POD, FAILURE),
        ("GET", "/api/v1", SUCCESS),
    ],
)
def test_whatever_else_says_200_is_a_server_that_is_away(
    method: str, path: str, body: bytes | dict[str, Any]
) -> None:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(
        ApiUnavailableError,
        match=f"the response to {method} {path} is not from a Kubernetes API server",
    ) as caught:
        check_answer(text, method, path)
    assert caught.value.status == 200


@pytest.mark.parametrize("ask", ["get", "create", "replace", "patch", "delete", "pages"])
def test_every_way_of_asking_looks_at_the_answer(tmp_path: Path, ask: str) -> None:
    arguments: tuple[Any, ...] = () if ask in {"get", "pages", "delete"} else ({},)
    with (
        scripted(lambda exchange: exchange.answer(200, b"<html>")) as server,
        pytest.raises(ApiUnavailableError),
    ):
        list(getattr(client(tmp_path, server.url), ask)("/api/v1/nodes/w-1", *arguments))


def test_the_servers_clock_goes_on_from_the_date_of_its_answers(tmp_path: Path) -> None:
    dates = ["Sun, 01 Mar 2026 10:00:00 GMT", "Sun, 01 Mar 2026 09:00:00 GMT"]

    def script(exchange: Exchange) -> None:
        exchange.send_response_only(200)
        body = b"{}"
        for name, value in {"Date": dates.pop(0), "Content-Length": str(len(body))}.items():
            exchange.send_header(name, value)
        exchange.end_headers()
        exchange.wfile.write(body)

    with scripted(script) as server:
        api = client(tmp_path, server.url)
        assert api.server_time() is None
        for hour in (10, 9):
            api.within(1).get("/version")
            told = api.server_time()
            assert told is not None
            assert (
                timedelta() <= told - datetime(2026, 3, 1, hour, tzinfo=UTC) < timedelta(minutes=1)
            )


@pytest.mark.parametrize(
    "headers",
    [{}, {"Date": ""}, {"Date": "soon"}, {"Date": "Sun, 01 Mar 2026 10:00:00 GMT", "Age": "30"}],
)
def test_no_clock_is_told_by_an_answer_without_a_date_or_out_of_a_cache(
    headers: dict[str, str],
) -> None:
    there = ServerTime(lambda: 0.0)
    there.note_answer(headers, 0.0)
    assert there.now() is None
