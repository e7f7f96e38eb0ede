"""Who may begin: the limit at each node's beginning, with nodes that others take away and give back meanwhile.

A wave's runner alone, whose nodes stay under way until they are ended. It asks who is unavailable before it lets
anybody begin, and the gates about each that it lets begin: so what it makes of an answer is known at its next
question, whatever the machine's load.
"""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from rollout.adapters.clock import SystemClock
from rollout.execution.base.stop import StopRequest
from rollout.execution.gates.policy_gates import OPEN, Hold
from rollout.execution.rollout.ledger import Ledger
from rollout.execution.rollout.waves import Allowance, WaveRunner
from rollout.model.plan import PlannedNode, Wave
from rollout.model.progress import NodeResult, Outcome, Phase
from rollout.planning.eligibility.away import AwayLimit

FOREIGN = ("u", "v", "w", "x", "y", "z")
# So often a stage's answer is given once all has come of it that should: something more may still come.
ONCE_MORE = 4
MOST_QUESTIONS = 2000


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout.execution.rollout.waves._LOOK_AGAIN", 0.02)


@dataclass(frozen=True)
class Stage:
    """Who is `away` for a while, and how many nodes have `begun` by its end; some that are under way end before it."""

    away: Iterable[str]
    begun: int
    ends: Sequence[str] = ()


@dataclass
class Played:
    """A wave, and the cluster as its runner meets it, stage by stage; `most` is how many had begun by each's end."""

    stages: Sequence[Stage]
    nodes: int
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    begun: list[str] = field(default_factory=list)
    most: list[int] = field(default_factory=lambda: [0])
    questions: int = 0
    once_more: int = 0
    pools: AwayLimit = field(default_factory=partial(AwayLimit, 0))

    def __post_init__(self) -> None:
        self.names = [f"node-{number}" for number in range(1, self.nodes + 1)]
        self.ends = {name: threading.Event() for name in self.names}

    def unavailable(self) -> frozenset[str]:
        self.questions += 1
        self.most[-1] = len(self.begun)
        if self.questions > MOST_QUESTIONS:
            self.end(self.names)
            raise AssertionError(f"{self.begun} have begun by {self.stages[len(self.most) - 1]}, and no more do")
        self.once_more += self.has_come()
        if self.once_more > ONCE_MORE and len(self.most) < len(self.stages):
            self.once_more = 0
            self.most.append(len(self.begun))
            self.end(self.stage.ends)
        return frozenset({*self.stage.away, *self.ledger.away})

    @property
    def stage(self) -> Stage:
        return self.stages[len(self.most) - 1]

    def has_come(self) -> bool:
        finished = {result.node for result in self.ledger.finished}
        return len(self.begun) >= self.stage.begun and finished >= set(self.stage.ends)

    def hold(self, node: PlannedNode) -> Hold:
        self.begun.append(node.name)
        if len(self.begun) == self.nodes:
            self.most[-1] = self.nodes
            self.end(self.names)
        return OPEN

    def end(self, names: Iterable[str]) -> None:
        for name in names:
            self.ends[name].set()

    def run_one(self, node: PlannedNode) -> NodeResult:
        assert self.ends[node.name].wait(100)
        outcome = self.outcomes.get(node.name, Outcome.SUCCEEDED)
        return NodeResult(node.name, outcome, Phase.DONE, 1.0, left_cordoned=outcome is Outcome.NOT_BACK)

    def run(self, *, limit: int, patience: float = 100) -> None:
        runner = WaveRunner(
            run_one=self.run_one,
            unavailable=self.unavailable,
            clock=SystemClock(),
            stop=StopRequest(),
            allowance=Allowance(failures=9, settle_timeout=patience),
            ledger=self.ledger,
            notice=lambda _message: None,
            hold=self.hold,
            limit=replace(self.pools, most=limit),
        )
        runner.run(Wave(1, tuple(PlannedNode(name, "", "", "", "", 0, 0) for name in self.names), ""))

    def assert_as_expected(self) -> None:
        assert self.most == [stage.begun for stage in self.stages]
        assert {result.node for result in self.ledger.finished} == set(self.names)


@pytest.mark.parametrize(("limit", "foreign"), [(1, 0), (3, 0), (3, 1), (3, 2), (6, 5)])
def test_as_many_begin_as_the_limit_has_room_for(limit: int, foreign: int) -> None:
    away = FOREIGN[:foreign]
    played = Played(
        [Stage(away, limit - foreign), Stage(away, 8, ends=[f"node-{number}" for number in range(1, 9)])], 8
    )
    played.run(limit=limit)
    played.assert_as_expected()


@pytest.mark.parametrize(("limit", "foreign"), [(1, 1), (3, 3), (3, 5)])
def test_none_begins_while_others_use_it_up_and_one_does_once_there_is_room_for_one(limit: int, foreign: int) -> None:
    played = Played([Stage(FOREIGN[:foreign], 0), Stage(FOREIGN[: limit - 1], 1), Stage((), 2, ends=["node-1"])], 2)
    played.run(limit=limit)
    played.assert_as_expected()


def test_those_that_go_away_while_nodes_are_under_way_count_at_the_next_beginning() -> None:
    stages = [Stage({"x"}, 2), Stage({"x", "y"}, 2, ends=["node-1"]), Stage({"y"}, 3), Stage((), 4)]
    played = Played(stages, 4)
    played.run(limit=3)
    played.assert_as_expected()


