import json
from pathlib import Path

import pytest

from rollout.adapters.kube.api import connect
from rollout.errors import ApiError
from rollout.gather.cluster.rights import (
    REVIEWS,
    Right,
    allowed,
    apply_rights,
    missing_rights,
    plan_rights,
    status_rights,
)
from tests.scripted_api import Exchange, Kubeconfig, scripted


def reviewing(exchange: Exchange) -> None:
    """Everything is allowed but patching nodes and evicting."""
    assert exchange.split.path == REVIEWS
    asked = json.loads(exchange.payload)["spec"]["resourceAttributes"]
    refused = (asked["verb"], asked["resource"]) == ("patch", "nodes") or asked.get("subresource") == "eviction"
    exchange.json({"kind": "SelfSubjectAccessReview", "status": {"allowed": not refused}}, 201)


def test_a_right_is_asked_for_in_full(tmp_path: Path) -> None:
    with scripted(reviewing) as server:
        api = connect(Kubeconfig(server.url).write(tmp_path / "kubeconfig"), None)
        assert allowed(api, Right("get", "coordination.k8s.io", "leases", namespace="kube-system"))
        assert not allowed(api, Right("create", "", "pods", "eviction"))
        bodies = [json.loads(exchange.payload) for exchange in server.exchanges]
    assert bodies[0] == {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {
            "resourceAttributes": {
                "verb": "get",
                "group": "coordination.k8s.io",
                "resource": "leases",
                "namespace": "kube-system",
            }
        },
    }


def test_a_server_that_does_not_say_is_an_error(tmp_path: Path) -> None:
    with scripted(lambda exchange: exchange.answer(403, b"no")) as server, pytest.raises(ApiError):
        missing_rights(connect(Kubeconfig(server.url).write(tmp_path / "kubeconfig"), None), status_rights())


def test_applying_takes_all_that_planning_takes() -> None:
    assert set(status_rights()) < set(plan_rights()) < set(apply_rights("ns"))
    assert str(Right("get", "apps", "statefulsets")) == "get statefulsets.apps"
    assert str(Right("get", "", "configmaps", namespace="ns")) == "get configmaps in namespace ns"
    assert str(Right("get", "", "configmaps", "", "ns", "one")) == "get configmaps one in namespace ns"
    ours = [right for right in apply_rights("ns") if right.resource in ("leases", "configmaps")]
    assert {right.namespace for right in ours} == {"ns"}
    names = {"node-rollout", "node-rollout-memory", "node-rollout-fleetlock"}
    assert {right.name for right in ours if right.verb != "create"} == names
    assert {right.name for right in ours if right.verb == "create"} == {""}
