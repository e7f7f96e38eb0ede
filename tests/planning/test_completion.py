"""How long drains wait for jobs, and what that changes in a plan."""

from collections.abc import Iterable
from datetime import timedelta

import pytest
from msgspec import structs
from msgspec.structs import replace

from rollout.model.cluster import Job, OwnerRef, Pod
from rollout.model.plan import RolloutPlan, WarningKind
from rollout.model.policy import (
    CompletionFallback,
    CompletionPolicy,
    DrainPolicy,
    Policy,
    Strategy,
)
from rollout.model.quantity import Count, Duration
from rollout.model.timestamps import whole_second
from rollout.planning.drain.completion import CompletionForecast
from rollout.planning.plan.build import build_plan
from tests.planning.builders import NOW, inputs, node, pod, waves

COMPLETION = CompletionPolicy(("job-name",), Duration(3600))
POLICY = Policy(drain=DrainPolicy(completion=COMPLETION))
MINUTE = 60
# Seconds that a plan assumes without a past.
REBOOT = 180


def ago(seconds: int) -> str:
    return whole_second(NOW - timedelta(seconds=seconds))


def job_pod(on: str, name: str = "train", deadline: int | None = None) -> Pod:
    owner = OwnerRef("batch/v1", "Job", name, f"uid-{name}")
    labels = {"job-name": name}
    plain = pod(
        f"{name}-x", on, labels=labels, started_at=ago(600), active_deadline_seconds=deadline
    )
    return structs.replace(plain, owner=owner)


def job(name: str = "train", **changes: object) -> Job:
    plain = Job(f"uid-{name}", "", started_at=ago(600), deadline_seconds=None, took_seconds=None)
    return replace(plain, **changes)


def planned(
    pods: Iterable[Pod], jobs: Iterable[Job] = (), policy: Policy = POLICY, nodes: int = 1
) -> RolloutPlan:
    given = inputs([node(f"w-{number}") for number in range(nodes)], pods=pods, policy=policy)
    return build_plan(replace(given, snapshot=replace(given.snapshot, jobs=tuple(jobs))))


CRON = {"cron_job": "uid-nightly"}
PAST = (job("one", took_seconds=1500, **CRON), job("two", took_seconds=1200, **CRON))


@pytest.mark.parametrize(
    ("deadline", "jobs", "left"),
    [
        (None, (), None),
        (None, (job(),), None),
        (900, (), 300),
        (None, (job(deadline_seconds=1000),), 400),
        (900, (job(deadline_seconds=1000),), 300),
        (None, (job(deadline_seconds=500),), 0),
        (None, (job(**CRON), *PAST), 900),
        (None, (job(deadline_seconds=700, **CRON), *PAST), 100),
        (None, (job(started_at=ago(5000), **CRON), *PAST), None),
        (None, (job(cron_job="uid-other"), *PAST), None),
    ],
)
def test_a_deadline_tells_how_long_a_pod_runs_and_then_the_longest_earlier_job(
    deadline: int | None, jobs: tuple[Job, ...], left: int | None
) -> None:
    snapshot = replace(inputs(()).snapshot, jobs=jobs)
    assert CompletionForecast.of(snapshot).seconds_left(job_pod("w-0", deadline=deadline)) == left


def test_a_plan_has_the_wait_in_its_estimate() -> None:
    (wave,) = planned([job_pod("w-0")], [job(deadline_seconds=2400 + 600)]).waves
    (usual,) = planned([]).waves
    assert wave.nodes[0].wait == 1
    assert wave.nodes[0].wait_seconds == 2400
    assert wave.nodes[0].evict == 0
    assert wave.estimate.drain == 2400
    assert wave.estimate.reboot == usual.estimate.reboot


def test_without_an_estimate_the_timeout_is_the_bound() -> None:
    (wave,) = planned([job_pod("w-0")]).waves
    assert wave.nodes[0].wait_seconds == 3600


def test_jobs_that_no_selector_names_are_evicted() -> None:
    plan = planned([job_pod("w-0")], policy=Policy())
    assert plan.waves[0].nodes[0].wait == 0
    assert plan.waves[0].nodes[0].evict == 1


@pytest.mark.parametrize(
    ("fallback", "effect"),
    [
        (CompletionFallback.RETURN, "after which the node is uncordoned without a reboot"),
        (CompletionFallback.EVICT, "it is evicted"),
    ],
)
def test_a_job_that_is_likely_to_run_too_long_is_a_warning(
    fallback: CompletionFallback, effect: str
) -> None:
    completion = replace(COMPLETION, fallback=fallback)
    policy = replace(POLICY, drain=DrainPolicy(completion=completion))
    plan = planned([job_pod("w-0")], [job(deadline_seconds=8 * 3600)], policy)
    (found,) = plan.warnings
    assert found.kind is WarningKind.LONG_COMPLETION
    assert found.object == "pod/shop/train-x"
    assert effect in found.message
    assert plan.waves[0].nodes[0].wait_seconds == 3600


def test_a_job_that_is_likely_to_end_in_time_is_no_warning() -> None:
    assert planned([job_pod("w-0")], [job(deadline_seconds=1200)]).warnings == ()


LONG = [job_pod("w-3", "long"), job_pod("w-5", "longer")]
DEADLINES = [job("long", deadline_seconds=2400), job("longer", deadline_seconds=3000)]


def test_nodes_with_the_longest_wait_share_the_first_wave() -> None:
    policy = replace(POLICY, max_unavailable=Count(2))
    plan = planned(LONG, DEADLINES, policy, nodes=6)
    first, *others = waves(plan)
    assert sorted(first) == ["w-3", "w-5"]
    assert len(others) == 2


def test_in_a_rolling_part_nodes_with_the_longest_wait_begin_first() -> None:
    policy = replace(POLICY, max_unavailable=Count(2), strategy=Strategy.ROLLING)
    (wave,) = planned(LONG, DEADLINES, policy, nodes=6).waves
    assert wave.rolling is not None
    begins = wave.rolling.begins
    assert begins["w-3"] == begins["w-5"] == 0
    # The others follow while these wait, if the limit has room.
    (wider,) = planned(LONG, DEADLINES, replace(policy, max_unavailable=Count(3)), nodes=6).waves
    assert wider.rolling is not None
    assert max(wider.rolling.begins.values()) < 1800


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize(
    ("left", "drains"),
    [(2400, 2400 + 0), (5000, 3600 + (5000 - 3600 - REBOOT)), (9000, 3600 + 3600)],
    ids=["completed by then", "longer than the timeout", "much longer than the timeout"],
)
def test_jobs_run_on_while_earlier_nodes_are_drained(
    left: int, drains: int, strategy: Strategy
) -> None:
    pods = [job_pod(f"w-{number}", f"job-{number}") for number in range(2)]
    jobs = [job(f"job-{number}", deadline_seconds=left + 600) for number in range(2)]
    plan = planned(pods, jobs, replace(POLICY, strategy=strategy), nodes=2)
    assert plan.estimate.seconds == drains + 2 * REBOOT
