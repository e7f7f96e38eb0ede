"""Deployments that a drain restarts, because their budget never allows an eviction of their pods."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from rollout.errors import DrainError
from rollout.execution.drain.drain import drain
from rollout.gather.cluster.decode import RESTARTED_AT
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.requests import RequestRecord
from rollout.lab.api.resources import BUDGETS, DEPLOYMENTS, PODS, REPLICASETS, VOLUMES
from rollout.model.policy import DrainPolicy, Restart
from rollout.model.progress import Notice, PodBlocked
from rollout.model.quantity import Duration
from rollout.model.timestamps import parse_timestamp
from rollout.ports import ClusterApi
from tests.execution.conftest import Recorder
from tests.execution.drains import (
    NODE,
    Json,
    add_budget,
    add_pod,
    asked,
    change,
    once,
    owner,
    pods_on,
    put,
    remove_pod,
    statuses,
    stored,
    task_of,
)
from tests.standalone_api import StandaloneApi
from tests.waiting import wait_until

pytestmark = [pytest.mark.in_memory, pytest.mark.usefixtures("kubelet", "node")]

Restarting = Callable[..., None]
DEPLOYMENT = owner("Deployment", "web")
REPLICA_SET = owner("ReplicaSet", "web-1")
EARLIER = "2026-01-01T00:00:00Z"
LATE = [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]


def add_deployment(server: StandaloneApi, pods: int = 1, **spec: Any) -> None:
    """Its pods are on the node, and their budget needs all of them."""
    template: Json = {"metadata": {"labels": {"app": "web"}}}
    status = {"replicas": pods, "updatedReplicas": pods, "availableReplicas": pods}
    for resource, name, parts in (
        (DEPLOYMENTS, "web", {"spec": {"replicas": pods, "template": template, **spec}}),
        (REPLICASETS, "web-1", {"spec": {"template": template}}),
    ):
        metadata: Json = {"name": name, "namespace": "default"}
        if resource is REPLICASETS:
            metadata["ownerReferences"] = [DEPLOYMENT]
        put(server, resource, {"metadata": metadata, "status": status, **parts})
    for number in range(1, pods + 1):
        labels = {"labels": {"app": "web"}}
        add_pod(server, NODE, f"web-1-{number}", owned=REPLICA_SET, metadata=labels)
    add_budget(server, "web", allowed=0, needs=pods, has=pods, expected=pods)


def restarts(server: StandaloneApi) -> list[RequestRecord]:
    return asked(server, "patch", "deployments", "web")


def restarted_at(server: StandaloneApi) -> str:
    template = stored(server, DEPLOYMENTS, "web", "default")["spec"]["template"]
    return str((template["metadata"].get("annotations") or {}).get(RESTARTED_AT, ""))


def set_restarted(server: StandaloneApi, at: str, replica_set_at: str = "") -> None:
    for resource, name, time in (
        (DEPLOYMENTS, "web", at),
        (REPLICASETS, "web-1", replica_set_at),
    ):
        metadata = {"labels": {"app": "web"}, "annotations": {RESTARTED_AT: time} if time else {}}
        change(server, resource, name, "default", spec={"template": {"metadata": metadata}})


def report(server: StandaloneApi, **status: Any) -> None:
    """What the Deployment's controller says about the new template."""
    generation = stored(server, DEPLOYMENTS, "web", "default")["metadata"].get("generation", 1)
    status = {"observedGeneration": generation, **status}
    change(server, DEPLOYMENTS, "web", "default", status=status)


def replace_pods(server: StandaloneApi) -> None:
    """The Deployment's controller ends the old pods, once the new ones are available."""
    for name in pods_on(server, NODE):
        if name.startswith("web-1-"):
            remove_pod(server, name)


@pytest.fixture
def restarting(api: ClusterApi, recorder: Recorder) -> Restarting:
    """Drain the node with drain.restart; time passes twenty times as fast."""

    def run(seconds: int = 300, *, restart: Restart = Restart.BLOCKED) -> None:
        policy = DrainPolicy(Duration(seconds), restart=restart)
        drain(task_of(NODE, api, recorder, policy, speed=20.0))

    return run


def test_a_restart_is_the_one_of_kubectl_and_the_pod_is_not_evicted(
    server: StandaloneApi, restarting: Restarting, recorder: Recorder
) -> None:
    add_deployment(server)
    controller = once(lambda: bool(restarts(server)), lambda: replace_pods(server))
    restarting()
    controller.join()
    (request,) = restarts(server)
    template = json.loads(request.body)["spec"]["template"]
    assert template == {"metadata": {"annotations": {RESTARTED_AT: restarted_at(server)}}}
    assert parse_timestamp(restarted_at(server)) is not None
    assert statuses(server, "web-1-1") == []
    notices = [event.message for event in recorder.events if isinstance(event, Notice)]
    assert any("Deployment default/web was restarted" in notice for notice in notices)


