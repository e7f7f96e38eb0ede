"""The objects that a scenario's workloads become."""

from typing import Any

import pytest

from rollout.lab.api.resources import BUDGETS, PODS, Resource
from rollout.lab.hostplan import HostPlan, plan_hosts
from rollout.lab.manifests import copies_of, replicas_of, workload_objects
from rollout.lab.scenario import Budget, Role, Workload, WorkloadKind, load_scenario


@pytest.fixture(scope="module")
def hosts() -> tuple[HostPlan, ...]:
    return plan_hosts(load_scenario("default"))


def objects(workload: Workload, hosts: tuple[HostPlan, ...]) -> list[tuple[Resource, dict[str, Any]]]:
    return workload_objects(workload, hosts, {host.name: f"uid-of-{host.name}" for host in hosts})


@pytest.mark.parametrize(("share", "replicas"), [(None, 2), (1.0, 9), (0.5, 5), (0.01, 1)])
def test_replicas_follow_the_workers(share: float | None, replicas: int, hosts: tuple[HostPlan, ...]) -> None:
    workload = Workload(kind=WorkloadKind.DEPLOYMENT, name="a", replicas=2, replicas_per_worker=share)

    assert replicas_of(workload, hosts) == replicas


def test_copies_are_numbered(hosts: tuple[HostPlan, ...]) -> None:
    workload = Workload(kind=WorkloadKind.DEPLOYMENT, name="a", copies_per_worker=0.3)

    assert [copy.name for copy in copies_of(workload, hosts)] == ["a-1", "a-2", "a-3"]


def test_a_deployment_with_its_budget(hosts: tuple[HostPlan, ...]) -> None:
    workload = Workload(
        kind=WorkloadKind.DEPLOYMENT,
        name="web",
        namespace="shop",
        replicas=3,
        grace_seconds=60,
        empty_dir=True,
        lab={"termination-seconds": "never"},
        budget=Budget(min_available="50%"),
    )

    (budget_kind, budget), (_, deployment) = objects(workload, hosts)

    assert budget_kind is BUDGETS
    assert budget["spec"] == {"minAvailable": "50%", "selector": {"matchLabels": {"app": "web"}}}
    assert deployment["spec"]["replicas"] == 3
    template = deployment["spec"]["template"]
    assert template["metadata"]["annotations"] == {"lab.node-rollout.dev/termination-seconds": "never"}
    assert template["spec"]["terminationGracePeriodSeconds"] == 60
    assert template["spec"]["volumes"] == [{"name": "scratch", "emptyDir": {}}]


def test_static_pods_are_mirrors_owned_by_their_nodes(hosts: tuple[HostPlan, ...]) -> None:
    workload = Workload(kind=WorkloadKind.STATIC_POD, name="etcd", role=Role.CONTROL_PLANE)

    pods = [pod for kind, pod in objects(workload, hosts) if kind is PODS]

    assert [pod["metadata"]["name"] for pod in pods] == ["etcd-cp-1", "etcd-cp-2", "etcd-cp-3"]
    assert pods[0]["metadata"]["ownerReferences"][0]["uid"] == "uid-of-cp-1"
    assert "kubernetes.io/config.mirror" in pods[0]["metadata"]["annotations"]
    assert pods[0]["spec"]["nodeName"] == "cp-1"


def test_bare_pods_belong_to_nobody(hosts: tuple[HostPlan, ...]) -> None:
    workload = Workload(kind=WorkloadKind.POD, name="tool", replicas=2, node="worker-1")

    pods = [pod for _, pod in objects(workload, hosts)]

    assert [pod["metadata"]["name"] for pod in pods] == ["tool-1", "tool-2"]
    assert all("ownerReferences" not in pod["metadata"] for pod in pods)
    assert {pod["spec"]["nodeName"] for pod in pods} == {"worker-1"}
