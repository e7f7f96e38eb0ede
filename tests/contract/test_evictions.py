import pytest

from tests.contract.cluster import Cluster

pytestmark = pytest.mark.sample

NOBODY = "00000000-0000-0000-0000-000000000000"


def _terminating(cluster: Cluster, pod: str) -> bool:
    return "deletionTimestamp" in cluster.get(pod).body["metadata"]


def test_without_a_budget(cluster: Cluster) -> None:
    pod = cluster.pod(cluster.namespace(), cluster.node())
    answer = cluster.evict(pod, gracePeriodSeconds=5)
    assert (answer.status, answer.body["status"]) == (201, "Success")
    evicted = cluster.get(pod).body
    assert evicted["metadata"]["deletionGracePeriodSeconds"] == 5
    assert cluster.evict(pod).status == 201
    cluster.needs(1, 26)
    assert "DisruptionTarget" in {condition["type"] for condition in evicted["status"]["conditions"]}


def test_an_exhausted_budget_refuses(cluster: Cluster) -> None:
    namespace, node = cluster.namespace(), cluster.node()
    pods = [cluster.pod(namespace, node) for _ in range(2)]
    budget = cluster.budget(namespace, {"minAvailable": 2}, healthy=2, allowed=0)
    answer = cluster.evict(pods[0])
    assert (answer.status, answer.reason, answer.causes) == (429, "TooManyRequests", ["DisruptionBudget"])
    assert "Retry-After" not in answer.headers
    assert budget.rpartition("/")[2] in answer.body["details"]["causes"][0]["message"]
    assert cluster.evict(pods[0], preconditions={"uid": NOBODY}).status == 429
    assert not _terminating(cluster, pods[0])


def test_a_budget_is_used_up(cluster: Cluster) -> None:
    namespace, node = cluster.namespace(), cluster.node()
    pods = [cluster.pod(namespace, node) for _ in range(3)]
    cluster.budget(namespace, {"minAvailable": 2}, healthy=3, allowed=1)
    assert [cluster.evict(pod, dryRun=["All"]).status for pod in pods[:2]] == [201, 201]
    assert not _terminating(cluster, pods[0])
    assert [cluster.evict(pod).status for pod in pods[:2]] == [201, 429]


def test_a_wrong_uid_still_costs_the_budget(cluster: Cluster) -> None:
    namespace, node = cluster.namespace(), cluster.node()
    pods = [cluster.pod(namespace, node) for _ in range(2)]
    budget = cluster.budget(namespace, {"minAvailable": 1}, healthy=2, allowed=1)
    answer = cluster.evict(pods[0], preconditions={"uid": NOBODY})
    assert (answer.status, answer.reason) == (409, "Conflict")
    status = cluster.get(budget).body["status"]
    assert status["disruptionsAllowed"] == 0
    assert pods[0].rpartition("/")[2] in status["disruptedPods"]
    assert cluster.evict(pods[1]).status == 429


def test_two_budgets_are_an_error(cluster: Cluster) -> None:
    namespace, node = cluster.namespace(), cluster.node()
    pod = cluster.pod(namespace, node)
    for _ in range(2):
        cluster.budget(namespace, {"minAvailable": 0}, healthy=1, allowed=1)
    answer = cluster.evict(pod)
    assert answer.status == 500
    assert "more than one PodDisruptionBudget" in answer.body["message"]


def test_pods_that_do_not_run_are_not_protected(cluster: Cluster) -> None:
    namespace, node = cluster.namespace(), cluster.node()
    pending = cluster.pod(namespace, node, phase="Pending")
    running = [cluster.pod(namespace, node) for _ in range(2)]
    cluster.budget(namespace, {"minAvailable": 2}, healthy=2, allowed=0)
    assert cluster.evict(running[0]).status == 429
    assert cluster.evict(pending).status == 201


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
