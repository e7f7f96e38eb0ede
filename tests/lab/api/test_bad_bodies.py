"""Bodies that no well-behaved client sends: each is refused with a Status, none breaks the server."""

import json

import pytest
import urllib3

from rollout.lab.api.selectors import matches_labels, parse_labels
from rollout.lab.api.statuses import StatusError
from tests.contract.cluster import Cluster
from tests.standalone_api import StandaloneApi

NODES = "/api/v1/nodes"


def send(
    api: StandaloneApi, client: Cluster, method: str, path: str, body: bytes, kind: str
) -> urllib3.BaseHTTPResponse:
    headers = {"Authorization": f"Bearer {api.token}", "Content-Type": kind}
    return client._http.request(method, api.server.url + path, body=body, headers=headers)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"null", 400),
        (b"{}", 422),
        (b'{"metadata": []}', 400),
        (b'{"metadata": {"name": 5}}', 400),
        (b'{"metadata": {"name": "UPPER"}}', 422),
        (b'{"metadata": {"name": "a", "labels": {"x": 1}}}', 400),
        (b'{"metadata": {"name": "a", "labels": []}}', 400),
        (b'{"metadata": {"name": "a"}, "spec": "text"}', 400),
        (b'{"metadata": {"name": "a"}, "kind": "Pod", "apiVersion": "v1"}', 400),
        (b'{"metadata": {"name": "a"}, "spec": {"taints": [{"key": "k", "effect": "Never"}]}}', 422),
    ],
)
def test_creation(api: StandaloneApi, client: Cluster, body: bytes, status: int) -> None:
    answer = send(api, client, "POST", NODES, body, "application/json")
    assert (answer.status, json.loads(answer.data)["kind"]) == (status, "Status")
    assert client.get(NODES).items == []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", f"{NODES}/a", 405),
        ("PUT", NODES, 405),
        ("DELETE", "/version", 404),
        ("GET", "/api/v1/namespaces/default/nodes", 404),
        ("GET", "/api/v1/pods/a", 404),
        ("GET", f"{NODES}/a/b/c", 404),
        ("GET", f"{NODES}/a/proxy", 404),
        ("GET", "/api/v1/namespaces/default/pods/a/eviction", 405),
        ("GET", f"{NODES}?limit=many", 400),
        ("GET", f"{NODES}?watch=1&timeoutSeconds=x", 400),
        ("GET", f"{NODES}?watch=1&sendInitialEvents=true", 400),
        ("DELETE", f"{NODES}/a?gracePeriodSeconds=soon", 400),
        ("DELETE", f"{NODES}/a?dryRun=Some", 422),
        ("DELETE", "/api/v1/namespaces/kube-system", 403),
        ("DELETE", "/api/v1/namespaces", 405),
    ],
)
def test_addresses(client: Cluster, method: str, path: str, status: int) -> None:
    answer = client.send(method, path)
    assert (answer.status, answer.body["kind"]) == (status, "Status")


@pytest.mark.parametrize(
    ("selector", "labels", "matches"),
    [
        ("", {}, True),
        ("a=b", {"a": "b"}, True),
        ("a=b", {}, False),
        ("a==b,c=d", {"a": "b", "c": "d"}, True),
        ("a=b,c=d", {"a": "b"}, False),
        ("a!=b", {}, True),
        ("a!=b", {"a": "b"}, False),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("!a", {}, True),
        ("a=", {"a": ""}, True),
        ("a in (b,c)", {"a": "c"}, True),
        ("a in (b,c)", {"a": "d"}, False),
        ("a in (b,)", {"a": ""}, True),
        ("a notin (b,c)", {}, True),
        ("a notin (b,c), d", {"a": "b", "d": ""}, False),
        ("a>3", {"a": "4"}, True),
        ("a>3", {"a": "3"}, False),
        ("a<3", {"a": "x"}, False),
        ("node-role.kubernetes.io/control-plane=", {"node-role.kubernetes.io/control-plane": ""}, True),
    ],
)
def test_labels(selector: str, labels: dict[str, str], *, matches: bool) -> None:
    assert matches_labels(parse_labels(selector), {"metadata": {"labels": labels}}) is matches


@pytest.mark.parametrize(
    "selector", ["a===b", "a=b c", "a in b", ",", "a,", "!a=b", "a>x", "A/b/c=d", "-a=b", "a in (x"]
)
def test_broken_labels(selector: str) -> None:
    with pytest.raises(StatusError) as refused:
        parse_labels(selector)
    assert refused.value.code == 400
