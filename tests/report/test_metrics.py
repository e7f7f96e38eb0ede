"""What events make of the metrics, and that a place which fails or hangs is nobody's trouble."""

import threading
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from rollout.cli.stages.metrics import deliver_changes
from rollout.cli.wiring import HURRIED_VARIABLE
from rollout.model.host import UpdateStanding, UpdateState
from rollout.model.plan import RolloutPlan
from rollout.model.progress import (
    NodeFinished,
    NodeRescued,
    NodeResult,
    NodeStep,
    Outcome,
    Phase,
    PlanReady,
    PodBlocked,
    RunFinished,
    RunResult,
)
from rollout.model.update_checks import CheckState
from rollout.report.metrics import AttemptResult, Metrics
from tests.report.builders import AT, plan


def after(seconds: float) -> datetime:
    return AT + timedelta(seconds=seconds)


def begun(rollout: RolloutPlan | None = None) -> Metrics:
    metrics = Metrics("here")
    metrics.notify(PlanReady(AT, rollout or plan()))
    return metrics


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    registry = CollectorRegistry()
    registry.register(metrics)
    return registry.get_sample_value(f"node_rollout_{name}", {"cluster": "here", **labels})


def standing(metrics: Metrics, phase: str) -> float | None:
    """How many nodes are in this phase."""
    return value(metrics, "nodes", phase=phase, pool="")


def step(metrics: Metrics, seconds: float, phase: Phase, detail: str = "") -> None:
    metrics.notify(NodeStep(after(seconds), "node-1", phase, detail))


def finish(metrics: Metrics, outcome: Outcome, phase: Phase) -> None:
    metrics.notify(NodeFinished.of(after(500), NodeResult("node-1", outcome, phase, 1.0)))


def blocked(metrics: Metrics, budget: str, pod: str = "shop/cart-1") -> None:
    metrics.notify(PodBlocked(AT, "node-1", pod, budget, AT, "no", 60.0))


def test_a_phase_begins_once_however_much_is_told_in_it() -> None:
    metrics = begun()
    step(metrics, 10, Phase.DRAINING)
    step(metrics, 20, Phase.DRAINING, "3 pods left")
    start = value(metrics, "node_phase_start_timestamp_seconds", node="node-1", phase="draining")
    assert start == after(10).timestamp()
    assert standing(metrics, "draining") == 1
    assert standing(metrics, "pending") == 2


def test_drains_and_reboots_are_measured_from_their_beginning() -> None:
    metrics = begun()
    for seconds, phase in enumerate((Phase.CORDONED, Phase.DRAINING)):
        step(metrics, seconds, phase)
    for seconds, phase in (
        (21, Phase.DRAINED),
        (30, Phase.REBOOTING),
        (80, Phase.BOOTED),
        (100, Phase.READY),
    ):
        step(metrics, seconds, phase)
    assert value(metrics, "drain_duration_seconds_sum", pool="") == 20
    assert value(metrics, "reboot_duration_seconds_sum", pool="") == 70
    assert value(metrics, "reboot_duration_seconds_bucket", pool="", le="60.0") == 0
    assert value(metrics, "reboot_duration_seconds_bucket", pool="", le="90.0") == 1
    assert value(metrics, "reboot_duration_seconds_bucket", pool="", le="+Inf") == 1


@pytest.mark.parametrize(
    ("outcome", "phase", "stands", "failures"),
    [
        (Outcome.SUCCEEDED, Phase.DONE, "done", 0),
        (Outcome.ROLLED_BACK, Phase.READY, "failed", 1),
        (Outcome.SKIPPED, Phase.PENDING, "pending", 0),
        (Outcome.ABORTED, Phase.DRAINING, "pending", 0),
    ],
)
def test_a_node_that_has_ended_is_in_flight_no_more(
    outcome: Outcome, phase: Phase, stands: str, failures: int
) -> None:
    metrics = begun()
    step(metrics, 1, Phase.DRAINING)
    finish(metrics, outcome, phase)
    assert standing(metrics, "draining") == 0
    assert standing(metrics, stands) == (3 if stands == "pending" else 1)
    assert value(metrics, "finished_nodes", outcome=outcome, pool="") == 1
    assert b"node_phase_start_timestamp_seconds{" not in metrics.text()
    counted = value(metrics, "node_failures_total", phase=phase, pool="")
    assert (counted or 0) == failures


def test_rescues_are_counted() -> None:
    metrics = begun()
    assert value(metrics, "rescues_total", pool="") == 0
    metrics.notify(NodeRescued(after(10), "node-1", "it exited with 3"))
    metrics.notify(NodeRescued(after(11), "node-2"))
    assert value(metrics, "rescues_total", pool="") == 2