def test_the_pods_of_one_deployment_are_restarted_once(
    server: StandaloneApi, restarting: Restarting
) -> None:
    add_deployment(server, pods=3)
    controller = once(lambda: bool(restarts(server)), lambda: replace_pods(server))
    restarting()
    controller.join()
    assert len(restarts(server)) == 1


def test_a_drain_that_is_taken_up_waits_for_the_restart_of_the_one_before(
    server: StandaloneApi, restarting: Restarting, recorder: Recorder
) -> None:
    add_deployment(server)
    set_restarted(server, EARLIER)

    def is_reported() -> bool:
        return any(isinstance(event, PodBlocked) for event in recorder.events)

    controller = once(is_reported, lambda: replace_pods(server))
    restarting()
    controller.join()
    assert restarts(server) == []
    assert statuses(server, "web-1-1") == []


def test_a_replacement_that_tolerates_the_cordon_is_not_restarted_again_and_again(
    server: StandaloneApi, restarting: Restarting
) -> None:
    add_deployment(server)
    tolerations = [{"operator": "Exists"}]

    def replace_here() -> None:
        template = {"metadata": {"annotations": {RESTARTED_AT: restarted_at(server)}}}
        metadata = {"name": "web-2", "namespace": "default", "ownerReferences": [DEPLOYMENT]}
        put(server, REPLICASETS, {"metadata": metadata, "spec": {"template": template}})
        owned = owner("ReplicaSet", "web-2")
        labels = {"labels": {"app": "web"}}
        add_pod(server, NODE, "web-2-1", owned=owned, metadata=labels, tolerations=tolerations)
        replace_pods(server)

    controller = once(lambda: bool(restarts(server)), replace_here)
    with pytest.raises(DrainError, match=r"web-2-1 tolerates the cordon and was scheduled on n1"):
        restarting(3000)
    controller.join()
    assert len(restarts(server)) == 1


def test_a_budget_that_a_restart_for_another_node_opens_is_left_to_it(
    server: StandaloneApi, restarting: Restarting
) -> None:
    add_deployment(server, pods=2)
    set_restarted(server, EARLIER)
    report(server, replicas=3, updatedReplicas=1, availableReplicas=3)
    opened = {"disruptionsAllowed": 1, "currentHealthy": 3}
    change(server, BUDGETS, "web", "default", status=opened)
    controller = once(
        lambda: bool(asked(server, "get", "deployments", "web")), lambda: replace_pods(server)
    )
    restarting()
    controller.join()
    assert restarts(server) == []
    assert statuses(server) == []


def test_a_deployment_that_is_deleted_during_its_restart_needs_none(
    server: StandaloneApi, restarting: Restarting
) -> None:
    """Its pods go with it, a moment later."""
    add_deployment(server)

    def delete() -> None:
        server.call(lambda: server.store.remove(DEPLOYMENTS, "web", "default"))
        wait_until(lambda: len(asked(server, "get", "deployments", "web")) > 2)
        replace_pods(server)

    controller = once(lambda: bool(restarts(server)), delete)
    restarting()
    controller.join()
    assert len(restarts(server)) == 1


def test_a_pod_of_an_earlier_restart_is_restarted_again(
    server: StandaloneApi, restarting: Restarting
) -> None:
    add_deployment(server)
    set_restarted(server, EARLIER, EARLIER)
    controller = once(lambda: bool(restarts(server)), lambda: replace_pods(server))
    restarting()
    controller.join()
    assert restarted_at(server) > EARLIER


def test_without_the_setting_nothing_is_restarted(
    server: StandaloneApi, restarting: Restarting
) -> None:
    add_deployment(server)
    with pytest.raises(DrainError, match="blocked by default/web"):
        restarting(20, restart=Restart.NEVER)
    assert restarts(server) == []


def test_a_budget_that_allows_evictions_is_used_instead(
    server: StandaloneApi, restarting: Restarting
) -> None:
    add_deployment(server)
    change(server, BUDGETS, "web", "default", status={"disruptionsAllowed": 1, "expectedPods": 2})
    restarting()
    assert restarts(server) == []
    assert statuses(server, "web-1-1") == [201]


@pytest.mark.parametrize(
    "spec",
    [
        {"strategy": {"type": "Recreate"}},
        {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}},
        {"strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}},
        {"paused": True},
    ],
)
def test_a_deployment_that_would_end_the_pod_first_is_not_restarted(
    spec: Json, server: StandaloneApi, restarting: Restarting
) -> None:
    add_deployment(server, **spec)
    with pytest.raises(DrainError, match="blocked by default/web"):
        restarting(20)
    assert restarts(server) == []


