"""The wait for a node's own pods after its reboot."""

import json
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from typing_extensions import override

from rollout.execution.node.proof import await_own_pods
from rollout.lab.api.resources import NODES, PODS
from rollout.model import marks
from rollout.model.policy import DrainPolicy
from rollout.model.quantity import Duration
from rollout.ports import ClusterApi, Event
from tests.execution.conftest import Recorder
from tests.execution.drains import (
    NODE,
    add_daemon_set,
    add_pod,
    asked,
    change,
    owner,
    put,
    task_of,
)
from tests.execution.simulated import SimulatedClock
from tests.standalone_api import StandaloneApi

pytestmark = pytest.mark.in_memory
CHANGES = 40


class BurstClock(SimulatedClock):
    """Its waits end at once because a pod changed, until the last one."""

    def __init__(self, alter: Callable[[int], object]) -> None:
        super().__init__()
        self._alter = alter
        self._number = 0

    @override
    def wait(self, event: Event, seconds: float) -> bool:
        self._number += 1
        self.sleep(0.05)
        self._alter(self._number)
        return event.wait(5) if self._number >= CHANGES else True


def test_a_burst_of_changes_reads_the_daemon_sets_once_a_second(
    server: StandaloneApi, api: ClusterApi, recorder: Recorder
) -> None:
    before = json.dumps({"daemonset/default/agent": ""})
    put(server, NODES, {"metadata": {"name": NODE, "annotations": {marks.READY_BEFORE: before}}})
    add_daemon_set(server, "agent")
    add_pod(server, NODE, "agent-1", owned=owner("DaemonSet", "agent"), ready=False)

    def alter(number: int) -> None:
        is_ready = str(number >= CHANGES)
        conditions = [{"type": "Ready", "status": is_ready, "message": str(number)}]
        change(server, PODS, "agent-1", "default", status={"conditions": conditions})

    task = task_of(NODE, api, recorder, DrainPolicy())
    clock = BurstClock(alter)
    task = replace(task, cluster=replace(task.cluster, clock=clock))
    await_own_pods(task, Duration(600))
    # The burst takes two seconds.
    assert 2 <= len(asked(server, "list", "daemonsets")) <= 2 + CHANGES * 0.05
