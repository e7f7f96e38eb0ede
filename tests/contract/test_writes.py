from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.contract.cluster import MERGE, Cluster, Json

NODES = "/api/v1/nodes"


def test_the_main_resource_cannot_touch_status(cluster: Cluster) -> None:
    path = f"{NODES}/{cluster.node()}"
    cluster.patch(path, {"status": {"conditions": [{"type": "ContractA", "status": "True"}]}})
    conditions = cluster.get(path).body["status"].get("conditions", [])
    assert "ContractA" not in {condition["type"] for condition in conditions}


def test_only_one_of_two_takes_a_lease(cluster: Cluster) -> None:
    path = leases(cluster.namespace())
    lease = cluster.make(path, {"metadata": {"name": "lock"}, "spec": {"holderIdentity": ""}})

    def take(holder: str) -> int:
        return cluster.send("PUT", f"{path}/lock", {**lease, "spec": {"holderIdentity": holder}}).status

    with ThreadPoolExecutor() as pool:
        statuses = sorted(pool.map(take, ["a", "b", "c", "d"]))
    assert statuses == [200, 409, 409, 409]


def test_a_patch_may_insist_on_a_version(cluster: Cluster) -> None:
    path = f"{NODES}/{cluster.node()}"
    stale = cluster.patch(path, {"metadata": {"resourceVersion": "1", "labels": {"q": "r"}}}, MERGE)
    assert (stale.status, stale.reason) == (409, "Conflict")


def test_a_pod_terminates_within_its_grace(cluster: Cluster) -> None:
    pod = cluster.pod(cluster.namespace(), cluster.node())
    first = cluster.send("DELETE", pod)
    assert first.status == 200
    assert first.body["metadata"]["deletionGracePeriodSeconds"] == 60
    longer = cluster.send("DELETE", pod, gracePeriodSeconds=90)
    assert longer.body["metadata"]["deletionGracePeriodSeconds"] == 60
    shorter = cluster.send("DELETE", pod, gracePeriodSeconds=30)
    assert shorter.body["metadata"]["deletionGracePeriodSeconds"] == 30
    assert cluster.get(pod).status == 200
    assert cluster.send("DELETE", pod, gracePeriodSeconds=0).status == 200
    assert cluster.get(pod).status == 404


