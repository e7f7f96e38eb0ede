"""Who may begin: the limit at each node's beginning, whoever takes others away meanwhile; and that
all has settled.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar, cast

import pytest
from msgspec.structs import replace

from rollout.adapters.clock import SystemClock
from rollout.execution.base.deadline import Deadline, GracefulStop, PatientApi
from rollout.execution.base.reporting import OutageNotice, Reporter
from rollout.execution.gates import OPEN, GateAnswer
from rollout.execution.record.record import Health
from rollout.execution.rollout.health_monitor import HealthMonitor, ReadinessSnapshot
from rollout.execution.rollout.ledger import Ledger
from rollout.execution.rollout.waves import Room, StopRule, WaveRunner, WaveState
from rollout.gather.cluster.workloads import Workload
from rollout.lab.api.resources import NODES, REPLICASETS, Resource
from rollout.model.finding import AlertsUnreadable, Finding, ObjectUnhealthy
from rollout.model.gates import GatePolicy
from rollout.model.plan import PlannedNode, Wave
from rollout.model.policy import Policy
from rollout.model.progress import NodeResult, Outcome, Phase, WaveSettling
from rollout.model.quantity import Duration
from rollout.planning.eligibility.away import AwayLimit
from rollout.ports import ClusterApi
from rollout.wording import text
from tests.execution.conftest import Recorder
from tests.execution.drains import add_node, add_pod, change, owner, put
from tests.execution.simulated import PassingClock, World
from tests.standalone_api import StandaloneApi

FOREIGN = ("u", "v", "w", "x", "y", "z")
# After that long a node whose turn has come has begun.
SOON = 2
IMPATIENT = Policy(settle_timeout=Duration(60))


def nodes(*seconds: float) -> dict[str, float]:
    return {f"node-{number}": each for number, each in enumerate(seconds, start=1)}


def others(away: Mapping[float, Collection[str]]) -> Callable[[float], Collection[str]]:
    """Whom others have away, each set until its second."""
    return lambda now: next(nodes for until, nodes in away.items() if now < until)


@pytest.mark.parametrize(("limit", "foreign"), [(1, 0), (3, 0), (3, 1), (3, 2), (6, 5)])
def test_as_many_begin_as_the_limit_has_room_for(limit: int, foreign: int) -> None:
    world = World(nodes(*[10] * 8), away=lambda _second: FOREIGN[:foreign])
    world.run(limit=limit)
    assert world.most_in_flight == limit - foreign
    assert len(world.ended_at) == 8


@pytest.mark.parametrize(("limit", "foreign"), [(1, 1), (3, 3), (3, 5)])
def test_none_begins_while_others_use_it_up_and_one_does_once_there_is_room_for_one(
    limit: int, foreign: int
) -> None:
    world = World(nodes(10, 10), away=others({100: FOREIGN[:foreign], inf: FOREIGN[: limit - 1]}))
    world.run(limit=limit)
    assert 100 <= world.begun["node-1"] <= 100 + SOON
    assert world.most_in_flight == 1
    assert len(world.ended_at) == 2


def test_those_that_go_away_while_nodes_are_under_way_count_at_the_next_beginning() -> None:
    away = {5: ("x",), 20: ("x", "y"), 30: ("y",), inf: ()}
    world = World(nodes(10, 999, 999, 999), away=others(away))
    world.run(limit=3)
    assert [at // SOON * SOON for at in world.begun.values()] == [0, 0, 20, 30]


@pytest.mark.parametrize("left_before", [frozenset[str](), frozenset({"old"})])
def test_those_that_failed_and_stayed_cordoned_count_though_they_are_ready(
    left_before: frozenset[str],
) -> None:
    limit = 1 + len(left_before)
    ledger = Ledger(cordoned_before=left_before)
    world = World(
        nodes(10, 10, 10), outcomes={"node-1": Outcome.NOT_BACK}, ledger=ledger, policy=IMPATIENT
    )
    world.run(limit=limit, failures=9)
    assert world.begun.keys() == {"node-1"}
    names = ", ".join(sorted({*left_before, "node-1"}))
    assert [(entry.node, entry.message) for entry in ledger.not_started] == [
        (node, f"--max-unavailable {limit} is used up by {names}") for node in ("node-2", "node-3")
    ]


def test_the_time_that_a_gate_holds_nodes_is_no_time_without_room() -> None:
    """Somebody else's node is away for four seconds, long after the settle timeout."""

    def ask_gates(_node: PlannedNode) -> GateAnswer:
        return OPEN if world.clock.seconds >= 500 else GateAnswer(AlertsUnreadable("no response"))

    world = World(
        nodes(10, 10),
        away=others({450: (), 454: ("x",), inf: ()}),
        policy=IMPATIENT,
        ask_gates=ask_gates,
    )
    world.run(limit=1)
    assert len(world.ended_at) == 2


