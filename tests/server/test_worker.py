import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from rollout.adapters.clock import SystemClock
from rollout.errors import FencedError
from rollout.execution.base.deadline import GracefulStop
from rollout.execution.lease import HolderState
from rollout.lab.api.resources import REPLICASETS
from rollout.model.fleetlock import Slot, Slots, SlotState
from rollout.model.gates import GatePolicy
from rollout.model.progress import NodeResult, NodeStep, Outcome, Phase, StepEvent
from rollout.model.quantity import Duration
from rollout.ports import Event
from rollout.server.protocol import AnswerKind
from rollout.server.service import Service, running_service
from rollout.server.state import Leadership
from rollout.server.worker import SlotRunner, Worker
from tests.execution.drains import change, put
from tests.execution.fake_cluster import FakeServer
from tests.server import in_memory
from tests.server.in_memory import (
    GROUP,
    NAMES,
    POLICY,
    Cluster,
    Replica,
    Severed,
    await_answer,
    await_return,
    context_of,
    start_replica,
)
from tests.waiting import wait_until


class RecordingObserver:
    def __init__(self) -> None:
        self.steps: list[NodeStep] = []

    def notify(self, event: StepEvent) -> None:
        if isinstance(event, NodeStep):
            self.steps.append(event)


class StopsAtFirstWait(SystemClock):
    def __init__(self, stop: GracefulStop) -> None:
        super().__init__()
        self.stop = stop

    def wait(self, event: Event, seconds: float) -> bool:
        self.stop.request()
        return True


def test_an_outage_does_not_end_the_worker_while_the_node_of_a_failed_slot_is_gone() -> None:
    notices: list[str] = []
    api = Severed(FakeServer())
    context = context_of(api, 1, notices.append)
    stop = GracefulStop()
    context.clock = StopsAtFirstWait(stop)
    context.nodes = cast("Any", SimpleNamespace(require_all=dict))
    worker = Worker(context, stop)
    failed = Slot(GROUP, "gone", "uid", "id", "fleetlock-1", "", "", state=SlotState.FAILED)
    worker._slots = Slots((failed,))
    api.dead = True
    worker.work_until_stopped()
    assert notices == ["the slots of FleetLock: this process is dead"]


def test_hosts_are_told_to_wait_until_the_nodes_have_been_read() -> None:
    cluster = Cluster()
    service = Service(context_of(Severed(cluster.behind), 1, lambda _message: None), GracefulStop())
    answer = service.pre_reboot(cluster.request_of(NAMES[0]))
    assert answer.kind is AnswerKind.API_UNAVAILABLE
    assert answer.value == service.why_not_ready() == "the nodes have not been read yet"


def test_a_drain_reports_how_long_its_pods_took_to_terminate() -> None:
    cluster = Cluster()
    observer = RecordingObserver()
    context = context_of(Severed(cluster.behind), 1, lambda _message: None)
    context.observers_of = lambda _plan: nullcontext((observer,))
    request = cluster.request_of(NAMES[0])
    with running_service(context) as service:
        wait_until(lambda: not service.why_not_ready())
        wait_until(lambda: service.pre_reboot(request).kind is AnswerKind.GRANTED)
    drained = next(step for step in observer.steps if step.phase is Phase.DRAINED)
    assert drained.endings
    assert drained.endings.keys() == {"ReplicaSet/default/owner"}


def test_a_slot_that_fails_while_the_lease_is_read_is_not_worked_on_again(
    cluster: Cluster, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    may_fail = threading.Event()
    read_holder_state = Leadership.read_holder_state

    def fail(_runner: SlotRunner, slot: Slot, *_guards: object) -> NodeResult:
        started.append(slot.node)
        assert may_fail.wait(60)
        return NodeResult(slot.node, Outcome.FAILED, Phase.FAILED, 1.0, left_cordoned=True)

    def read_while_failing(leadership: Leadership, fresh_seconds: float = 0) -> HolderState:
        if started:
            may_fail.set()
            wait_until(lambda: "slot-a" not in [thread.name for thread in threading.enumerate()])
        return read_holder_state(leadership, fresh_seconds)

    monkeypatch.setattr(SlotRunner, "run_slot", fail)
    monkeypatch.setattr(Leadership, "read_holder_state", read_while_failing)
    replica.service.pre_reboot(cluster.request_of("a"))
    wait_until(lambda: started and not cluster.lease_run())
    assert cluster.slots()[0]["state"] == "failed"
    assert started == ["a"]


@pytest.mark.parametrize(
    "gates", [GatePolicy(health_checks=500), GatePolicy(health_checks=1, soak=Duration(600))]
)
def test_a_release_ends_settling_and_the_soak(
    gates: GatePolicy, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = replace(POLICY, gates=gates, settle_timeout=Duration(600))
    monkeypatch.setattr(in_memory, "POLICY", policy)
    replica = start_replica(cluster, 1, lambda _notice: None)
    try:
        reboot_as_granted(replica, cluster, "a")
        run = cluster.slots()[0]["run"]
        replica.service.server.slots.change(lambda slots: slots.cancel(run))
        wait_until(lambda: not cluster.slots(), seconds=20)
    finally:
        replica.end()


def test_a_node_settles_while_a_later_slots_node_is_away(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the pods that its drain evicts nor its reboot are missed."""
    policy = replace(POLICY, gates=GatePolicy(health_checks=4), settle_timeout=Duration(600))
    monkeypatch.setattr(in_memory, "POLICY", policy)
    metadata = {"name": "owner", "namespace": "default", "uid": "u-owner"}
    ready = {"readyReplicas": 4}
    put(
        cluster.behind,
        REPLICASETS,
        {"metadata": metadata, "spec": {"replicas": 4}, "status": ready},
    )
    replica = start_replica(cluster, 1, lambda _notice: None)
    try:
        reboot_as_granted(replica, cluster, "a")
        await_answer(replica, cluster, "b", AnswerKind.GRANTED)
        change(cluster.behind, REPLICASETS, "owner", "default", status={"readyReplicas": 3})
        cluster.go_down("b")
        wait_until(lambda: [slot["node"] for slot in cluster.slots()] == ["b"], seconds=20)
    finally:
        replica.end()


def reboot_as_granted(replica: Replica, cluster: Cluster, name: str) -> None:
    await_answer(replica, cluster, name, AnswerKind.GRANTED)
    cluster.reboot(name)
    await_return(replica, cluster, name)


def fenced() -> None:
    raise FencedError("another server has the lock")


@pytest.mark.parametrize(
    ("outcome", "check_may_act", "state"),
    [
        (Outcome.NOT_REBOOTED, lambda: None, "failed"),
        (Outcome.NOT_REBOOTED, fenced, "held"),
        (Outcome.FENCED, lambda: None, "held"),
    ],
)
def test_only_the_holder_of_the_lock_fails_the_slot_of_a_node_without_a_written_end(
    outcome: Outcome, check_may_act: Callable[[], None], state: str
) -> None:
    cluster = Cluster()
    context = context_of(Severed(cluster.behind), 1, lambda _message: None)
    slot = Slot(GROUP, "a", cluster.node("a")["metadata"]["uid"], "id", "fleetlock-1", "", "a-0")
    context.slots.change(lambda slots: slots.add(slot))
    unwritten = NodeResult("a", outcome, Phase.REBOOTING, 1.0, left_cordoned=True)
    with suppress(FencedError):
        Worker(context, GracefulStop())._release_or_fail_slot(slot, unwritten, check_may_act)
    assert [held["state"] for held in cluster.slots()] == [state]