def test_deletions_may_insist_on_identity(cluster: Cluster) -> None:
    pod = cluster.pod(cluster.namespace(), cluster.node())
    uid = cluster.get(pod).body["metadata"]["uid"]
    wrong = cluster.send("DELETE", pod, {"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}})
    assert (wrong.status, wrong.reason) == (409, "Conflict")
    assert "deletionTimestamp" not in cluster.get(pod).body["metadata"]
    assert cluster.send("DELETE", pod, {"preconditions": {"uid": uid}, "gracePeriodSeconds": 0}).status == 200


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
        return cluster.send("PUT", f"{path}/l", {"metadata": {"name": "l", **metadata}, "spec": spec}).status

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
    assert cluster.send("PUT", f"{path}/c", {"metadata": {"name": "c", "resourceVersion": "0"}}).status == 200


def test_what_others_wrote_on_a_lease_goes_with_an_update_that_lacks_it(cluster: Cluster) -> None:
    """And who wrote what of it, by which a renewal is told from others' writes."""
    path = leases(cluster.namespace())
    spec = {"holderIdentity": "ann", "renewTime": "2026-03-04T05:06:07.000001Z"}
    cluster.make(path, {"metadata": {"name": "l"}, "spec": spec})
    cluster.patch(f"{path}/l", {"metadata": {"labels": {"team": "a"}}}, MERGE, fieldManager="labeller")
    found = cluster.get(f"{path}/l").body["metadata"]
    writers = {entry["manager"]: "f:renewTime" in str(entry["fieldsV1"]) for entry in found["managedFields"]}
    assert len(writers) == 2
    assert writers["labeller"] is False
    assert any(writers.values())
    cluster.send("PUT", f"{path}/l", {"metadata": {"name": "l", "resourceVersion": found["resourceVersion"]}})
    assert "labels" not in cluster.get(f"{path}/l").body["metadata"]


def _terminating(cluster: Cluster, pod: str) -> bool:
    return "deletionTimestamp" in cluster.get(pod).body["metadata"]


def placed(cluster: Cluster, count: int) -> tuple[str, list[str]]:
    """So many pods on one node, and their namespace."""
    namespace, node = cluster.namespace(), cluster.node()
    return namespace, [cluster.pod(namespace, node) for _ in range(count)]


@pytest.mark.sample
def test_without_a_budget(cluster: Cluster) -> None:
    pod = cluster.pod(cluster.namespace(), cluster.node())
    answer = cluster.evict(pod, gracePeriodSeconds=5)
    assert (answer.status, answer.body["status"]) == (201, "Success")
    evicted = cluster.get(pod).body
    assert evicted["metadata"]["deletionGracePeriodSeconds"] == 5
    assert cluster.evict(pod).status == 201
    cluster.needs(1, 26)
    assert "DisruptionTarget" in {condition["type"] for condition in evicted["status"]["conditions"]}


@pytest.mark.sample
def test_an_exhausted_budget_refuses(cluster: Cluster) -> None:
    namespace, pods = placed(cluster, 2)
    budget = cluster.budget(namespace, {"minAvailable": 2}, healthy=2, allowed=0)
    answer = cluster.evict(pods[0])
    assert (answer.status, answer.reason, answer.causes) == (429, "TooManyRequests", ["DisruptionBudget"])
    assert "Retry-After" not in answer.headers
    assert budget.rpartition("/")[2] in answer.body["details"]["causes"][0]["message"]
    assert cluster.evict(pods[0], preconditions={"uid": NOBODY}).status == 429
    assert not _terminating(cluster, pods[0])


@pytest.mark.sample
def test_a_budget_is_used_up(cluster: Cluster) -> None:
    namespace, pods = placed(cluster, 3)
    cluster.budget(namespace, {"minAvailable": 2}, healthy=3, allowed=1)
    assert [cluster.evict(pod, dryRun=["All"]).status for pod in pods[:2]] == [201, 201]
    assert not _terminating(cluster, pods[0])
    assert [cluster.evict(pod).status for pod in pods[:2]] == [201, 429]


@pytest.mark.sample
def test_a_wrong_uid_still_costs_the_budget(cluster: Cluster) -> None:
    namespace, pods = placed(cluster, 2)
    budget = cluster.budget(namespace, {"minAvailable": 1}, healthy=2, allowed=1)
    answer = cluster.evict(pods[0], preconditions={"uid": NOBODY})
    assert (answer.status, answer.reason) == (409, "Conflict")
    status = cluster.get(budget).body["status"]
    assert status["disruptionsAllowed"] == 0
    assert pods[0].rpartition("/")[2] in status["disruptedPods"]
    assert cluster.evict(pods[1]).status == 429


@pytest.mark.sample
def test_two_budgets_are_an_error(cluster: Cluster) -> None:
    namespace, node = cluster.namespace(), cluster.node()
    pod = cluster.pod(namespace, node)
    for _ in range(2):
        cluster.budget(namespace, {"minAvailable": 0}, healthy=1, allowed=1)
    answer = cluster.evict(pod)
    assert answer.status == 500
    assert "more than one PodDisruptionBudget" in answer.body["message"]


@pytest.mark.sample
def test_unhealthy_pods_go_by_the_budgets_policy(cluster: Cluster) -> None:
    cluster.needs(1, 27)
    namespace, node = cluster.namespace(), cluster.node()
    for app, policy, expected in (("x", "AlwaysAllow", 201), ("y", "IfHealthyBudget", 429)):
        sick = cluster.pod(namespace, node, app=app, ready=False)
        spec = {"minAvailable": 1, "unhealthyPodEvictionPolicy": policy}
        budget = cluster.budget(namespace, spec, app=app, healthy=0, allowed=0)
        if cluster.get(budget).body["status"]["desiredHealthy"] != 1:
            cluster.patch(f"{budget}/status", {"status": {"desiredHealthy": 1}}, "application/merge-patch+json")
        assert cluster.evict(sick).status == expected
