"""What a rollout writes, and what is next to it: a server that took less would hide mistakes."""

import pytest

from tests.contract.cluster import MERGE, Cluster, Json

NODES = "/api/v1/nodes"
NOBODY = "00000000-0000-0000-0000-000000000000"
MOMENT = "2026-03-04T05:06:07.000001Z"
SPEC = {
    "holderIdentity": "ann",
    "leaseDurationSeconds": 30,
    "leaseTransitions": 0,
    "acquireTime": MOMENT,
    "renewTime": MOMENT,
}


def leases(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"leaseDurationSeconds": 0}, (422, ["FieldValueInvalid"])),
        ({"leaseDurationSeconds": 1.5}, (400, [])),
        ({"leaseDurationSeconds": "30"}, (400, [])),
        ({"holderIdentity": 5}, (400, [])),
    ],
)
def test_leases_of_the_wrong_form(cluster: Cluster, wrong: Json, expected: tuple[int, list[str]]) -> None:
    path = leases(cluster.namespace())
    answer = cluster.send("POST", path, {"metadata": {"name": "l"}, "spec": {**SPEC, **wrong}})
    assert (answer.status, answer.causes) == expected


def test_a_lease_is_made_by_an_update_that_names_no_uid(cluster: Cluster) -> None:
    namespace = cluster.namespace()
    path = leases(namespace)

    def put(spec: Json, **metadata: str) -> int:
        return cluster.send("PUT", f"{path}/l", {"metadata": {"name": "l", **metadata}, "spec": spec}).status

    assert put(SPEC, resourceVersion="5", uid=NOBODY) == 409
    assert put(SPEC, resourceVersion="5") == 201
    assert put(SPEC) == 422
    version = cluster.get(f"{path}/l").body["metadata"]["resourceVersion"]
    assert put(SPEC, resourceVersion=version, namespace="other") == 400
    assert put({**SPEC, "holderIdentity": "bob"}, resourceVersion=version) == 200
    assert put({**SPEC, "holderIdentity": "cid"}, resourceVersion=version) == 409


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"data": {"a/b": "x"}}, (422, ["FieldValueInvalid"])),
        ({"data": {"k" * 254: "x"}}, (422, ["FieldValueInvalid"])),
        ({"data": {"..": "x"}}, (422, ["FieldValueInvalid"])),
        ({"data": {"..a": "x"}}, (422, ["FieldValueInvalid"])),
        ({"data": {"a": None}}, (201, [])),
        ({"data": {"a": "x" * (1024 * 1024 + 1)}}, (422, ["FieldValueTooLong"])),
        ({"data": {"a": "x" * (3 * 1024 * 1024)}}, (413, [])),
        ({"data": {"a": 1}}, (400, [])),
        ({"metadata": {"name": "Upper"}}, (422, ["FieldValueInvalid"])),
    ],
    ids=[
        "key",
        "long key",
        "folder",
        "hidden",
        "null",
        "1 MiB",
        "3 MiB",
        "number",
        "name",
    ],
)
def test_configmaps_of_the_wrong_form(cluster: Cluster, content: Json, expected: tuple[int, list[str]]) -> None:
    path = f"/api/v1/namespaces/{cluster.namespace()}/configmaps"
    answer = cluster.send("POST", path, {"metadata": {"name": "c"}, **content})
    assert (answer.status, answer.causes) == expected


def test_an_update_names_its_object_and_no_version_is_zero(cluster: Cluster) -> None:
    path = f"/api/v1/namespaces/{cluster.namespace()}/configmaps"
    cluster.make(path, {"metadata": {"name": "c"}, "data": {"a": "x"}})
    assert cluster.send("PUT", f"{path}/c", {"data": {"a": "y"}}).status == 400
    assert cluster.send("PUT", f"{path}/c", {"metadata": {"name": "c", "resourceVersion": "0"}}).status == 200


@pytest.mark.parametrize(
    ("patch", "reason"),
    [
        ({"metadata": {"annotations": {"a b": "c"}}}, "FieldValueInvalid"),
        ({"metadata": {"annotations": {"-/b": "c"}}}, "FieldValueInvalid"),
        ({"metadata": {"annotations": {"a": "x" * 270_000}}}, "FieldValueTooLong"),
        ({"metadata": {"annotations": {"a": 1}}}, "FieldValueInvalid"),
        ({"metadata": {"labels": {"a b": "c"}}}, "FieldValueInvalid"),
        ({"metadata": {"labels": {"a": "x" * 64}}}, "FieldValueInvalid"),
        ({"spec": {"unschedulable": "yes"}}, "FieldValueInvalid"),
        ({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}] * 2}}, "FieldValueDuplicate"),
        ({"spec": {"taints": [{"key": "a b", "effect": "NoSchedule"}]}}, "FieldValueInvalid"),
        ({"spec": {"taints": [{"key": "a" * 64, "effect": "NoSchedule"}]}}, "FieldValueInvalid"),
        ({"spec": {"taints": [{"key": "a", "value": "a b", "effect": "NoSchedule"}]}}, "FieldValueInvalid"),
    ],
    ids=[
        "key",
        "prefix",
        "256 KiB",
        "number",
        "label",
        "label value",
        "cordon",
        "taint",
        "taint key",
        "taint length",
        "taint value",
    ],
)
def test_nodes_of_the_wrong_form(cluster: Cluster, patch: Json, reason: str) -> None:
    node = f"{NODES}/{cluster.node()}"
    refused = cluster.patch(node, patch, MERGE)
    # Old servers say each of these more than once.
    assert (refused.status, set(refused.causes)) == (422, {reason})
    assert cluster.patch(node, {"metadata": {"annotations": {"A.b/C": "upper case is fine"}}}, MERGE).status == 200
