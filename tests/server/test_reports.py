"""What a server records when hosts report or repeat a request, and how soon it acts on it."""

import pytest

from rollout.execution.base.deadline import Deadline
from rollout.execution.drain.task import NodeTask
from rollout.execution.node.marking import mark_granted
from rollout.execution.node.reboot import check_still_drained
from rollout.lab.api.resources import CONFIGMAPS, NODES
from rollout.model.cluster import Node
from rollout.model.fleetlock import Slot
from rollout.model.marks import PHASE, RUN
from rollout.model.progress import Phase
from rollout.server import slot_requests, worker
from rollout.server.protocol import AnswerKind
from tests.execution.drains import change
from tests.server.in_memory import (
    GROUP,
    Cluster,
    Replica,
    await_answer,
    request_reboot,
    start_replica,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.in_memory


def test_a_request_while_the_machine_id_is_another_nodes_is_no_report(
    cluster: Cluster, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    await_answer(replica, cluster, "a", AnswerKind.GRANTED)
    request = cluster.request_of("a")
    node = replica.service.server.nodes.require_all()["a"]
    cluster.swap("a", "b")
    # As of a watch that is late: it still finds the host on its node.
    with monkeypatch.context() as late:
        late.setattr(replica.service.server.nodes, "of_host", lambda _id: node)
        assert replica.service.pre_reboot(request).kind is AnswerKind.WAITING_FOR_PROOF
    assert cluster.reported == set()


def test_a_grant_that_a_new_drain_has_replaced_is_not_given(
    cluster: Cluster, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker acts on pods that arrived before the grant and are gone when it is checked."""
    await_answer(replica, cluster, "a", AnswerKind.GRANTED)
    store = cluster.behind.store

    def drain_again() -> None:
        node = store.get(NODES, "a")
        assert node is not None
        annotations = {**node["metadata"]["annotations"], PHASE: Phase.DRAINING.value}
        store.put(NODES, {**node, "metadata": {**node["metadata"], "annotations": annotations}})

    def look_while_drained(task: NodeTask, deadline: Deadline) -> Node:
        node = check_still_drained(task, deadline)
        cluster.behind.call(drain_again)
        return node

    monkeypatch.setattr(slot_requests, "check_still_drained", look_while_drained)
    assert request_reboot(replica, cluster, "a") is AnswerKind.WAITING_FOR_DRAIN


def test_a_host_whose_marks_are_removed_before_its_grant_waits_for_another_drain(
    cluster: Cluster, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    await_answer(replica, cluster, "a", AnswerKind.GRANTED)
    store = cluster.behind.store

    def remove_mark() -> None:
        node = store.get(NODES, "a")
        assert node is not None
        annotations = dict(node["metadata"]["annotations"])
        del annotations[RUN]
        store.put(NODES, {**node, "metadata": {**node["metadata"], "annotations": annotations}})

    def mark_too_late(task: NodeTask) -> None:
        cluster.behind.call(remove_mark)
        mark_granted(task)

    monkeypatch.setattr(slot_requests, "mark_granted", mark_too_late)
    answer = replica.service.pre_reboot(cluster.request_of("a"))
    assert answer.kind is AnswerKind.WAITING_FOR_DRAIN
    assert answer.value.startswith("rollout's annotations on the Node a are gone")


def test_a_host_is_not_told_what_became_of_its_earlier_slot(
    cluster: Cluster, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = cluster.request_of("a")
    assert replica.service.pre_reboot(request).kind is AnswerKind.WAITING_FOR_DRAIN
    wait_until(lambda: cluster.annotations("a").get(PHASE) == Phase.DRAINED)
    replica.service.steady_state(request)
    wait_until(lambda: not cluster.slots())
    monkeypatch.setattr(worker.Worker, "_start_thread", lambda *_arguments: None)
    assert replica.service.pre_reboot(request).kind is AnswerKind.WAITING_FOR_DRAIN
    assert replica.service.pre_reboot(request).value == "a is waiting for its drain"


def test_a_request_from_a_new_boot_is_a_report(cluster: Cluster, replica: Replica) -> None:
    await_answer(replica, cluster, "a", AnswerKind.GRANTED)
    cluster.reboot("a")
    assert request_reboot(replica, cluster, "a") is AnswerKind.WAITING_FOR_PROOF
    assert cluster.reported == {"a"}


def test_a_host_that_reports_before_its_node_is_ready_gets_the_kubelets_message(
    cluster: Cluster, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    await_answer(replica, cluster, "a", AnswerKind.GRANTED)
    conditions = [{"type": "Ready", "status": "False", "message": "no network"}]
    status = {**cluster.status("a", "a-1"), "conditions": conditions}
    change(cluster.behind, NODES, "a", status=status)
    monkeypatch.setattr(slot_requests, "_WAIT_SECONDS", 0.1)
    request = cluster.request_of("a")
    assert replica.service.steady_state(request).value == "a: it is not Ready: no network"
    slot = replica.service.server.slots.read_now().of_id(request.id)
    assert slot is not None
    wait_until(lambda: replica.service.worker.detail(slot) == "waiting for Ready: no network")


def test_a_report_wakes_the_worker(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The marks are those of a slot that was lost, so nothing else has the worker look again."""
    earlier = start_replica(cluster, 1, lambda _notice: None)
    await_answer(earlier, cluster, "a", AnswerKind.GRANTED)
    earlier.end()
    cluster.behind.call(
        lambda: cluster.behind.store.remove(CONFIGMAPS, "node-rollout-fleetlock", "kube-system")
    )
    cluster.reboot("a")
    monkeypatch.setattr(worker, "_IDLE_SECONDS", 600.0)
    monkeypatch.setattr(slot_requests, "_WAIT_SECONDS", 30.0)
    replica = start_replica(cluster, 2, lambda _notice: None)
    try:
        answer = replica.service.steady_state(cluster.request_of("a"))
    finally:
        replica.end()
    assert answer.kind is AnswerKind.RELEASED


def test_a_host_without_a_slot_whose_node_was_not_returned_is_not_said_to_be_in_service(
    replica: Replica,
) -> None:
    released = Slot(GROUP, "a", "uid", "id", "fleetlock-1", "", "")
    answer = slot_requests.await_return(replica.service.server, released)
    assert answer.kind is AnswerKind.RELEASED
    assert answer.value == "the slot of a is released"