@dataclass
class Refusing(World):
    """Nodes are refused at once until the tenth second."""

    starts: int = 0

    def start(self, node: PlannedNode) -> None:
        self.starts += 1
        assert self.starts < 99
        super().start(node)

    def wait_for_results(self, seconds: float | None) -> Sequence[NodeResult]:
        results = super().wait_for_results(seconds)
        return [replace(result, is_refused=self.clock.seconds < 10) for result in results]


def test_a_node_that_is_refused_again_and_again_is_not_tried_without_a_pause() -> None:
    world = Refusing(nodes(0))
    world.run(limit=1)
    assert world.ledger.finished
    assert world.starts <= 10 / SOON + 1


ONE_OF_DB = AwayLimit(0, {"db": 1}, {"node-1": "db", "node-2": "db", "u": "db", "node-3": "web"})


def test_a_pools_limit_is_used_up_by_its_own_nodes_and_holds_no_other_pools_up() -> None:
    pools = AwayLimit(0, {"db": 1}, {"node-1": "db", "node-2": "web", "u": "db"})
    world = World(nodes(10, 100), pools=pools, away=others({50: ("u",), inf: ("v",)}))
    world.run(limit=4)
    assert world.begun["node-2"] == 0
    assert 50 <= world.begun["node-1"] <= 50 + SOON


def test_nodes_whose_pool_stays_full_are_given_up_with_who_fills_it() -> None:
    world = World(nodes(10, 10, 10), pools=ONE_OF_DB, away=lambda _second: {"u"}, policy=IMPATIENT)
    world.run(limit=4)
    assert world.begun.keys() == {"node-3"}
    why = "max-unavailable 1 of the pool db is used up by u"
    assert [(entry.node, entry.message) for entry in world.ledger.not_started] == [
        ("node-1", why),
        ("node-2", why),
    ]


def why_not(world: World, failures: int) -> set[str]:
    """Why those of its nodes did not begin that did not, one after another."""
    world.run(limit=1, failures=failures)
    assert [*world.begun, *(left.node for left in world.ledger.not_started)] == [*world.seconds]
    return {left.message for left in world.ledger.not_started}


def test_none_begins_once_there_is_a_reason_to_stop() -> None:
    fenced = World(nodes(1, 1, 1), outcomes={"node-1": Outcome.FENCED})
    stopped = World(nodes(1, 1, 1), idle=lambda world: world.stop.request())
    failed = World(
        nodes(1, 1, 1), outcomes=dict.fromkeys(("node-1", "node-2", "node-3"), Outcome.DRAIN_FAILED)
    )
    assert why_not(fenced, failures=9) == {"the lock was lost"}
    assert why_not(stopped, failures=9) == {"stopped on request"}
    assert why_not(failed, failures=2) == {"2 nodes failed, and --max-failures is 2"}
    assert [len(each.begun) for each in (fenced, stopped, failed)] == [1, 1, 2]
    assert why_not(World(nodes(1, 1, 1)), failures=1) == set()


