"""Writes of the lock whose answers no recording has: an update that makes, and whose fields those
are of a renewal.
"""

from tests.contract.cluster import MERGE, Cluster, Json

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


def test_a_lease_is_made_by_an_update_that_names_no_uid(cluster: Cluster) -> None:
    path = leases(cluster.namespace())

    def put(spec: Json, **metadata: str) -> int:
        return cluster.send(
            "PUT", f"{path}/l", {"metadata": {"name": "l", **metadata}, "spec": spec}
        ).status

    assert put(SPEC, resourceVersion="5", uid=NOBODY) == 409
    assert put(SPEC, resourceVersion="5") == 201
    assert put(SPEC) == 422
    version = cluster.get(f"{path}/l").body["metadata"]["resourceVersion"]
    assert put(SPEC, resourceVersion=version, namespace="other") == 400
    assert put({**SPEC, "holderIdentity": "bob"}, resourceVersion=version) == 200
    assert put({**SPEC, "holderIdentity": "cid"}, resourceVersion=version) == 409


def test_an_update_names_its_object_and_no_version_is_zero(cluster: Cluster) -> None:
    path = f"/api/v1/namespaces/{cluster.namespace()}/configmaps"
    cluster.make(path, {"metadata": {"name": "c"}, "data": {"a": "x"}})
    assert cluster.send("PUT", f"{path}/c", {"data": {"a": "y"}}).status == 400
    assert (
        cluster.send("PUT", f"{path}/c", {"metadata": {"name": "c", "resourceVersion": "0"}}).status
        == 200
    )


def test_what_others_wrote_on_a_lease_goes_with_an_update_that_lacks_it(cluster: Cluster) -> None:
    """And who wrote what of it, by which a renewal is told from others' writes."""
    path = leases(cluster.namespace())
    spec = {"holderIdentity": "ann", "renewTime": "2026-03-04T05:06:07.000001Z"}
    cluster.make(path, {"metadata": {"name": "l"}, "spec": spec})
    cluster.patch(
        f"{path}/l", {"metadata": {"labels": {"team": "a"}}}, MERGE, fieldManager="labeller"
    )
    found = cluster.get(f"{path}/l").body["metadata"]
    writers = {
        entry["manager"]: "f:renewTime" in str(entry["fieldsV1"])
        for entry in found["managedFields"]
    }
    assert len(writers) == 2
    assert writers["labeller"] is False
    assert any(writers.values())
    cluster.send(
        "PUT", f"{path}/l", {"metadata": {"name": "l", "resourceVersion": found["resourceVersion"]}}
    )
    assert "labels" not in cluster.get(f"{path}/l").body["metadata"]
