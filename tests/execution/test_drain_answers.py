"""Each answer that an eviction can get, over the real wire, and what the request log says of how it was taken."""

import pytest

from rollout.errors import DrainError
from rollout.execution.drain.eviction import Answer, request_removal
from rollout.gather.cluster.snapshot import read_node_pods
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.resources import BUDGETS, NAMESPACES, PODS
from rollout.model.policy import DrainPolicy
from rollout.model.progress import PodBlocked
from rollout.model.quantity import Duration
from rollout.ports import ClusterApi
from tests.execution.conftest import Drain, Recorder
from tests.execution.drains import (
    NODE,
    add_budget,
    add_node,
    add_pod,
    asked,
    later,
    owner,
    pods_on,
    put,
    remove_pod,
    requests,
    statuses,
)
from tests.standalone_api import StandaloneApi

pytestmark = [pytest.mark.in_memory, pytest.mark.usefixtures("kubelet", "node")]

RS, STATEFUL = owner("ReplicaSet"), owner("StatefulSet")
PATIENT = DrainPolicy(Duration(300))


def fault(server: StandaloneApi, answer: FaultAnswer, *, requests: int | None = 1, retry_after: int = 1) -> None:
    rule = ApiFault(answer=answer, resource="pods/eviction", requests=requests, retry_after=retry_after)
    server.call(lambda: server.server.faults.add(rule))


def disrupted(server: StandaloneApi, budget: str) -> dict[str, str]:
    found = server.call(lambda: server.store.get(BUDGETS, budget, "default"))
    assert found is not None
    return found["status"].get("disruptedPods") or {}


def test_accepted_pods_cost_one_request_each_and_the_rest_is_constant(server: StandaloneApi, drained: Drain) -> None:
    for number in range(40):
        add_pod(server, NODE, f"p{number}", owned=RS)
    drained()
    assert pods_on(server, NODE) == set()
    assert statuses(server) == [201] * 40
    assert requests(server) <= 40 + 7


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (FaultAnswer.INTERNAL_ERROR, 500),
        (FaultAnswer.UNAVAILABLE, 503),
        (FaultAnswer.TIMEOUT, 504),
        (FaultAnswer.TOO_MANY_REQUESTS, 429),
        (FaultAnswer.CONFLICT, 409),
        (FaultAnswer.DROP, 0),
    ],
)
def test_what_passes_is_tried_again(answer: FaultAnswer, status: int, server: StandaloneApi, drained: Drain) -> None:
    add_pod(server, NODE, "p", owned=RS)
    fault(server, answer, requests=2)
    drained()
    assert statuses(server) == [status, status, 201]


def test_flow_control_is_heeded_by_all(server: StandaloneApi, drained: Drain) -> None:
    for number in range(20):
        add_pod(server, NODE, f"p{number}", owned=RS)
    fault(server, FaultAnswer.TOO_MANY_REQUESTS, requests=8, retry_after=40)
    drained(speed=40)
    at = [(record.at, record.status) for record in asked(server, "create", "pods/eviction")]
    refused = [moment for moment, status in at if status == 429]
    assert len(refused) == 8
    assert min(moment for moment, status in at if status == 201) - max(refused) >= 0.95


@pytest.mark.parametrize("answer", [FaultAnswer.DENIED, FaultAnswer.DENIED_ERROR])
def test_a_webhook_that_denies_puts_off_its_pod_alone(
    answer: FaultAnswer, server: StandaloneApi, drained: Drain, recorder: Recorder
) -> None:
    """What moves a pod in its own way, a virtual machine say, denies its eviction for as long as that takes."""
    add_pod(server, NODE, "machine", owned=owner("VirtualMachineInstance", api_version="kubevirt.io/v1"))
    for number in range(20):
        add_pod(server, NODE, f"p{number}", owned=RS)
    rule = ApiFault(answer=answer, resource="pods/eviction", name="machine")
    server.call(lambda: server.server.faults.add(rule))
    later(1.5, lambda: remove_pod(server, "machine"))
    drained()
    log = asked(server, "create", "pods/eviction")
    assert [record.status for record in log if record.target.name != "machine"] == [201] * 20
    first = next(record.at for record in log if record.target.name == "machine")
    assert max(record.at for record in log if record.target.name != "machine") - first < 1
    # Thirty seconds have passed by its clock: the pauses grow.
    assert 2 <= len(statuses(server, "machine")) <= 6
    told = [event for event in recorder.events if isinstance(event, PodBlocked)]
    assert {(event.pod, event.budget) for event in told} == {("default/machine", "")}
    assert "denied the request: the pod is being moved" in told[0].message


