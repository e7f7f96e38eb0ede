"""Gates that wait: for windows to open, for good looks in a row; in time that a test moves."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace

from rollout.adapters.clock import SystemClock
from rollout.errors import (
    ApiConflictError,
    ApiError,
    ApiNotFoundError,
    ApiUnavailableError,
    GateError,
)
from rollout.execution.base import health
from rollout.execution.base.deadline import Deadline, GracefulStop, PatientApi
from rollout.execution.base.gate_ports import GatePorts
from rollout.execution.base.reporting import OutageNotice, Reporter
from rollout.execution.gates import GateAnswer, PolicyGates
from rollout.execution.node import steps
from rollout.execution.node.context import NodeContext, Progress
from rollout.execution.node.failures import NodeFailure
from rollout.model.finding import DeadlineReached, ObjectHealthUnknown
from rollout.model.gates import AlertPolicy, GatePolicy, HealthRule, HookPolicy, WindowPolicy
from rollout.model.plan import Estimate, RolloutPlan
from rollout.model.policy import Policy, Pool
from rollout.model.progress import Notice, NotStarted, Outcome, Phase, RunResult, StepEvent
from rollout.model.quantity import Count, Duration
from rollout.planning.plan.build import build_plan
from rollout.report.summary import next_step
from rollout.wording import text
from tests.execution.simulated import SetClock
from tests.planning.builders import inputs, node

NO_ALERTS = AlertPolicy()


class MovedClock(SystemClock):
    """A clock that a test moves."""

    def __init__(self) -> None:
        super().__init__()
        self.at = datetime(2026, 3, 2, 21, 59, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()

    def forward(self, **by: int) -> None:
        self.at += timedelta(**by)


class Notes:
    """Remembers what was told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def notify(self, event: StepEvent) -> None:
        if isinstance(event, Notice):
            self.told.append(event.message)


@dataclass
class Alerts:
    names: tuple[str, ...] = ()
    away: bool = False

    def __call__(self) -> tuple[str, ...]:
        if self.away:
            raise GateError("no response")
        return self.names


