"""A version that becomes held is announced, also if it was released while the rollout ran."""

from dataclasses import dataclass, field

import pytest

from rollout.adapters.clock import SystemClock
from rollout.execution.base.deadline import PatientApi
from rollout.execution.base.reporting import Reporter
from rollout.execution.record.memory import RunMemory, change_memory
from rollout.model.progress import Outcome, Phase, StepEvent, VersionHeld
from rollout.planning.eligibility.memory import NodeEnd, without_version_failures
from rollout.ports import ClusterApi
from tests.report.builders import planned

NAMESPACE = "kube-system"
BAD = planned("node-1").staged_version
ROLLED_BACK = NodeEnd(Outcome.ROLLED_BACK, Phase.BOOTED)


@dataclass
class HeldVersions:
    """Keeps the nodes of each announcement."""

    nodes: list[tuple[str, ...]] = field(default_factory=list)

    def notify(self, event: StepEvent) -> None:
        if isinstance(event, VersionHeld):
            self.nodes.append(event.nodes)


def run_memory(api: ClusterApi, observer: HeldVersions, *, include_held: bool = False) -> RunMemory:
    clock = SystemClock()
    return RunMemory(
        PatientApi(api, clock),
        check_may_act=lambda: None,
        report=Reporter([observer], clock),
        run_id="run-1",
        namespace=NAMESPACE,
        failure_limit=1,
        include_held=include_held,
    )


def release(api: ClusterApi) -> None:
    change_memory(api, NAMESPACE, lambda memory: without_version_failures(memory, BAD))


def fail(memory: RunMemory, node: str) -> None:
    memory.note_end(planned(node), ROLLED_BACK)
    memory.report_held()


@pytest.mark.in_memory
def test_a_version_that_is_held_again_after_its_release_is_announced_again(api: ClusterApi) -> None:
    announced = HeldVersions()
    memory = run_memory(api, announced)
    fail(memory, "node-1")
    release(api)
    fail(memory, "node-2")
    assert announced.nodes == [("node-1",), ("node-2",)]
    assert memory.newly_held == (BAD,)


@pytest.mark.in_memory
def test_a_version_that_fails_while_it_is_held_is_announced_once(api: ClusterApi) -> None:
    announced = HeldVersions()
    memory = run_memory(api, announced, include_held=True)
    fail(memory, "node-1")
    fail(memory, "node-2")
    assert announced.nodes == [("node-1",)]


@pytest.mark.in_memory
def test_a_version_that_was_held_before_the_first_reading_is_not_announced(api: ClusterApi) -> None:
    fail(run_memory(api, HeldVersions()), "node-1")
    announced = HeldVersions()
    fail(run_memory(api, announced, include_held=True), "node-2")
    assert not announced.nodes


@pytest.mark.in_memory
def test_a_release_before_the_announcement_does_not_end_the_run(api: ClusterApi) -> None:
    announced = HeldVersions()
    memory = run_memory(api, announced)
    memory.note_end(planned("node-1"), ROLLED_BACK)
    release(api)
    memory.require_fresh_read()
    assert memory.why_not_to_start(planned("node-2")) is None
    memory.report_held()
    assert announced.nodes == [("node-1",)]
