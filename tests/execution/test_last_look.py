"""The last look at a drained node, and the fence of every write on it: each thing that stands in
the way, alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest
from msgspec.structs import replace

from rollout.adapters.clock import SystemClock
from rollout.errors import DrainError, FencedError
from rollout.execution.base.deadline import PatientApi
from rollout.execution.base.reporting import Reporter
from rollout.execution.drain.task import NodeTask
from rollout.execution.node.marking import MarkedByOtherError, mark_phase
from rollout.execution.node.reboot import RefilledError, check_drained_and_detached
from rollout.lab.api.resources import NODES, VOLUMEATTACHMENTS
from rollout.model import marks
from rollout.model.plan import PlannedNode
from rollout.model.policy import DrainPolicy
from rollout.model.progress import NodeStep, Phase
from rollout.model.quantity import Duration
from rollout.ports import ClusterApi
from tests.execution.conftest import Recorder
from tests.execution.drains import (
    NODE,
    add_daemon_set,
    add_pod,
    change,
    owner,
    put,
    stored,
    task_of,
)
from tests.standalone_api import StandaloneApi

pytestmark = pytest.mark.in_memory
DRAINED = {marks.RUN: "run-1", marks.PHASE: Phase.DRAINED.value}


@dataclass
class Fence:
    """A lock that is lost once it was asked for `good` times."""

    good: int = 0

    def __call__(self) -> None:
        self.good -= 1
        if self.good < 0:
            raise FencedError("the Lease is held by somebody else now")


@pytest.fixture
def task(server: StandaloneApi, api: ClusterApi, recorder: Recorder) -> NodeTask:
    """Of a node that is ours, cordoned, and empty but for a daemon's pod."""
    metadata = {"name": NODE, "uid": f"uid-{NODE}", "annotations": DRAINED}
    put(server, NODES, {"metadata": metadata, "spec": {"unschedulable": True}, "status": {}})
    add_daemon_set(server, "agent")
    add_pod(server, NODE, "agent-1", owned=owner("DaemonSet", "agent"))
    return task_of(NODE, api, recorder, DrainPolicy(Duration(60)), speed=20)


def test_a_node_as_it_was_drained_may_be_rebooted(task: NodeTask) -> None:
    check_drained_and_detached(task)


def test_whatever_was_undone_stops_it(server: StandaloneApi, task: NodeTask) -> None:
    change(server, NODES, NODE, spec={"unschedulable": False})
    with pytest.raises(DrainError, match="was uncordoned outside this rollout"):
        check_drained_and_detached(task)
    change(server, NODES, NODE, spec={"unschedulable": True}, metadata={"annotations": {}})
    with pytest.raises(DrainError, match="rollout's annotations on n1 were removed"):
        check_drained_and_detached(task)
    change(server, NODES, NODE, metadata={"annotations": {**DRAINED, marks.RUN: "run-2"}})
    with pytest.raises(DrainError, match="rollout's annotations on n1 were removed"):
        check_drained_and_detached(task)


def test_a_pod_that_came_has_it_drained_again(server: StandaloneApi, task: NodeTask) -> None:
    add_pod(server, NODE, "late", owned=owner("ReplicaSet"))
    with pytest.raises(RefilledError, match="default/late was scheduled on n1"):
        check_drained_and_detached(task)


def test_a_lock_that_is_lost_meanwhile_stops_it_at_its_very_end(task: NodeTask) -> None:
    with pytest.raises(FencedError):
        check_drained_and_detached(replace(task, check_may_act=Fence()))
    with pytest.raises(FencedError):
        check_drained_and_detached(replace(task, check_may_act=Fence(good=1)))


def test_volumes_are_waited_for_and_told_of(
    server: StandaloneApi, task: NodeTask, recorder: Recorder
) -> None:
    spec = {"attacher": "csi.example", "nodeName": NODE, "source": {"persistentVolumeName": "pv-1"}}
    put(
        server,
        VOLUMEATTACHMENTS,
        {"metadata": {"name": "attached"}, "spec": spec, "status": {"attached": True}},
    )
    check_drained_and_detached(task)
    told = [event.detail for event in recorder.events if isinstance(event, NodeStep)]
    assert "waiting for 1 volume to detach" in told
    assert task.cluster.clock.monotonic() >= 60, "its time-out, after which it goes on"
    server.call(lambda: server.store.remove(VOLUMEATTACHMENTS, "attached"))
    recorder.events.clear()
    check_drained_and_detached(task)
    assert recorder.events == []


@dataclass
class Stolen:
    """A client of the API between whose read and write of the Node something happens."""

    api: ClusterApi
    happens: Callable[[], object]

    def get(self, *arguments: Any, **options: Any) -> bytes:
        answer = self.api.get(*arguments, **options)
        self.happens()
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.api, name)


def test_nothing_is_written_once_the_lock_or_the_node_has_changed_since_it_was_read(
    server: StandaloneApi, api: ClusterApi, task: NodeTask
) -> None:
    fence = Fence(good=1000)
    stolen = Stolen(api, lambda: setattr(fence, "good", 0))
    planned = PlannedNode(NODE, "b", f"uid-{NODE}", "1", "2", 0, 0)
    cluster = PatientApi(cast("ClusterApi", stolen), SystemClock())
    writing = NodeTask(planned, "run-1", cluster, fence, Reporter((), SystemClock()))
    before = stored(server, NODES, NODE)
    with pytest.raises(FencedError):
        mark_phase(writing, Phase.REBOOTING)
    assert stored(server, NODES, NODE) == before

    taken = {**DRAINED, marks.RUN: "run-2"}
    stolen.happens = lambda: change(server, NODES, NODE, metadata={"annotations": taken})
    fence.good = 1000
    with pytest.raises(MarkedByOtherError, match="now has the annotations of rollout run-2"):
        mark_phase(writing, Phase.REBOOTING)
    assert stored(server, NODES, NODE)["metadata"]["annotations"] == taken
