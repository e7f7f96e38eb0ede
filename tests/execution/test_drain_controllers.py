"""Pods that another controller has to move, such as the primary of a database."""

from typing import Any

import pytest

from rollout.adapters.clock import SystemClock
from rollout.errors import DrainError
from rollout.execution.base.deadline import GracefulStop, PatientApi
from rollout.execution.base.gate_ports import GatePorts
from rollout.execution.base.reporting import Reporter
from rollout.execution.drain.controllers import find_busy_controller
from rollout.execution.gates import PolicyGates
from rollout.gather.cluster.snapshot import read_nodes
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.resources import NODES, PODS
from rollout.model import marks
from rollout.model.finding import ControllerMoving
from rollout.model.policy import DrainPolicy, Policy
from rollout.model.progress import Phase, PodBlocked
from rollout.planning.plan.build import build_plan
from rollout.ports import ClusterApi
from tests.execution.conftest import Drain, Recorder
from tests.execution.drains import (
    NODE,
    add_budget,
    add_node,
    add_pod,
    asked,
    change,
    once,
    owner,
    remove_pod,
    statuses,
)
from tests.planning.builders import inputs, node
from tests.standalone_api import StandaloneApi

pytestmark = [pytest.mark.in_memory, pytest.mark.usefixtures("kubelet", "node")]

CLUSTER = owner("Cluster", "shop", "postgresql.cnpg.io/v1")
RS = owner("ReplicaSet")
REPLICAS = {"selector": {"matchLabels": {"role": "replica"}}, "minAvailable": 0}


def add_database(server: StandaloneApi, *, instances: int = 2) -> None:
    """The primary is on the node, and its budget never allows an eviction of the primary."""
    for number in range(1, instances + 1):
        role = "primary" if number == 1 else "replica"
        labels: dict[str, Any] = {"labels": {"role": role}}
        node = NODE if number == 1 else f"n{number}"
        if node != NODE:
            add_node(server, node)
        add_pod(server, node, f"shop-{number}", owned=CLUSTER, metadata=labels)
    selector = {"selector": {"matchLabels": {"role": "primary"}}, "minAvailable": 1}
    add_budget(server, "shop-primary", allowed=0, expected=1, spec=selector)


def reports(recorder: Recorder, pod: str) -> list[PodBlocked]:
    events = [event for event in recorder.events if isinstance(event, PodBlocked)]
    return [event for event in events if event.pod == pod]


def test_a_drain_evicts_the_primary_once_it_is_a_replica(
    server: StandaloneApi, drained: Drain, recorder: Recorder
) -> None:
    add_database(server)
    add_pod(server, NODE, "web", owned=RS)
    switching = once(
        lambda: bool(reports(recorder, "default/shop-1")),
        lambda: change(server, PODS, "shop-1", "default", metadata={"labels": {"role": "replica"}}),
    )
    drained(600)
    switching.join()
    assert statuses(server, "web") == [201]
    assert statuses(server, "shop-1")[-1] == 201
    (report,) = reports(recorder, "default/shop-1")
    assert report.budget == "default/shop-primary"
    assert report.controller == "Cluster default/shop"


def test_a_primary_that_stays_fails_the_drain_with_its_budget_and_its_controller(
    server: StandaloneApi, drained: Drain
) -> None:
    add_database(server)
    add_pod(server, NODE, "web", owned=RS)
    with pytest.raises(DrainError) as failed:
        drained(40)
    message = failed.value.message
    assert "default/shop-1: blocked by default/shop-primary" in message
    assert "the controller of Cluster default/shop did not move the pod" in message
    assert "no other pod" not in message
    assert "kubectl describe pdb -n default shop-primary" in failed.value.hint
    assert "kubectl describe cluster.postgresql.cnpg.io -n default shop" in failed.value.hint
    assert statuses(server, "web") == [201]


def test_a_primary_without_replicas_cannot_move_and_the_failure_says_so(
    server: StandaloneApi, drained: Drain
) -> None:
    add_database(server, instances=1)
    with pytest.raises(DrainError, match="Cluster default/shop has no other pod to switch to"):
        drained(20)


def test_a_webhook_denies_a_managed_pod_with_its_message_until_the_pod_is_gone(
    server: StandaloneApi, drained: Drain, recorder: Recorder
) -> None:
    """Strimzi's drain cleaner sees evictions that the budget would refuse, and rolls the pod."""
    add_pod(server, NODE, "kafka-0", owned=owner("StrimziPodSet", "kafka", "core.strimzi.io/v1"))
    add_budget(server, "kafka-0", allowed=0, needs=1, expected=1)
    rule = ApiFault(answer=FaultAnswer.DENIED_ERROR, resource="pods/eviction", name="kafka-0")
    server.call(lambda: server.server.faults.add(rule))

    def was_reported_again() -> bool:
        seconds = {event.seconds_left for event in reports(recorder, "default/kafka-0")}
        return bool(seconds) and max(seconds) - min(seconds) > 60

    rolling = once(was_reported_again, lambda: remove_pod(server, "kafka-0"))
    drained(600)
    rolling.join()
    told = reports(recorder, "default/kafka-0")
    assert {event.message for event in told} == {"the pod is being moved"}
    assert {event.webhook for event in told} == {"evictions.lab"}
    assert len(asked(server, "create", "pods/eviction", "kafka-0")) < 5


