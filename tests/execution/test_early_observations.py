"""Hosts are observed while the rollout waits for something else."""

from collections.abc import Callable, Iterator
from functools import partial
from threading import Event
from typing import Any, cast

import pytest
from msgspec.structs import replace

from rollout.adapters.clock import SystemClock
from rollout.execution.node.context import NodeContext, Progress
from rollout.execution.node.early_observations import EarlyObservations
from rollout.execution.node.ssh_host import RememberingShell, SshHost
from rollout.execution.node.steps import ssh_steps
from rollout.lab.api.resources import NODES
from rollout.model import marks
from rollout.model.host import Host, HostObservation, ProbeFailure, ProbeFailureKind
from rollout.model.plan import PlannedNode
from rollout.model.policy import DrainPolicy
from rollout.model.progress import Phase
from rollout.model.quantity import Duration
from rollout.ports import ClusterApi, CommandResult
from tests.execution.conftest import Recorder
from tests.execution.drains import NODE, add_pod, owner, put, remove_pod, task_of
from tests.execution.simulated import OpenEngine
from tests.planning.builders import facts
from tests.standalone_api import StandaloneApi

SEEN = facts("n1")
FAILED = ProbeFailure(Host("n1", "192.0.2.1"), ProbeFailureKind.TIMEOUT, "no answer", "")


def found(*observations: HostObservation) -> Iterator[tuple[str, HostObservation]]:
    for observation in observations:
        yield "n1", observation


def broken() -> Iterator[tuple[str, HostObservation]]:
    yield "n1", SEEN
    raise RuntimeError("a defect")


def looks_at(observations: Iterator[tuple[str, HostObservation]], *nodes: str) -> EarlyObservations:
    looks = EarlyObservations()
    looks.start(nodes, observations, now=100)
    return looks


def test_an_early_look_is_used_once() -> None:
    looks = looks_at(found(SEEN), "n1")
    assert looks.take("n1", now=105) is SEEN
    assert looks.take("n1", now=105) is None


def test_an_old_look_is_not_used() -> None:
    assert looks_at(found(SEEN), "n1").take("n1", now=111) is None


def test_a_look_that_gets_old_while_it_is_awaited_is_not_used() -> None:
    ended = Event()

    def slow() -> Iterator[tuple[str, HostObservation]]:
        ended.wait()
        yield "n1", SEEN

    looks = looks_at(slow(), "n1")
    assert looks.take("n1", now=109.9) is None
    ended.set()


def test_a_host_that_could_not_be_observed_is_asked_again() -> None:
    assert looks_at(found(FAILED), "n1").take("n1", now=101) is None
    assert looks_at(found(), "n1").take("n1", now=101) is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_defect_of_a_look_leaves_nobody_waiting() -> None:
    looks = looks_at(broken(), "n1", "n2")
    assert looks.take("n2", now=101) is None
    assert looks.take("n1", now=101) is SEEN


class Observed:
    """A host that ends a pod when it is observed; its answer is of no use."""

    def __init__(self, end_pod: Callable[[], None]) -> None:
        self._end_pod = end_pod

    def run(self, host: Host, command: str, *, timeout: float) -> CommandResult:
        self._end_pod()
        return CommandResult(0, "", "")


def test_a_host_is_observed_while_its_node_is_drained(
    server: StandaloneApi, api: ClusterApi, recorder: Recorder
) -> None:
    annotations = {marks.RUN: "run-1", marks.PHASE: "draining"}
    metadata = {"name": NODE, "uid": f"uid-{NODE}", "annotations": annotations}
    put(server, NODES, {"metadata": metadata, "spec": {"unschedulable": True}, "status": {}})
    add_pod(server, NODE, "slow", owned=owner("ReplicaSet"))
    task = task_of(NODE, api, recorder, DrainPolicy(timeout=Duration(20)))
    shell = Observed(partial(remove_pod, server, "slow"))
    planned = PlannedNode(NODE, "b", f"uid-{NODE}", "1", "2", 0, 0)
    host = SshHost(Host(NODE, "192.0.2.1"), planned, RememberingShell(cast("Any", shell)))
    context = NodeContext(
        planned=planned,
        run_id="run-1",
        cluster=replace(task.cluster, clock=SystemClock()),
        check_may_act=task.check_may_act,
        report=task.report,
        policy=task.policy,
        engine=OpenEngine(),
        host=host,
    )
    # Its pod only ends once the host has been observed.
    drained = ssh_steps(host)[Phase.DRAINING](context, Progress(Phase.DRAINING, marked=True))
    assert drained.phase is Phase.DRAINED