@pytest.mark.parametrize("ends", ["node", "run"])
def test_nothing_is_held_once_its_drain_has_ended(ends: str) -> None:
    metrics = begun()
    blocked(metrics, "shop/cart")
    if ends == "node":
        finish(metrics, Outcome.DRAIN_FAILED, Phase.DRAINING)
    else:
        metrics.notify(RunFinished(AT, RunResult(())))
    assert value(metrics, "held_evictions", budget="shop/cart") is None


def test_a_plan_that_ends_beside_another_leaves_it_running() -> None:
    """As of a FleetLock server with several slots."""
    metrics = begun()
    step(metrics, 1, Phase.DRAINING)
    metrics.notify(NodeStep(after(2), "node-2", Phase.DRAINING))
    finish(metrics, Outcome.SUCCEEDED, Phase.DONE)
    metrics.notify(RunFinished(AT, RunResult(())))
    assert value(metrics, "running") == 1
    other = NodeResult("node-2", Outcome.SUCCEEDED, Phase.DONE, 1.0)
    metrics.notify(NodeFinished.of(after(600), other))
    metrics.notify(RunFinished(AT, RunResult(())))
    assert value(metrics, "running") == 0


def test_what_is_of_a_rollout_begins_anew_with_the_next_and_what_adds_up_stays() -> None:
    metrics = begun()
    step(metrics, 1, Phase.DRAINING)
    finish(metrics, Outcome.DRAIN_FAILED, Phase.DRAINING)
    metrics.notify(RunFinished(AT, RunResult(())))
    metrics.end_attempt(AttemptResult.PARTIAL, after(600))
    metrics.notify(PlanReady(after(700), replace(plan(), waves=())))
    assert value(metrics, "running") == 1
    assert standing(metrics, "failed") == 0
    assert value(metrics, "finished_nodes", outcome="drain-failed", pool="") == 0
    assert value(metrics, "node_failures_total", phase="draining", pool="") == 1
    metrics.end_attempt(AttemptResult.OK, after(701))
    assert value(metrics, "running") == 0
    assert value(metrics, "passes_total", result="partial") == 1
    assert value(metrics, "last_pass_result", result="ok") == 1
    assert value(metrics, "last_pass_result", result="partial") == 0
    assert value(metrics, "last_success_timestamp_seconds") == after(701).timestamp()


def test_only_the_success_of_this_cluster_is_remembered_and_never_in_place_of_its_own() -> None:
    metrics = Metrics("here")
    name = "node_rollout_last_success_timestamp_seconds"
    metrics.remember(f'{name}{{cluster="there"}} 5\n{name}{{cluster="here"}} 7\n')
    assert value(metrics, "last_success_timestamp_seconds") == 7
    metrics.end_attempt(AttemptResult.OK, AT)
    metrics.remember(f'{name}{{cluster="here"}} 7\n')
    assert value(metrics, "last_success_timestamp_seconds") == AT.timestamp()
    with pytest.raises(ValueError, match="could not convert"):
        metrics.remember("x{")


def test_what_is_new_is_delivered_and_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = list[int]()
    generation = [0]
    monkeypatch.setenv(HURRIED_VARIABLE, "200")
    with deliver_changes("there", lambda: taken.append(generation[0]), lambda: generation[0]):
        generation[0] = 4
        while not taken:
            pass
    assert taken == [4]


def test_a_delivery_that_hangs_ends_with_the_patience_for_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()

    def hang() -> None:
        released.wait()

    monkeypatch.setenv(HURRIED_VARIABLE, "200")
    monkeypatch.setattr("rollout.cli.stages.metrics._LAST_DELIVERY_SECONDS", 0.1)
    with deliver_changes("there", hang, lambda: 1):
        pass
    released.set()
    assert (
        capsys.readouterr().err
        == "warning: cannot deliver the metrics to there: no response within 0.1s\n"
    )


def test_when_each_host_last_checked_and_how_many_are_behind() -> None:
    metrics = Metrics("here")
    checked = "2026-03-01T12:00:00Z"
    behind = UpdateStanding(
        UpdateState.BEHIND, behind=True, checks=CheckState.STALE, last_checked=checked
    )
    masked = replace(behind, checks=CheckState.MASKED)
    booted = UpdateStanding(UpdateState.UP_TO_DATE, checks=CheckState.WORKING)
    never = UpdateStanding(UpdateState.NOT_CHECKING, checks=CheckState.STALE)
    metrics.observe_updates({"a": behind, "b": masked, "c": booted, "d": never})
    at = datetime.fromisoformat(checked).timestamp()
    found = [value(metrics, "host_last_check_timestamp_seconds", node=node) for node in "abcd"]
    assert found == [at, 0, None, 0]
    assert value(metrics, "hosts_behind") == 2
    metrics.observe_updates({"a": booted})
    assert value(metrics, "host_last_check_timestamp_seconds", node="a") is None
    assert value(metrics, "hosts_behind") == 0
