"""Pods that a drain waits for until they have completed, instead of evicting them."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from rollout.errors import DrainError
from rollout.execution.drain.completion import StillRunningError
from rollout.execution.drain.drain import drain
from rollout.lab.api.resources import NODES, PODS
from rollout.model import marks
from rollout.model.policy import CompletionFallback, CompletionPolicy, DrainPolicy
from rollout.model.progress import Activity, NodeStep
from rollout.model.quantity import Duration
from rollout.ports import ClusterApi
from tests.execution.conftest import Recorder
from tests.execution.drains import (
    NODE,
    add_budget,
    add_pod,
    ago,
    asked,
    change,
    later,
    once,
    owner,
    pods_on,
    remove_pod,
    task_of,
)
from tests.standalone_api import StandaloneApi

pytestmark = [pytest.mark.in_memory, pytest.mark.usefixtures("kubelet", "node")]

RS = owner("ReplicaSet")
JOB = owner("Job", "train-7", "batch/v1")
OF_JOB = {"labels": {"job-name": "train-7"}}
DrainWith = Callable[..., None]


@pytest.fixture
def drain_with(api: ClusterApi, recorder: Recorder) -> DrainWith:
    """Drain the node, with time that passes 200 times as fast."""

    def run(
        completion: CompletionPolicy,
        timeout: int = 600,
        *,
        speed: float = 200,
        seconds_used: float = 0,
    ) -> None:
        policy = DrainPolicy(Duration(timeout), completion=completion)
        task = task_of(NODE, api, recorder, policy, speed=speed)
        drain(replace(task, drain_seconds_used=seconds_used))

    return run


def waiting(
    seconds: int, fallback: CompletionFallback = CompletionFallback.RETURN
) -> CompletionPolicy:
    return CompletionPolicy(("job-name",), Duration(seconds), fallback)


def add_job_pod(server: StandaloneApi, name: str = "train", **more: object) -> None:
    add_pod(server, NODE, name, owned=JOB, metadata=OF_JOB, **more)  # type: ignore[arg-type]


def end_pod(server: StandaloneApi, name: str, phase: str = "Succeeded") -> None:
    change(server, PODS, name, "default", status={"phase": phase})


def evictions(server: StandaloneApi) -> list[str]:
    return [record.target.name for record in asked(server, "create", "pods/eviction")]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_job_runs_to_its_end_while_other_pods_are_evicted(
    phase: str, server: StandaloneApi, drain_with: DrainWith
) -> None:
    add_job_pod(server)
    add_pod(server, NODE, "web", owned=RS)

    def others_are_gone() -> bool:
        return pods_on(server, NODE) == {"train"}

    before: list[str] = []

    def end() -> None:
        before.extend(evictions(server))
        end_pod(server, "train", phase)

    thread = once(others_are_gone, lambda: later(0.5, end))
    drain_with(waiting(3600))
    thread.join()
    assert before == ["web"]
    assert pods_on(server, NODE) == set()


def test_the_wait_does_not_count_against_the_drain_timeout(
    server: StandaloneApi, drain_with: DrainWith
) -> None:
    add_job_pod(server)
    # 2.5 s are 500 s of the drain, and its timeout is 60 s.
    later(2.5, lambda: end_pod(server, "train"))
    drain_with(waiting(3600), 60)
    assert pods_on(server, NODE) == set()


def test_time_that_an_earlier_process_has_waited_does_not_count_either(
    server: StandaloneApi, drain_with: DrainWith
) -> None:
    add_job_pod(server, phase="Succeeded")
    drain_with(waiting(3600), 60, seconds_used=2400)
    assert pods_on(server, NODE) == set()


def test_other_pods_still_have_the_drain_timeout_only(
    server: StandaloneApi, drain_with: DrainWith
) -> None:
    add_job_pod(server)
    add_pod(server, NODE, "stuck", owned=RS, metadata={"finalizers": ["example.org/hold"]})
    with pytest.raises(DrainError, match=r"1 pod left after --drain-timeout 1m: default/stuck"):
        drain_with(waiting(36000), 60)


def test_a_pod_that_is_gone_ends_its_wait(server: StandaloneApi, drain_with: DrainWith) -> None:
    add_job_pod(server)
    later(0.5, lambda: remove_pod(server, "train"))
    drain_with(waiting(3600))
    assert evictions(server) == []


def test_when_the_time_is_up_the_error_says_which_pods_ran_for_how_long(
    server: StandaloneApi, drain_with: DrainWith
) -> None:
    add_job_pod(server)
    change(server, PODS, "train", "default", status={"startTime": ago(5650)})
    with pytest.raises(StillRunningError) as failed:
        drain_with(waiting(120))
    assert failed.value.finding.ran == {"default/train-7": Duration(94 * 60)}
    assert evictions(server) == []


def test_when_the_time_is_up_the_rest_is_evicted_if_so_set(
    server: StandaloneApi, drain_with: DrainWith
) -> None:
    add_job_pod(server)
    drain_with(waiting(120, CompletionFallback.EVICT), 60)
    assert evictions(server) == ["train"]
    assert pods_on(server, NODE) == set()


def test_the_rest_is_evicted_within_the_drain_timeout(
    server: StandaloneApi, drain_with: DrainWith
) -> None:
    add_job_pod(server)
    add_budget(
        server, "train", allowed=0, spec={"selector": {"matchLabels": {"job-name": "train-7"}}}
    )
    with pytest.raises(
        DrainError, match=r"left after --drain-timeout 1m: default/train: blocked by default/train"
    ):
        drain_with(waiting(120, CompletionFallback.EVICT), 60)


def test_a_pod_that_is_bound_late_is_waited_for_too(
    server: StandaloneApi, drain_with: DrainWith
) -> None:
    add_job_pod(server, "first")

    def bind_late() -> None:
        add_job_pod(server, "late", phase="Pending")
        end_pod(server, "first")
        later(0.5, lambda: end_pod(server, "late"))

    later(0.3, bind_late)
    drain_with(waiting(3600))
    assert evictions(server) == ["first", "late"]


def test_a_drain_that_is_continued_has_the_rest_of_the_time(
    server: StandaloneApi, api: ClusterApi, drain_with: DrainWith
) -> None:
    add_job_pod(server)
    written = {
        "manager": "rollout",
        "operation": "Update",
        "time": ago(3000),
        "fieldsV1": {f"f:{marks.PHASE}": {}},
    }
    change(server, NODES, NODE, metadata={"managedFields": [written]})
    # 2 s are 400 s of the drain: less than the whole time, and more than its rest.
    later(2, lambda: end_pod(server, "train"))
    with pytest.raises(StillRunningError):
        drain_with(waiting(3100))


def test_pods_that_nothing_replaces_are_waited_for_unless_they_are_evicted_at_last(
    server: StandaloneApi, drain_with: DrainWith
) -> None:
    add_pod(server, NODE, "bare", owned=None, metadata=OF_JOB)
    with pytest.raises(DrainError, match="default/bare has no controller"):
        drain_with(waiting(120, CompletionFallback.EVICT))
    later(0.5, lambda: end_pod(server, "bare"))
    drain_with(waiting(3600))
    assert pods_on(server, NODE) == set()


def test_what_the_drain_waits_for_is_reported(
    server: StandaloneApi, drain_with: DrainWith, recorder: Recorder
) -> None:
    add_job_pod(server)
    add_pod(server, NODE, "other", owned=owner("Job", "train-8", "batch/v1"), metadata=OF_JOB)
    change(server, PODS, "train", "default", status={"startTime": ago(34 * 60 + 5)})

    def steps() -> list[NodeStep]:
        return [event for event in recorder.events if isinstance(event, NodeStep)]

    def end() -> None:
        end_pod(server, "train")
        end_pod(server, "other")

    thread = once(lambda: bool(steps()), end)
    drain_with(waiting(3600))
    thread.join()
    first = steps()[0]
    assert first.detail == "waits for 2 jobs to finish (default/train-7, 34m so far)"
    assert first.activity is Activity.COMPLETION
    assert [pod.pod for pod in first.awaited or ()] == ["default/train", "default/other"]
