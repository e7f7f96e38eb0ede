"""Hosts that may have a grant, whatever happens to the runs of their nodes."""

from typing import NoReturn

import pytest
from msgspec.structs import replace

from rollout.errors import DrainError
from rollout.execution.drain.task import NodeTask
from rollout.execution.node import steps as node_steps
from rollout.execution.node.claim import continue_from_marks
from rollout.execution.node.context import NodeContext, Progress
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.resources import NODES
from rollout.model.cluster import Node
from rollout.model.fleetlock import Slot
from rollout.model.marks import LAST_RESULT, PHASE
from rollout.model.policy import CourtesyPolicy
from rollout.model.progress import Phase
from rollout.model.quantity import Duration
from rollout.ports import ClusterApi
from rollout.server import slot_steps, worker
from rollout.server.nodes import read_slot_node
from rollout.server.protocol import AnswerKind
from tests.execution.drains import change
from tests.server import in_memory
from tests.server.in_memory import (
    POLICY,
    Cluster,
    Replica,
    await_answer,
    await_return,
    request_reboot,
    start_replica,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.in_memory


def test_grants_that_cannot_be_resumed_at_once_are_resumed_later(
    cluster: Cluster,
    replica: Replica,
) -> None:
    await_answer(replica, cluster, "a", AnswerKind.GRANTED)
    wait_until(lambda: cluster.slots()[0]["awaited"] == "boot")
    busy = ApiFault(
        answer=FaultAnswer.TOO_MANY_REQUESTS,
        verb="update",
        resource="configmaps",
        name="node-rollout-fleetlock",
        requests=1,
        retry_after=0,
    )
    cluster.behind.call(lambda: cluster.behind.server.faults.add(busy))
    cluster.add_pod("a")
    wait_until(lambda: cluster.behind.call(lambda: cluster.behind.server.faults.struck(busy)) == 1)
    wait_until(lambda: cluster.annotations("a").get(PHASE) != Phase.DRAINING)
    assert LAST_RESULT not in cluster.annotations("a")
    await_answer(replica, cluster, "a", AnswerKind.GRANTED)


def test_a_node_that_another_server_takes_up_is_granted_only_after_its_next_drain(
    cluster: Cluster,
    replica: Replica,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replica.service.pre_reboot(cluster.request_of("a"))
    wait_until(lambda: cluster.annotations("a").get(PHASE) == Phase.DRAINED)
    replica.kill()
    delayed = replace(POLICY, courtesy=CourtesyPolicy(drain_delay=Duration(600)))
    monkeypatch.setattr(in_memory, "POLICY", delayed)
    successor = start_replica(cluster, 2, lambda _notice: None)
    try:
        wait_until(lambda: cluster.annotations("a").get(PHASE) == Phase.CORDONED)
        assert request_reboot(successor, cluster, "a") is AnswerKind.WAITING_FOR_DRAIN
    finally:
        successor.end()


def test_a_host_that_is_granted_while_another_server_takes_its_node_up_may_reboot(
    cluster: Cluster,
    replica: Replica,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replica.service.pre_reboot(cluster.request_of("a"))
    wait_until(lambda: cluster.annotations("a").get(PHASE) == Phase.DRAINED)
    replica.kill()

    def take_up_before_grant(context: NodeContext) -> Progress:
        progress = continue_from_marks(context)
        cluster.annotate("a", {PHASE: Phase.REBOOTING.value})
        return progress

    monkeypatch.setattr(node_steps, "continue_from_marks", take_up_before_grant)
    successor = start_replica(cluster, 2, lambda _notice: None)
    try:
        wait_until(lambda: cluster.slots()[0]["awaited"] == "boot")
        cluster.reboot("a")
        await_return(successor, cluster, "a")
    finally:
        successor.end()


def fail_to_drain(_task: NodeTask) -> NoReturn:
    raise DrainError("its pods are still there")


def test_a_drain_that_fails_awaits_a_host_that_was_granted_its_reboot_before(
    cluster: Cluster,
    replica: Replica,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await_answer(replica, cluster, "a", AnswerKind.GRANTED)
    monkeypatch.setattr(slot_steps, "_SHUTDOWN_SECONDS", 60.0)
    monkeypatch.setattr(slot_steps, "drain_or_withhold", fail_to_drain)
    cluster.add_pod("a")
    wait_until(lambda: cluster.slots()[0]["closing"])
    cluster.go_down("a")
    wait_until(lambda: cluster.annotations("a").get(PHASE) == Phase.REBOOTING)
    cluster.reboot("a")
    await_return(replica, cluster, "a")
    assert '"succeeded"' in cluster.annotations("a")[LAST_RESULT]


def test_a_drain_that_fails_returns_a_host_that_stays_up(
    cluster: Cluster,
    replica: Replica,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await_answer(replica, cluster, "a", AnswerKind.GRANTED)
    monkeypatch.setattr(slot_steps, "drain_or_withhold", fail_to_drain)
    cluster.add_pod("a")
    wait_until(lambda: not cluster.slots())
    assert '"drain-failed"' in cluster.annotations("a")[LAST_RESULT]
    assert not cluster.is_cordoned("a")


def test_a_host_that_goes_down_for_good_after_its_grant_stays_cordoned_despite_another_drain(
    cluster: Cluster,
    replica: Replica,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await_answer(replica, cluster, "a", AnswerKind.GRANTED)
    run = cluster.slots()[0]["run"]
    cluster.add_pod("a")
    wait_until(lambda: cluster.annotations("a").get(PHASE) == Phase.DRAINED)
    cluster.go_down("a")
    replica.service.server.slots.change(lambda slots: slots.cancel(run))
    wait_until(lambda: PHASE not in cluster.annotations("a") or not cluster.slots())
    assert cluster.is_cordoned("a")


def test_no_slot_is_reserved_for_a_host_whose_kubelet_reports_no_boot_id(
    cluster: Cluster,
    replica: Replica,
) -> None:
    status = cluster.status("a", "")
    change(cluster.behind, NODES, "a", status=status)
    assert request_reboot(replica, cluster, "a") is AnswerKind.NODE_EXCLUDED
    await_answer(replica, cluster, "b", AnswerKind.GRANTED)


def test_a_slot_is_kept_if_its_node_reports_no_boot_id_for_a_moment(
    cluster: Cluster,
    replica: Replica,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read_without_boot_id(api: ClusterApi, slot: Slot) -> Node | None:
        node = read_slot_node(api, slot)
        return node and replace(node, boot_id="")

    monkeypatch.setattr(worker, "read_slot_node", read_without_boot_id)
    request_reboot(replica, cluster, "a")
    run = cluster.slots()[0]["run"]
    await_answer(replica, cluster, "a", AnswerKind.GRANTED)
    assert cluster.slots()[0]["run"] == run