class NoApi:
    """An API server with one node, which is none of a control plane, and without a storage that
    replicates.
    """

    server = "https://127.0.0.1:1"

    def get(self, _path: str, _query: object = None) -> bytes:
        return b'{"metadata":{"name":"w-1"}}'

    def pages(self, _path: str, _query: object = None) -> Iterator[bytes]:
        return iter((b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}',))

    def __getattr__(self, name: str) -> object:
        raise AssertionError(name)


def plan_with(gates: GatePolicy) -> RolloutPlan:
    nodes = [node(f"worker-{number}") for number in range(8)]
    return build_plan(inputs(nodes, policy=Policy(max_unavailable=Count(2), gates=gates)))


def gates_of(plan: RolloutPlan, clock: MovedClock, ports: GatePorts) -> tuple[PolicyGates, Notes]:
    notes = Notes()
    report = Reporter((notes,), clock)
    cluster = PatientApi(NoApi(), clock, OutageNotice(report), 1.0)  # type: ignore[arg-type]
    return PolicyGates(plan, cluster, report, GracefulStop(), ports), notes


def words_of(hold: GateAnswer) -> str:
    return text(hold.finding) if hold.finding else ""


def test_a_pools_own_window_holds_its_nodes_alone() -> None:
    clock = MovedClock()
    clock.forward(minutes=1)
    pools = (
        Pool("web", "app=web", window=("mon 23:00 2h",)),
        Pool("db", "app=db", window=("sun 22:00 1h",)),
    )
    gate = GatePolicy(windows=WindowPolicy(("mon 22:00 2h",), wait=True))
    nodes = [node(app, labels={"app": app}) for app in ("web", "db", "other")]
    plan = build_plan(inputs(nodes, policy=Policy(gates=gate, pools=pools)))
    gates, notes = gates_of(plan, clock, GatePorts())
    web, db, other = (
        next(one for one in plan.nodes if one.name == name) for name in ("web", "db", "other")
    )
    assert gates.ask(other).finding is None
    assert not gates.ask(web).is_general
    assert notes.told == [
        "web: outside the maintenance window; the next window opens Mon 2026-03-02 23:00 UTC"
    ]
    # never within the rollout's own
    assert gates.ask(db).is_final
    assert [gates.is_window_closed(planned) for planned in (other, web)] == [False, True]
    clock.forward(hours=1)
    assert gates.ask(web).finding is None
    clock.forward(hours=1)
    assert "the next window opens Mon 2026-03-09 23:00 UTC" in words_of(gates.ask(web))


def test_a_node_without_jobs_needs_no_window_for_the_jobs_of_another() -> None:
    plan = plan_with(GatePolicy(windows=WindowPolicy(("mon 21:00 2h",))))
    (first, *rest) = plan.waves
    (busy, idle) = (replace(first.nodes[0], wait_seconds=7200), first.nodes[1])
    estimate = Estimate(seconds=7500, drain=7200, reboot=300)
    wave = replace(first, nodes=(busy, idle), estimate=estimate)
    gates, _ = gates_of(replace(plan, waves=(wave, *rest)), MovedClock(), GatePorts())
    assert "it is estimated to take 2h5m" in words_of(gates.ask(busy))
    assert gates.ask(idle).finding is None


def test_a_closed_window_is_waited_for_and_told_of_once() -> None:
    clock = MovedClock()
    plan = plan_with(GatePolicy(windows=WindowPolicy(("mon 22:00 1h Europe/London",), wait=True)))
    gates, notes = gates_of(plan, clock, GatePorts())
    first = plan.nodes[0]
    held = [gates.ask(first), gates.ask(first)]
    assert all(hold.finding and not hold.is_final for hold in held)
    assert notes.told == [
        (
            "no node can be rebooted now: outside the maintenance window; the next window opens Mon 2026-03-02"
            " 22:00 GMT"
        )
    ]
    assert gates.ask_to_start_wave(plan.waves[0]) is None
    clock.forward(minutes=1)
    assert gates.ask(first).finding is None
    clock.forward(hours=1)
    assert "the next window opens Mon 2026-03-09 22:00 GMT" in words_of(gates.ask(first))


def test_checks_that_outlast_the_window_come_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = MovedClock()
    clock.forward(minutes=1)
    asks = GatePolicy(
        windows=WindowPolicy(("mon 22:00 1h",)), hooks=HookPolicy(before=("a.example/ok",))
    )
    plan = plan_with(asks)
    gates, _notes = gates_of(plan, clock, GatePorts())
    monkeypatch.setattr(steps, "await_checks", lambda *_: clock.forward(minutes=59))
    monkeypatch.setattr(steps, "_mark_draining", lambda _context: None)
    context = SimpleNamespace(
        planned=plan.nodes[0], policy=plan.policy, engine=gates, own_node=None
    )
    start = steps.prepare_drain
    cordoned = Progress(Phase.CORDONED)
    start(cast("NodeContext", context), cordoned)
    with pytest.raises(NodeFailure, match="the window closed while its checks ran") as failed:
        start(cast("NodeContext", context), cordoned)
    assert failed.value.outcome is Outcome.SKIPPED


def test_only_what_fits_by_the_plans_own_estimate_is_begun() -> None:
    clock = MovedClock()
    clock.forward(minutes=1)
    made = plan_with(GatePolicy(windows=WindowPolicy(("mon 22:00 1h", "tue 22:00 20m"), wait=True)))
    waves = tuple(replace(wave, estimate=Estimate(1800, 600, 900, 300)) for wave in made.waves)
    gates, _notes = gates_of(replace(made, waves=waves), clock, GatePorts())
    first = made.nodes[0]
    assert gates.ask(first).finding is None
    clock.forward(minutes=35)
    assert gates.ask(first).finding is None
    clock.forward(minutes=1)
    hold = gates.ask(first)
    assert "only 24m left in the window, and it is estimated to take 25m" in words_of(hold)
    assert not hold.is_final
    never = tuple(replace(wave, estimate=Estimate(4000, 3000, 900, 100)) for wave in made.waves)
    gates, _notes = gates_of(replace(made, waves=never), clock, GatePorts())
    assert gates.ask(first).is_final
    assert "longer than any maintenance window" in words_of(gates.ask(first))


def test_a_window_that_is_over_for_good_is_not_waited_for() -> None:
    windows = WindowPolicy(("2020-01-01 10:00 1h",), wait=True)
    plan = plan_with(GatePolicy(windows=windows))
    gates, _notes = gates_of(plan, MovedClock(), GatePorts())
    answer = gates.ask(plan.nodes[0])
    assert answer.is_final
    closed = "outside the maintenance window; no window opens in the next two years"
    assert words_of(answer) == closed
    waiting = NotStarted("worker-1", closed, finding=answer.finding)
    result = RunResult((), not_started=(waiting,), resumable=False)
    assert next_step(result, unattended=False) == ("After changing the windows: rollout apply")


def test_the_last_window_is_not_waited_for_by_nodes_that_no_longer_fit() -> None:
    clock = MovedClock()
    day = clock.now().date().isoformat()
    windows = WindowPolicy((f"{day} 22:00 10m",), wait=True)
    plan = plan_with(GatePolicy(windows=windows))
    waves = tuple(replace(wave, estimate=Estimate(300, 200, 100, 0)) for wave in plan.waves)
    gates, _notes = gates_of(replace(plan, waves=waves), clock, GatePorts())
    clock.forward(minutes=9)
    answer = gates.ask(plan.nodes[0])
    assert "no window opens in the next two years" in words_of(answer)
    assert answer.is_final


def test_alerts_hold_until_they_end_or_time_is_up() -> None:
    clock = MovedClock()
    alerts = Alerts(("DiskFull",))
    plan = plan_with(GatePolicy(alerts=AlertPolicy("http://127.0.0.1:9"), timeout=Duration(60)))
    gates, notes = gates_of(plan, clock, GatePorts(alerts=alerts))
    first, second, third = plan.nodes[:3]
    assert "DiskFull" in words_of(gates.ask(first))
    alerts.names = ()
    alerts.away = True
    clock.forward(seconds=10)
    assert "no response" in words_of(gates.ask(first))
    alerts.away = False
    clock.forward(seconds=10)
    assert gates.ask(first).finding is None
    alerts.names = ("DiskFull",)
    clock.forward(seconds=10)
    assert not gates.ask(second).is_final
    clock.forward(seconds=61)
    assert gates.ask(second).is_final
    for alerts.names in ((), ("DiskFull",)):
        clock.forward(seconds=10)
        gates.ask(third)
    assert ["DiskFull" in told for told in notes.told] == [True, False, True, True]


def test_the_time_outside_a_window_is_none_that_an_alert_has_held_a_node() -> None:
    clock = MovedClock()
    alerts = Alerts(("DiskFull",))
    rule = AlertPolicy("http://127.0.0.1:9")
    windows = WindowPolicy(("mon 22:00 1h",), wait=True)
    plan = plan_with(GatePolicy(windows, alerts=rule, timeout=Duration(600)))
    gates, _notes = gates_of(plan, clock, GatePorts(alerts=alerts))
    first = plan.nodes[0]
    for minutes, is_open in ((1, True), (65, False), (7 * 24 * 60 - 64, True)):
        clock.forward(minutes=minutes)
        answer = gates.ask(first)
        assert ("DiskFull" in words_of(answer)) == is_open
        assert not answer.is_final
    clock.forward(minutes=11)
    assert gates.ask(first).is_final


def test_a_window_that_is_closed_for_all_nodes_ends_the_waits_of_nodes_not_asked() -> None:
    clock = MovedClock()
    policy = GatePolicy(
        WindowPolicy(("mon 22:00 1h",), wait=True), blocking_pods=("app=db",), timeout=Duration(600)
    )
    plan = plan_with(policy)
    gates, _notes = gates_of(plan, clock, GatePorts())
    gates.cluster = PatientApi(BusyApi(), clock)  # type: ignore[arg-type]
    first, second = plan.nodes[:2]
    clock.forward(minutes=1)
    assert not gates.ask(first).is_final
    assert not gates.ask(second).is_final
    clock.forward(minutes=65)
    gates.ask(first)
    clock.forward(minutes=7 * 24 * 60 - 64)
    assert not gates.ask(second).is_final


class BusyApi(NoApi):
    """Each node has a pod that blocks its reboot."""

    def pages(self, _path: str, _query: object = None) -> Iterator[bytes]:
        pod = {"metadata": {"namespace": "shop", "name": "db-0"}, "status": {"phase": "Running"}}
        yield json.dumps({"metadata": {}, "items": [pod]}).encode()


def test_a_pools_closed_window_does_not_extend_the_wait_of_another_pool() -> None:
    clock = MovedClock()
    pools = (
        Pool("db", "pool=db", window=("tue 22:00 1h",)),
        Pool("web", "pool=web"),
    )
    alerts = AlertPolicy("http://127.0.0.1:9")
    gate_policy = GatePolicy(WindowPolicy(wait=True), alerts=alerts, timeout=Duration(600))
    nodes = [node("a", labels={"pool": "db"}), node("b", labels={"pool": "web"})]
    plan = build_plan(inputs(nodes, policy=Policy(pools=pools, gates=gate_policy)))
    gates, _notes = gates_of(plan, clock, GatePorts(alerts=Alerts(("DiskFull",))))
    closed, held = sorted(plan.nodes, key=lambda planned: planned.name)
    assert not gates.ask(held).is_final
    for _ in range(11):
        clock.forward(minutes=1)
        assert "window" in words_of(gates.ask(closed))
    assert gates.ask(held).is_final


class CephApi(NoApi):
    """One that serves a Ceph cluster of Rook's."""

    def get(self, path: str, _query: object = None) -> bytes:
        version = {"version": "v1"}
        resource = {"name": "cephclusters", "namespaced": True}
        answers = {
            "/apis/ceph.rook.io": {"preferredVersion": version, "versions": [version]},
            "/apis/ceph.rook.io/v1": {"resources": [resource]},
            "/apis/ceph.rook.io/v1/namespaces/rook-ceph/cephclusters/main": {"kind": "CephCluster"},
        }
        return json.dumps(answers[path]).encode() if path in answers else super().get(path)


@dataclass
class Evaluation:
    """Says whether an object is healthy, and counts how often it was asked."""

    is_healthy: bool = True
    problem: str = ""
    asked: int = 0

    def __call__(self, expression: str, body: bytes) -> bool:
        assert expression == CEPH.expression
        assert json.loads(body) == {"kind": "CephCluster"}
        self.asked += 1
        if self.problem:
            raise GateError(self.problem)
        return self.is_healthy


CEPH = HealthRule("cephclusters.ceph.rook.io/rook-ceph/main", "status.health == 'ok'")


def health_gates(
    clock: MovedClock, ports: GatePorts, alerts: AlertPolicy = NO_ALERTS
) -> tuple[PolicyGates, RolloutPlan]:
    policy = GatePolicy(healthy=(CEPH,), alerts=alerts, timeout=Duration(60))
    plan = plan_with(policy)
    report = Reporter((), clock)
    cluster = PatientApi(CephApi(), clock, OutageNotice(report), 1.0)  # type: ignore[arg-type]
    return PolicyGates(plan, cluster, report, GracefulStop(), ports), plan


def test_an_unhealthy_object_holds_every_node_until_it_is_healthy() -> None:
    clock = MovedClock()
    evaluation = Evaluation(is_healthy=False)
    gates, plan = health_gates(clock, GatePorts(evaluate=evaluation))
    held = gates.ask(plan.nodes[0])
    assert held.is_general
    assert not held.is_final
    assert words_of(held) == f"{CEPH.resource} is not healthy: {CEPH.expression} is false"
    evaluation.is_healthy = True
    clock.forward(seconds=10)
    assert gates.ask(plan.nodes[0]).finding is None


def test_an_object_whose_health_is_unknown_holds_every_node() -> None:
    clock = MovedClock()
    gates, plan = health_gates(clock, GatePorts(evaluate=Evaluation(problem="no such field")))
    unknown = f"the health of {CEPH.resource} is unknown: no such field"
    assert words_of(gates.ask(plan.nodes[0])) == unknown
    assert gates.ask_before_cordon(plan.nodes[0]) == ObjectHealthUnknown(
        CEPH.resource, "no such field"
    )


@pytest.mark.parametrize("error", [ApiUnavailableError, ApiNotFoundError])
def test_an_object_that_alone_cannot_be_read_holds_every_node(
    error: type[ApiError], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = MovedClock()
    gates, plan = health_gates(clock, GatePorts(evaluate=Evaluation()))

    def fail(_api: object, reference: object) -> bytes:
        clock.forward(seconds=20)
        raise error("conversion webhook failed", status=500)

    monkeypatch.setattr(health, "read_object", fail)
    unknown = f"the health of {CEPH.resource} is unknown: conversion webhook failed"
    assert words_of(gates.ask(plan.nodes[0])) == unknown


def test_an_object_may_hold_all_nodes_for_the_gates_time_although_no_alert_fires() -> None:
    clock = MovedClock()
    ports = GatePorts(evaluate=Evaluation(is_healthy=False), alerts=Alerts())
    gates, plan = health_gates(clock, ports, AlertPolicy("http://127.0.0.1:9"))
    first, second = plan.nodes[:2]
    assert not gates.ask(first).is_final
    clock.forward(seconds=61)
    assert gates.ask(first).is_final
    assert gates.ask(second).is_final


def test_an_object_that_no_process_evaluates_holds_every_node() -> None:
    gates, plan = health_gates(MovedClock(), GatePorts())
    assert "this process evaluates no expressions" in words_of(gates.ask(plan.nodes[0]))


def test_the_answer_about_an_object_holds_for_nodes_that_ask_together() -> None:
    clock = MovedClock()
    evaluation = Evaluation()
    gates, plan = health_gates(clock, GatePorts(evaluate=evaluation))
    for planned in plan.nodes:
        gates.ask(planned)
    assert evaluation.asked == 1


def test_alerts_that_cannot_be_read_are_waited_for_once_in_a_rollout() -> None:
    clock = MovedClock()
    alerts = Alerts(away=True)
    plan = plan_with(GatePolicy(alerts=AlertPolicy("http://127.0.0.1:9"), timeout=Duration(60)))
    gates, _notes = gates_of(plan, clock, GatePorts(alerts=alerts))
    first, *others = plan.nodes
    assert not gates.ask(first).is_final
    clock.forward(seconds=61)
    ends = [gates.ask(planned) for planned in (first, *others)]
    assert all(hold.is_final for hold in ends)
    assert {words_of(hold) for hold in ends} == {
        "alerts cannot be read: no response, even after gates.timeout 1m"
    }


def test_an_outage_after_an_answer_is_waited_for_anew() -> None:
    clock = MovedClock()
    alerts = Alerts(away=True)
    plan = plan_with(GatePolicy(alerts=AlertPolicy("http://127.0.0.1:9"), timeout=Duration(60)))
    gates, _notes = gates_of(plan, clock, GatePorts(alerts=alerts))
    first, second = plan.nodes[:2]
    gates.ask(first)
    clock.forward(seconds=61)
    assert gates.ask(first).is_final
    alerts.away = False
    clock.forward(seconds=10)
    assert gates.ask(second).finding is None
    alerts.away = True
    clock.forward(seconds=10)
    hold = gates.ask(second)
    assert "no response" in words_of(hold)
    assert not hold.is_final


def test_nothing_is_begun_that_is_not_done_before_the_deadline() -> None:
    clock = MovedClock()
    plan = plan_with(GatePolicy())
    first = plan.nodes[0]
    needed = plan.waves[0].estimate.drain + plan.waves[0].estimate.reboot or 600
    gates, _notes = gates_of(plan, clock, GatePorts(deadline=Deadline(clock, needed + 60)))
    assert gates.ask(first).finding is None
    clock.forward(seconds=61)
    hold = gates.ask(first)
    assert hold.is_final
    assert hold.finding
    assert hold.finding.is_for_later
    assert "left until --active-deadline, and it is estimated to take" in words_of(hold)


def test_time_that_is_up_stops_and_says_why() -> None:
    clock = SetClock()
    stop = GracefulStop(Deadline(clock, 60), GracefulStop(), revert=True)
    assert not stop.is_due
    assert not stop.is_reverting
    assert not stop.wait(0)
    clock.seconds = 60
    assert stop.is_due
    assert stop.is_reverting
    assert stop.wait(1000)
    assert not stop.is_requested
    assert stop.reason == DeadlineReached()


# The patience that all steps of a run share with one outage.


def fail(
    cluster: PatientApi, clock: SetClock, *, asker: str = "steps", seconds: float = 0.0
) -> None:
    """A request that is not answered, after so many seconds."""
    with pytest.raises(ApiUnavailableError), cluster.noting_outage(asker):  # noqa: PT012 - time passes within
        clock.seconds += seconds
        raise ApiUnavailableError("away")


def test_it_is_counted_from_the_first_request_in_a_row_that_failed() -> None:
    clock = SetClock()
    cluster = PatientApi(NoApi(), clock, seconds=100)  # type: ignore[arg-type]
    assert cluster.patience_left == 100
    for _ in range(3):
        fail(cluster, clock, seconds=30)
    assert cluster.patience_left == 10
    fail(cluster, clock, seconds=30)
    assert cluster.patience_left == 0


def test_any_answer_ends_it_for_its_asker() -> None:
    clock = SetClock()
    cluster = PatientApi(NoApi(), clock, seconds=100)  # type: ignore[arg-type]
    fail(cluster, clock, seconds=30)
    fail(cluster, clock, asker="lock")
    with pytest.raises(ApiConflictError), cluster.noting_outage("steps"):
        raise ApiConflictError("changed")
    clock.seconds += 20
    assert cluster.patience_left == 80
    with cluster.noting_outage("lock"):
        pass
    assert cluster.patience_left == 100