def test_one_under_way_that_is_away_is_not_counted_twice() -> None:
    away = {10: ("x", "y"), 20: ("x", "node-1"), inf: ("node-1", "node-2")}
    world = World(nodes(999, 999, 999), away=others(away))
    world.run(limit=3)
    assert [at // SOON * SOON for at in world.begun.values()] == [0, 10, 20]


@dataclass
class Hanging:
    """A wave of two nodes, one after the other; the first hangs, and its runner is told to end by
    this `error`.
    """

    error: BaseException
    notices: list[str] = field(default_factory=list)
    has_begun: threading.Event = field(default_factory=threading.Event)
    goes_on: threading.Event = field(default_factory=threading.Event)
    has_ended: bool = False

    def run_and_report(self, node: PlannedNode) -> NodeResult:
        self.has_begun.set()
        assert self.goes_on.wait(30)
        self.has_ended = True
        return NodeResult(node.name, Outcome.SUCCEEDED, Phase.DONE, 1.0)

    def read_room(self) -> Room:
        if self.has_begun.is_set():
            raise self.error
        return Room(AwayLimit(1), frozenset())

    def notice(self, message: str) -> None:
        self.notices.append(message)
        self.goes_on.set()

    def run(self) -> None:
        ledger = Ledger()
        runner = WaveRunner(
            run_and_report=self.run_and_report,
            read_room=self.read_room,
            clock=SystemClock(speedup=20),
            stop_rule=StopRule(GracefulStop(), ledger, failure_limit=1),
            settle_timeout=1,
            ledger=ledger,
            notice=self.notice,
            ask_gates=lambda _node: OPEN,
        )
        nodes = tuple(PlannedNode(f"node-{number}", "b", "u", "1", "2", 0, 0) for number in (1, 2))
        nothing = cast("Any", None)
        runner.run(WaveState(Wave(1, nodes, ""), nothing, nothing, nothing))


def test_an_interruption_does_not_wait_for_a_node_whose_host_hangs() -> None:
    hanging = Hanging(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        hanging.run()
    assert not hanging.has_ended
    assert hanging.notices == []
    hanging.goes_on.set()


def test_an_error_lets_the_nodes_in_flight_finish_and_says_so() -> None:
    hanging = Hanging(RuntimeError("can't start new thread"))
    with pytest.raises(RuntimeError):
        hanging.run()
    assert hanging.has_ended
    assert hanging.notices == [
        "internal error: rollout takes on no more nodes and finishes those in flight: node-1"
    ]


# When the next may begin: so many good looks in a row.


class Looks(HealthMonitor, frozen=True):
    """Counts the looks, and finds the given ones bad."""

    bad: ClassVar[frozenset[int]] = frozenset()
    looks: ClassVar[int] = 0

    def read_readiness(self, deadline: Deadline | None = None) -> ReadinessSnapshot:
        Looks.looks += 1
        unready = {"n-1"} if Looks.looks in Looks.bad else set()
        return ReadinessSnapshot(
            frozenset(unready), lambda _node: Counter(), lambda was: was, lambda: None
        )


@pytest.mark.parametrize(
    ("checks", "bad", "looks", "prepared_at"),
    [(1, (), 1, []), (2, (), 2, [1]), (3, (), 3, [2]), (3, (1, 3), 6, [5]), (2, (2,), 4, [1, 3])],
)
def test_good_looks_have_to_follow_one_another(
    checks: int, bad: tuple[int, ...], looks: int, prepared_at: list[int]
) -> None:
    clock = PassingClock()
    report = Reporter((), clock)
    policy = Policy(settle_timeout=Duration(30), gates=replace(GatePolicy(), health_checks=checks))
    Looks.looks, Looks.bad = 0, frozenset(bad)
    health_monitor = Looks(PatientApi(None, clock), report, policy, lambda: None)  # type: ignore[arg-type]
    prepared = list[int]()
    missing = health_monitor.wait_until_settled(
        Health({}, frozenset({"n-1"})),
        1,
        GracefulStop(),
        frozenset,
        prepare_next=lambda: prepared.append(Looks.looks),
    )
    assert missing == ""
    assert Looks.looks == looks
    # The next wave is prepared before the last look, and again if that was bad.
    assert prepared == prepared_at


class Readings(HealthMonitor, frozen=True):
    """Reads these numbers of ready pods of `a` and `b`, one pair after another."""

    pairs: ClassVar[list[dict[str, int]]] = []

    def read_readiness(self, deadline: Deadline | None = None) -> ReadinessSnapshot:
        ready = Readings.pairs.pop(0)
        return ReadinessSnapshot(
            frozenset(),
            lambda _node: Counter(),
            lambda was: replace(was, ready=ready[was.uid]),
            lambda: None,
        )


def test_a_workload_that_fails_while_another_recovers_is_waited_for() -> None:
    clock = PassingClock()
    policy = Policy(settle_timeout=Duration(30), gates=GatePolicy(health_checks=1))
    health_monitor = Readings(PatientApi(None, clock), Reporter((), clock), policy, lambda: None)  # type: ignore[arg-type]
    Readings.pairs = [{"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": 2, "b": 1}, {"a": 2, "b": 2}]
    before = {uid: Workload("ReplicaSet", "shop", uid, uid, desired=2, ready=2) for uid in "ab"}
    health = Health(before, frozenset())
    assert health_monitor.wait_until_settled(health, 1, GracefulStop(), frozenset) == ""
    # `b` was back only in one that read both: the fourth, or a later one.
    assert Readings.pairs == []


def test_a_wave_settles_once_the_objects_are_healthy() -> None:
    clock = PassingClock()
    unhealthy = ObjectUnhealthy("volumes.longhorn.io/a/b", "status.robustness == 'healthy'")
    answers: list[Finding | None] = [unhealthy, unhealthy, None, None]
    cluster = PatientApi(Empty(), clock)  # type: ignore[arg-type]
    policy = Policy(settle_timeout=Duration(30), gates=GatePolicy(health_checks=2))
    health_monitor = HealthMonitor(cluster, Reporter((), clock), policy, lambda: answers.pop(0))
    missing = health_monitor.wait_until_settled(
        Health({}, frozenset()), 1, GracefulStop(), frozenset
    )
    assert missing == ""
    assert answers == []


def test_an_object_that_stays_unhealthy_is_what_the_wave_lacks() -> None:
    clock = PassingClock()
    unhealthy = ObjectUnhealthy("volumes.longhorn.io/a/b", "status.robustness == 'healthy'")
    cluster = PatientApi(Empty(), clock)  # type: ignore[arg-type]
    policy = Policy(settle_timeout=Duration(3))
    health_monitor = HealthMonitor(cluster, Reporter((), clock), policy, lambda: unhealthy)
    missing = health_monitor.wait_until_settled(
        Health({}, frozenset()), 1, GracefulStop(), frozenset
    )
    assert missing == text(unhealthy)


class Empty:
    """An API server without nodes."""

    server = "https://127.0.0.1:1"

    def pages(self, _path: str, _query: object = None) -> Iterator[bytes]:
        return iter((b'{"kind":"NodeList","apiVersion":"v1","metadata":{},"items":[]}',))


# What a settled cluster is measured by: what was well before, and nothing that was not.


def health_monitor(api: ClusterApi, clock: SystemClock, recorder: Recorder) -> HealthMonitor:
    report = Reporter((recorder,), clock)
    policy = Policy(settle_timeout=Duration(0.2), gates=GatePolicy(health_checks=1))
    return HealthMonitor(
        PatientApi(api, clock, OutageNotice(report), 5.0), report, policy, lambda: None
    )


def add_replicas(server: StandaloneApi, name: str, *, desired: int, ready: int) -> None:
    """A ReplicaSet with a pod on the node n1."""
    labels = {"matchLabels": {"app": name}}
    spec = {
        "replicas": desired,
        "selector": labels,
        "template": {"metadata": {"labels": {"app": name}}},
    }
    made = put(
        server, REPLICASETS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
    )
    change(
        server, REPLICASETS, name, "default", status={"replicas": desired, "readyReplicas": ready}
    )
    owned = {**owner("ReplicaSet", name), "uid": made["metadata"]["uid"]}
    add_pod(server, "n1", f"{name}-1", owned=owned)


Meanwhile = Callable[[StandaloneApi], None]


def ready_pods(number: int, desired: int = 3) -> Meanwhile:
    return lambda server: change(
        server,
        REPLICASETS,
        "web",
        "default",
        spec={"replicas": desired},
        status={"readyReplicas": number},
    )


def readiness(node: str, *, ready: bool) -> Meanwhile:
    return lambda server: change(
        server, NODES, node, status={"conditions": [{"type": "Ready", "status": str(ready)}]}
    )


def gone(resource: Resource, name: str, namespace: str = "") -> Meanwhile:
    def remove(server: StandaloneApi) -> None:
        server.call(lambda: server.store.remove(resource, name, namespace))

    return remove


@pytest.mark.in_memory
@pytest.mark.parametrize(
    ("before", "meanwhile", "missing"),
    [
        (3, ready_pods(3), ""),
        (3, ready_pods(2), "ReplicaSet default/web has 2 of 3 pods ready"),
        (3, ready_pods(0), "ReplicaSet default/web has 0 of 3 pods ready"),
        (1, ready_pods(1), ""),
        (1, ready_pods(0), "ReplicaSet default/web has 0 of 1 pods ready"),
        (0, ready_pods(0), ""),
        (3, ready_pods(2, desired=2), ""),
        (3, ready_pods(0, desired=0), ""),
        (3, gone(REPLICASETS, "web", "default"), ""),
        (3, readiness("n2", ready=False), "node n2 is no longer Ready"),
        (3, readiness("n3", ready=False), ""),
        (3, readiness("n4", ready=False), ""),
        (3, gone(NODES, "n2"), ""),
    ],
)
def test_only_what_was_well_before_is_waited_for(
    before: int,
    meanwhile: Meanwhile,
    missing: str,
    server: StandaloneApi,
    api: ClusterApi,
    recorder: Recorder,
) -> None:
    """n3 was not Ready before; n4 is one of those that failed, and expected to be away."""
    for name in ("n1", "n2", "n4"):
        add_node(server, name)
    add_node(server, "n3", ready=False)
    add_replicas(server, "web", desired=3, ready=before)
    measure = health_monitor(api, PassingClock(), recorder)
    health = measure.measure_together(["n1"])
    meanwhile(server)
    assert (
        measure.wait_until_settled(health, 1, GracefulStop(), lambda: frozenset({"n4"})) == missing
    )
    told = [event.waiting_for for event in recorder.events if isinstance(event, WaveSettling)]
    assert told == ([missing] if missing else [])