def busy_beside(api: ClusterApi, node: str) -> ControllerMoving | None:
    return find_busy_controller(api, node, read_nodes(api))


def mark(server: StandaloneApi, node: str, phase: Phase) -> None:
    annotations = {marks.RUN: "20260301t120000z-1", marks.PHASE: phase}
    change(server, NODES, node, metadata={"annotations": annotations})


@pytest.mark.parametrize(
    ("phase", "is_busy"),
    [
        (Phase.PENDING, True),
        (Phase.DRAINING, True),
        (Phase.REBOOTING, True),
        (Phase.FAILED, False),
    ],
)
def test_a_node_waits_while_another_in_flight_has_pods_of_the_same_database(
    phase: Phase, server: StandaloneApi, api: ClusterApi, *, is_busy: bool
) -> None:
    add_database(server)
    add_budget(server, "shop", allowed=1, spec=REPLICAS)
    assert busy_beside(api, "n2") is None
    mark(server, NODE, phase)
    expected = ControllerMoving("Cluster default/shop", NODE) if is_busy else None
    assert busy_beside(api, "n2") == expected


def test_a_node_that_the_database_has_left_keeps_no_other_waiting(
    server: StandaloneApi, api: ClusterApi
) -> None:
    add_database(server)
    mark(server, NODE, Phase.DRAINED)
    remove_pod(server, "shop-1")
    assert busy_beside(api, "n2") is None


def test_a_pod_that_still_terminates_keeps_the_next_node_waiting(
    server: StandaloneApi, api: ClusterApi
) -> None:
    add_database(server)
    mark(server, NODE, Phase.DRAINING)
    terminating = {"deletionTimestamp": "2026-03-01T12:00:00Z", "finalizers": ["lab/held"]}
    replica = {"labels": {"role": "replica"}, **terminating}
    change(server, PODS, "shop-1", "default", metadata=replica)
    change(server, PODS, "shop-2", "default", metadata={"labels": {"role": "primary"}})
    assert busy_beside(api, "n2") == ControllerMoving("Cluster default/shop", NODE)


def test_nodes_that_give_way_are_named_only_if_no_other_is_busy(
    server: StandaloneApi, api: ClusterApi
) -> None:
    add_database(server, instances=3)
    mark(server, "n3", Phase.PENDING)
    assert busy_beside(api, "n2") == ControllerMoving("Cluster default/shop", "n3")
    mark(server, NODE, Phase.DRAINING)
    assert busy_beside(api, "n2") == ControllerMoving("Cluster default/shop", NODE)


def test_a_budget_that_is_closed_on_a_third_node_counts(
    server: StandaloneApi, api: ClusterApi
) -> None:
    """The primary may move to either of the nodes of its replicas."""
    add_database(server, instances=3)
    mark(server, "n2", Phase.DRAINING)
    assert busy_beside(api, "n3") == ControllerMoving("Cluster default/shop", "n2")


def test_pods_of_kubernetes_own_controllers_keep_no_node_waiting(
    server: StandaloneApi, api: ClusterApi
) -> None:
    add_node(server, "n2")
    shared = {"labels": {"app": "web"}}
    add_pod(server, NODE, "web-1", owned=RS, metadata=shared)
    add_pod(server, "n2", "web-2", owned=RS, metadata=shared)
    add_budget(server, "web", allowed=0)
    mark(server, NODE, Phase.DRAINING)
    assert busy_beside(api, "n2") is None


def gates_for(api: ClusterApi, policy: Policy) -> PolicyGates:
    """Return the gates of a plan that has seen no pods, as of one that was continued."""
    clock = SystemClock()
    plan = build_plan(inputs([node("n2")], policy=policy))
    return PolicyGates(
        plan, PatientApi(api, clock), Reporter((), clock), GracefulStop(), GatePorts()
    )


def test_nodes_are_kept_apart_even_if_their_plan_has_seen_no_database(
    server: StandaloneApi, api: ClusterApi
) -> None:
    add_database(server)
    mark(server, NODE, Phase.DRAINING)
    gates = gates_for(api, Policy())
    moving = ControllerMoving("Cluster default/shop", NODE)
    assert gates.find_busy_controller("n2", read_nodes(api)) == moving
    assert gates.ask(gates.plan.nodes[0]).finding == moving


def test_deleted_pods_wait_for_no_controller(server: StandaloneApi, api: ClusterApi) -> None:
    add_database(server)
    mark(server, NODE, Phase.DRAINING)
    gates = gates_for(api, Policy(drain=DrainPolicy(disable_eviction=True)))
    assert gates.find_busy_controller("n2", read_nodes(api)) is None


def test_a_gate_lists_the_nodes_only_if_a_controller_moves_pods_of_its_node(
    server: StandaloneApi, api: ClusterApi
) -> None:
    add_node(server, "n2")
    add_pod(server, "n2", "web", owned=RS)
    gates = gates_for(api, Policy())
    assert gates.ask(gates.plan.nodes[0]).finding is None
    assert asked(server, "list", "nodes") == []