@pytest.mark.parametrize(("mode", "helps"), [("ReadWriteOnce", False), ("ReadWriteMany", True)])
def test_a_volume_has_to_be_one_that_several_nodes_can_mount(
    mode: str, server: StandaloneApi, restarting: Restarting, *, helps: bool
) -> None:
    add_deployment(server)
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    change(server, PODS, "web-1-1", "default", spec={"volumes": [claim]})
    spec = {"claimRef": {"namespace": "default", "name": "data"}, "accessModes": [mode]}
    put(server, VOLUMES, {"metadata": {"name": "pv"}, "spec": spec})
    with pytest.raises(DrainError):
        restarting(20)
    assert bool(restarts(server)) is helps


def test_a_replica_set_of_its_own_is_not_restarted(
    server: StandaloneApi, restarting: Restarting
) -> None:
    add_deployment(server)
    server.call(lambda: server.store.remove(REPLICASETS, "web-1", "default"))
    with pytest.raises(DrainError, match="blocked by default/web"):
        restarting(20)
    assert restarts(server) == []


def test_other_pods_are_evicted_meanwhile(server: StandaloneApi, restarting: Restarting) -> None:
    add_deployment(server)
    add_pod(server, NODE, "other", owned=owner("ReplicaSet"))
    with pytest.raises(DrainError):
        restarting(20)
    assert statuses(server, "other") == [201]


def test_a_restart_that_stalls_fails_the_drain_in_the_words_of_kubectl(
    server: StandaloneApi, restarting: Restarting
) -> None:
    add_deployment(server)
    status = {"replicas": 2, "updatedReplicas": 1, "availableReplicas": 1}
    controller = once(lambda: bool(restarts(server)), lambda: report(server, **status))
    with pytest.raises(DrainError) as failed:
        restarting(30)
    controller.join()
    assert "1 pod left after --drain-timeout 30s" in failed.value.message
    assert "Deployment default/web was restarted" in failed.value.message
    assert "0 of 1 updated replicas are available" in failed.value.message
    assert "kubectl rollout status -n default deployment/web" in failed.value.hint


def test_a_restart_beyond_its_progress_deadline_fails_at_once(
    server: StandaloneApi, restarting: Restarting
) -> None:
    add_deployment(server)
    status = {"replicas": 2, "updatedReplicas": 1, "availableReplicas": 1, "conditions": LATE}
    controller = once(lambda: bool(restarts(server)), lambda: report(server, **status))
    with pytest.raises(DrainError, match="default/web exceeded its progress deadline"):
        restarting(3000)
    controller.join()


def test_a_restart_that_is_reverted_fails_at_once_and_says_so(
    server: StandaloneApi, restarting: Restarting
) -> None:
    add_deployment(server)
    reverting = once(lambda: bool(restarts(server)), lambda: set_restarted(server, ""))
    with pytest.raises(DrainError, match="something has reverted the restart of Deployment"):
        restarting(3000)
    reverting.join()
    assert len(restarts(server)) == 1


def test_a_restart_that_meets_other_changes_is_tried_again(
    server: StandaloneApi, restarting: Restarting
) -> None:
    add_deployment(server)
    rule = ApiFault(answer=FaultAnswer.CONFLICT, resource="deployments", verb="patch", requests=6)
    server.call(lambda: server.server.faults.add(rule))
    controller = once(lambda: bool(restarted_at(server)), lambda: replace_pods(server))
    restarting()
    controller.join()
    assert [record.status for record in restarts(server)] == [409] * 6 + [200]


def test_a_restart_that_is_denied_fails_the_drain(
    server: StandaloneApi, restarting: Restarting
) -> None:
    add_deployment(server)
    rule = ApiFault(answer=FaultAnswer.FORBIDDEN, resource="deployments", verb="patch")
    server.call(lambda: server.server.faults.add(rule))
    with pytest.raises(DrainError, match="will not restart Deployment default/web"):
        restarting(3000)


def test_a_restart_whose_answer_is_lost_is_not_done_twice(
    server: StandaloneApi, restarting: Restarting
) -> None:
    add_deployment(server)
    rule = ApiFault(
        answer=FaultAnswer.LOSE_ANSWER, resource="deployments", verb="patch", requests=1
    )
    server.call(lambda: server.server.faults.add(rule))
    controller = once(lambda: len(restarts(server)) > 1, lambda: replace_pods(server))
    restarting()
    controller.join()
    # The second request names the version from before the first.
    assert [record.status for record in restarts(server)] == [0, 409]
