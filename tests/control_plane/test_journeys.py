"""Whole rollouts against a real control plane, over machines that really reboot."""

import yaml

from tests.control_plane.conftest import NAMES, WORKLOADS, RealCluster
from tests.control_plane.database import database
from tests.control_plane.kubelets import DURATION
from tests.control_plane.rest import Rest
from tests.control_plane.samples import sampled_budgets
from tests.e2e.machines import STAGED_VERSION, wait_for
from tests.ended import start

JSON = ("-o", "json")


def _are_available(rest: Rest) -> bool:
    deployments = rest.items("/apis/apps/v1/deployments")
    sets = rest.items("/apis/apps/v1/statefulsets")
    daemons = rest.items("/apis/apps/v1/daemonsets")
    return (
        all(
            each["status"].get("availableReplicas") == each["spec"]["replicas"]
            for each in deployments
        )
        and all(each["status"].get("readyReplicas") == each["spec"]["replicas"] for each in sets)
        and all(each["status"].get("numberReady") == len(NAMES) for each in daemons)
    )


def _budgets_are_counted(rest: Rest) -> bool:
    budgets = rest.items("/apis/policy/v1/poddisruptionbudgets")
    return all(budget["status"].get("expectedPods") for budget in budgets)


def _deploy(cluster: RealCluster, text: str) -> None:
    cluster.rest.create_all(text)
    wait_for(lambda: _are_available(cluster.rest), "the workloads to be available", 90)
    wait_for(lambda: _budgets_are_counted(cluster.rest), "the budgets to be counted", 30)


def test_six_machines(cluster: RealCluster) -> None:
    _deploy(cluster, WORKLOADS.read_text())
    boots = {machine.name: machine.booted for machine in cluster.machines}
    cluster.rollout("plan", "--max-unavailable", "2")
    with sampled_budgets(cluster.rest) as budgets:
        ended = cluster.rollout("apply", "--yes", "--max-unavailable", "2", *JSON)
    assert sorted(ended.summary["succeeded"]) == sorted(NAMES)
    assert {machine.os_version for machine in cluster.machines} == {STAGED_VERSION}
    assert all(machine.booted not in ("", boots[machine.name]) for machine in cluster.machines)
    assert budgets.count > 20
    assert budgets.violations == []
    cluster.assert_clean()


def test_the_service_account_of_the_manifests_may_do_everything(cluster: RealCluster) -> None:
    _deploy(cluster, WORKLOADS.read_text())
    known_hosts = cluster.environment()["ROLLOUT_KNOWN_HOSTS"]
    image = ("--image", "registry.example/node-rollout:1.0")
    printed = cluster.rollout("manifests", *image, "--known-hosts", known_hosts).stdout
    cluster.rest.create_all(printed)
    account = f"{_service_account(printed)}/token"
    token = cluster.rest.post(account, {"spec": {}})["status"]["token"]
    kubeconfig = cluster.kubeconfig_of(token)
    doctor = cluster.rollout("doctor", kubeconfig=kubeconfig, code=None)
    assert "may not" not in doctor.stdout, doctor.stdout
    ended = cluster.rollout("operate", "--once", *JSON, kubeconfig=kubeconfig)
    assert sorted(ended.summary["succeeded"]) == sorted(NAMES)
    cluster.assert_clean()


def _service_account(printed: str) -> str:
    for document in yaml.safe_load_all(printed):
        if document and document["kind"] == "ServiceAccount":
            metadata = document["metadata"]
            return f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{metadata['name']}"
    raise AssertionError(printed)


SINGLE = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: single, namespace: default}
spec:
  replicas: 1
  selector: {matchLabels: {app: single}}
  template:
    metadata: {labels: {app: single}}
    spec:
      containers: [{name: single, image: single}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: single, namespace: default}
spec: {minAvailable: 1, selector: {matchLabels: {app: single}}}
"""


def test_a_single_replica_moves_without_a_gap(cluster: RealCluster) -> None:
    _deploy(cluster, SINGLE)
    refused = cluster.rollout("plan", code=None)
    assert "drain.restart" in refused.stdout
    with sampled_budgets(cluster.rest) as budgets:
        ended = cluster.rollout("apply", "--yes", "--set", "drain.restart=blocked", *JSON)
    assert sorted(ended.summary["succeeded"]) == sorted(NAMES)
    assert budgets.violations == []
    cluster.assert_clean()


JOB = f"""
apiVersion: batch/v1
kind: Job
metadata: {{name: train, namespace: default}}
spec:
  backoffLimit: 0
  template:
    metadata: {{annotations: {{{DURATION}: "40"}}}}
    spec:
      restartPolicy: Never
      containers: [{{name: train, image: train}}]
"""


def test_a_job_is_not_interrupted(cluster: RealCluster) -> None:
    cluster.rest.create_all(JOB)
    job = "/apis/batch/v1/namespaces/default/jobs/train"
    wait_for(lambda: cluster.rest.get(job)["status"].get("ready") == 1, "the job to run", 30)
    waiting = ("--set", "drain.wait-for-completion=job-name", "--max-unavailable", "6")
    ended = cluster.rollout("apply", "--yes", *waiting, *JSON)
    assert sorted(ended.summary["succeeded"]) == sorted(NAMES)
    status = cluster.rest.get(job)["status"]
    assert status["succeeded"] == 1
    assert "failed" not in status
    cluster.assert_clean()


def test_a_killed_rollout_is_resumed(cluster: RealCluster) -> None:
    _deploy(cluster, WORKLOADS.read_text())
    with sampled_budgets(cluster.rest) as budgets:
        started = start(cluster.directory, cluster.environment(), ("apply", "--yes"))
        wait_for(lambda: any(not machine.booted for machine in cluster.machines), "a reboot", 60)
        started.kill()
        started.communicate()
        cluster.rollout("resume", "--yes")
    assert {machine.os_version for machine in cluster.machines} == {STAGED_VERSION}
    assert budgets.violations == []
    cluster.assert_clean()


def _has_primary(rest: Rest) -> bool:
    budgets = rest.items("/apis/policy/v1/poddisruptionbudgets")
    return any(budget["status"].get("currentHealthy") == 1 for budget in budgets)


def test_a_primary_moves_from_each_cordoned_node(cluster: RealCluster) -> None:
    with database(cluster.rest, moves=True):
        wait_for(lambda: _has_primary(cluster.rest), "the primary", 60)
        planned = cluster.rollout("plan")
        assert "the controller of Cluster default/shop" in planned.stdout
        with sampled_budgets(cluster.rest) as budgets:
            ended = cluster.rollout("apply", "--yes", *JSON)
    assert sorted(ended.summary["succeeded"]) == sorted(NAMES)
    assert budgets.violations == []
    cluster.assert_clean()


def test_the_node_of_a_primary_that_stays_is_returned(cluster: RealCluster) -> None:
    with database(cluster.rest, moves=False):
        wait_for(lambda: _has_primary(cluster.rest), "the primary", 60)
        patient = ("--drain-timeout", "20s", "--max-failures", "3")
        ended = cluster.rollout("apply", "--yes", *patient, *JSON, code=4)
    assert len(ended.summary["succeeded"]) == len(NAMES) - 1
    (failure,) = ended.summary["failed"]
    assert "default/shop-primary" in failure["message"]
    cluster.assert_clean()
