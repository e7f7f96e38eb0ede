"""Objects of any kind: in which version they are read, and what is said if they cannot be."""

from pathlib import Path

import pytest

from rollout.errors import ApiError, GateError, UsageError
from rollout.gather.cluster.objects import read_object
from rollout.model.object_reference import ObjectReference
from tests.gather.test_snapshot import Json, client, serving
from tests.scripted_api import scripted

GROUP: Json = {
    "kind": "APIGroup",
    "apiVersion": "v1",
    "name": "example.com",
    "versions": [{"version": "v2"}, {"version": "v1"}],
    "preferredVersion": {"version": "v2"},
}


def resources(*names: str, namespaced: bool) -> Json:
    listed = [{"name": name, "namespaced": namespaced} for name in names]
    return {"kind": "APIResourceList", "resources": listed}


GATEWAY = {"kind": "Gateway", "apiVersion": "example.com/v2", "metadata": {"name": "a"}}
OLD = {"kind": "Mouse", "apiVersion": "example.com/v1", "metadata": {"name": "b"}}
NODE = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "worker-1"}}
SERVED: dict[str, Json | int] = {
    "/apis/example.com": GROUP,
    "/apis/example.com/v2": resources("gateways", namespaced=True),
    "/apis/example.com/v1": resources("gateways", "mice", namespaced=True),
    "/apis/example.com/v2/namespaces/web/gateways/a": GATEWAY,
    "/apis/example.com/v1/namespaces/web/mice/b": OLD,
    "/apis/example.com/v2/namespaces/web/gateways/closed": 403,
    "/api/v1": resources("nodes", namespaced=False),
    "/api/v1/nodes/worker-1": NODE,
}


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("gateways.example.com/web/a", b'"a"'),
        ("mice.example.com/web/b", b'"b"'),
        ("nodes/worker-1", b'"worker-1"'),
    ],
)
def test_an_object_is_read_in_the_first_version_that_has_it(
    written: str, name: bytes, tmp_path: Path
) -> None:
    with scripted(serving(SERVED)) as server:
        assert name in read_object(client(tmp_path, server), ObjectReference.parse(written))


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("gateways.example.com/web/other", "it does not exist"),
        ("gateways.example.org/web/a", "the API server does not serve gateways.example.org"),
        ("cats.example.com/web/a", "the API server does not serve cats.example.com"),
        ("gateways.example.com/a", "gateways.example.com are namespaced: write the namespace"),
        ("nodes/web/worker-1", "nodes are cluster-scoped: leave out the namespace"),
    ],
)
def test_an_object_that_is_not_there_says_why(written: str, why: str, tmp_path: Path) -> None:
    with scripted(serving(SERVED)) as server, pytest.raises(GateError) as raised:
        read_object(client(tmp_path, server), ObjectReference.parse(written))
    assert raised.value.message == why


def test_an_object_that_may_not_be_read_is_forbidden(tmp_path: Path) -> None:
    reference = ObjectReference.parse("gateways.example.com/web/closed")
    with scripted(serving(SERVED)) as server, pytest.raises(ApiError) as raised:
        read_object(client(tmp_path, server), reference)
    assert raised.value.is_forbidden


@pytest.mark.parametrize(
    "written",
    [
        "",
        "nodes",
        "Nodes/worker-1",
        "nodes/../secrets",
        "clusters.example.com/a/b/c",
        "clusters..com/a/b",
        "clusters.example.com/a/b?watch=1",
        "clusters.example.com/a/%2e%2e",
        "secrets/kube-system/token",
    ],
)
def test_what_is_no_resource_is_refused(written: str) -> None:
    with pytest.raises(UsageError):
        ObjectReference.parse(written)