def test_a_budget_that_many_change_at_once_puts_off_its_pod_alone(server: StandaloneApi, drained: Drain) -> None:
    for number in range(20):
        add_pod(server, NODE, f"p{number}", owned=RS)
    fault(server, FaultAnswer.BUDGET_CONFLICT, retry_after=40)
    drained()
    log = asked(server, "create", "pods/eviction")
    assert sorted(record.status for record in log) == [201] * 20 + [504]
    late = next(record.target.name for record in log if record.status == 504)
    assert [record.target.name for record in log][-1] == late
    # Forty seconds by the drain's clock, and only for this pod.
    assert log[-1].at - log[-2].at > 0.3


@pytest.mark.parametrize("answer", [FaultAnswer.BAD_REQUEST, FaultAnswer.INVALID])
def test_what_is_final_ends_the_drain(answer: FaultAnswer, server: StandaloneApi, drained: Drain) -> None:
    add_pod(server, NODE, "p", owned=RS)
    fault(server, answer, requests=None)
    with pytest.raises(DrainError, match="will not evict default/p"):
        drained()
    assert len(statuses(server)) == 1


def test_a_recreated_namesake_is_never_evicted_and_costs_no_budget(server: StandaloneApi, api: ClusterApi) -> None:
    add_pod(server, NODE, "db-0", owned=STATEFUL)
    add_budget(server, "db-0", allowed=1)
    (pod,) = read_node_pods(api, NODE).pods
    server.call(lambda: server.store.remove(PODS, "db-0", "default"))
    add_node(server, "n2")
    add_pod(server, "n2", "db-0", owned=STATEFUL)
    assert request_removal(api, pod, PATIENT).answer is Answer.GONE
    assert statuses(server) == []
    assert disrupted(server, "db-0") == {}
    assert pods_on(server, "n2") == {"db-0"}


@pytest.mark.parametrize("deleting", [False, True])
def test_a_namesake_that_came_this_moment_is_saved_by_the_uid(
    server: StandaloneApi, api: ClusterApi, *, deleting: bool
) -> None:
    """It is another pod than the one that was read, and no read has told so yet: the server does."""
    add_pod(server, NODE, "db-0", owned=STATEFUL)
    (pod,) = read_node_pods(api, NODE).pods
    remove_pod(server, "db-0")
    add_node(server, "n2")
    add_pod(server, "n2", "db-0", owned=STATEFUL)
    policy = DrainPolicy(disable_eviction=deleting)
    assert request_removal(api, pod, policy, certain=True).answer is Answer.LATER
    assert pods_on(server, "n2") == {"db-0"}
    assert request_removal(api, pod, policy, again=True).answer is Answer.GONE
    asked_for = asked(server, "delete", "pods") if deleting else asked(server, "create", "pods/eviction")
    assert [record.status for record in asked_for] == [409]


def test_a_conflict_is_looked_into_before_anything_is_sent_again(server: StandaloneApi, drained: Drain) -> None:
    add_pod(server, NODE, "p", owned=RS)
    fault(server, FaultAnswer.CONFLICT)
    drained()
    log = [record.target.verb for record in server.call(lambda: list(server.server.requests)) if record.target.name]
    assert log == ["create", "get", "create"]


def test_a_namespace_that_is_going_takes_its_pods_along(
    server: StandaloneApi, drained: Drain, recorder: Recorder
) -> None:
    """Whoever deletes the namespace deletes the pod: there is hardly a reason to ask again."""
    put(server, NAMESPACES, {"metadata": {"name": "old"}})
    add_pod(server, NODE, "p", owned=RS, metadata={"namespace": "old"})
    terminate_namespace(server)
    later(2, lambda: remove_pod(server, "p", "old"))
    drained()
    assert set(statuses(server)) == {403}
    # Forty seconds have passed by its clock: the pauses grow.
    assert len(statuses(server)) <= 6
    told = [event for event in recorder.events if isinstance(event, PodBlocked)]
    assert "is being terminated" in told[0].message


def terminate_namespace(server: StandaloneApi) -> None:
    def change() -> None:
        found = server.store.get(NAMESPACES, "old")
        assert found is not None
        stamp = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
        going = {**found, "metadata": {**found["metadata"], **stamp}, "status": {"phase": "Terminating"}}
        server.store.put(NAMESPACES, going)

    server.call(change)