@pytest.mark.parametrize("left_before", [frozenset[str](), frozenset({"old"})])
def test_those_that_failed_and_stayed_cordoned_count_though_they_are_ready(left_before: frozenset[str]) -> None:
    limit = 1 + len(left_before)
    played = Played(
        [Stage((), 1), Stage((), 3, ends=["node-1"])],
        nodes=3,
        outcomes={"node-1": Outcome.NOT_BACK},
        ledger=Ledger(cordoned_before=left_before),
    )
    played.run(limit=limit, patience=0.5)
    assert [result.node for result in played.ledger.finished] == ["node-1"]
    names = ", ".join(sorted({*left_before, "node-1"}))
    assert [(entry.node, entry.message) for entry in played.ledger.not_started] == [
        (node, f"--max-unavailable {limit} is used up by {names}") for node in ("node-2", "node-3")
    ]


ONE_OF_DB = AwayLimit(0, {"db": 1}, {"node-1": "db", "node-2": "db", "u": "db", "node-3": "web"})


def test_a_pools_limit_is_used_up_by_its_own_nodes_and_holds_no_other_pools_up() -> None:
    pools = AwayLimit(0, {"db": 1}, {"node-1": "db", "node-2": "web", "u": "db"})
    played = Played([Stage({"u"}, 1), Stage({"v"}, 2)], 2, pools=pools)
    played.run(limit=4)
    assert played.begun == ["node-2", "node-1"]
    played.assert_as_expected()


def test_nodes_whose_pool_stays_full_are_given_up_with_who_fills_it() -> None:
    played = Played([Stage({"u"}, 1), Stage({"u"}, 1, ends=["node-3"])], 3, pools=ONE_OF_DB)
    played.run(limit=4, patience=0.5)
    assert [result.node for result in played.ledger.finished] == ["node-3"]
    why = "max-unavailable 1 of the pool db is used up by u"
    assert [(entry.node, entry.message) for entry in played.ledger.not_started] == [("node-1", why), ("node-2", why)]


@dataclass
class Ended:
    """A wave of which each node ends so as soon as it begins, one at a time."""

    outcome: Outcome = Outcome.SUCCEEDED
    stop: StopRequest = field(default_factory=StopRequest)
    is_stopped: bool = False
    begun: list[str] = field(default_factory=list)

    def run_one(self, node: PlannedNode) -> NodeResult:
        self.begun.append(node.name)
        if self.is_stopped:
            self.stop.request()
        return NodeResult(node.name, self.outcome, Phase.DONE, 1.0)

    def why_not(self, failures: int) -> set[str]:
        """Why those of three nodes did not begin that did not."""
        ledger = Ledger()
        runner = WaveRunner(
            run_one=self.run_one,
            unavailable=frozenset,
            clock=SystemClock(),
            stop=self.stop,
            allowance=Allowance(failures=failures, settle_timeout=1),
            ledger=ledger,
            notice=lambda _message: None,
            hold=lambda _node: OPEN,
            limit=AwayLimit(1),
        )
        names = [f"node-{number}" for number in range(1, 4)]
        runner.run(Wave(1, tuple(PlannedNode(name, "b", "u", "1", "2", 0, 0) for name in names), ""))
        assert [*self.begun, *(left.node for left in ledger.not_started)] == names
        return {left.message for left in ledger.not_started}


def test_none_begins_once_there_is_a_reason_to_stop() -> None:
    assert (fenced := Ended(Outcome.FENCED)).why_not(failures=9) == {"the Lease was lost"}
    assert (stopped := Ended(is_stopped=True)).why_not(failures=9) == {"stopped on request"}
    assert (failed := Ended(Outcome.DRAIN_FAILED)).why_not(failures=2) == {"2 failed, and --max-failures is 2"}
    assert [len(each.begun) for each in (fenced, stopped, failed)] == [1, 1, 2]
    assert Ended().why_not(failures=1) == set()


def test_one_under_way_that_is_away_is_not_counted_twice() -> None:
    played = Played([Stage({"x", "y"}, 1), Stage({"x", "node-1"}, 2), Stage({"node-1", "node-2"}, 3)], 3)
    played.run(limit=3)
    played.assert_as_expected()


@dataclass
class Hanging:
    """A wave of two nodes, one after the other; the first hangs, and its runner is told to end by this `error`."""

    error: BaseException
    notices: list[str] = field(default_factory=list)
    has_begun: threading.Event = field(default_factory=threading.Event)
    goes_on: threading.Event = field(default_factory=threading.Event)
    has_ended: bool = False

    def run_one(self, node: PlannedNode) -> NodeResult:
        self.has_begun.set()
        assert self.goes_on.wait(30)
        self.has_ended = True
        return NodeResult(node.name, Outcome.SUCCEEDED, Phase.DONE, 1.0)

    def unavailable(self) -> frozenset[str]:
        if self.has_begun.is_set():
            raise self.error
        return frozenset()

    def notice(self, message: str) -> None:
        self.notices.append(message)
        self.goes_on.set()

    def run(self) -> None:
        runner = WaveRunner(
            run_one=self.run_one,
            unavailable=self.unavailable,
            clock=SystemClock(),
            stop=StopRequest(),
            allowance=Allowance(failures=1, settle_timeout=1),
            ledger=Ledger(),
            notice=self.notice,
            hold=lambda _node: OPEN,
            limit=AwayLimit(1),
        )
        runner.run(Wave(1, tuple(PlannedNode(f"node-{number}", "b", "u", "1", "2", 0, 0) for number in (1, 2)), ""))


def test_an_interruption_does_not_wait_for_a_node_whose_host_hangs() -> None:
    hanging = Hanging(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        hanging.run()
    assert (hanging.has_ended, hanging.notices) == (False, [])
    hanging.goes_on.set()


def test_an_error_lets_the_nodes_in_flight_finish_and_says_so() -> None:
    hanging = Hanging(RuntimeError("can't start new thread"))
    with pytest.raises(RuntimeError):
        hanging.run()
    assert hanging.has_ended
    assert hanging.notices == ["internal error: no further node is started, those in flight are finished: node-1"]
