"""Rolling on, by the real dispatcher in simulated time: who begins when, beside whom, and how long
it takes in all.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout.model.gates import GatePolicy
from rollout.model.plan import Rolling
from rollout.model.policy import Policy
from rollout.model.quantity import Duration
from rollout.planning.layout.rolling import slow_first
from rollout.planning.layout.sharing import NodeDemand
from rollout.planning.layout.waves import Batch
from tests.execution.simulated import World
from tests.planning.builders import may_begin

KEYS = ("shop/web", "shop/db", "replicaset/shop/api", "room:cpu")


def named(seconds: Iterable[float]) -> dict[str, float]:
    return {f"node-{number}": each for number, each in enumerate(seconds, start=1)}


def quick(**named_rules: int) -> Policy:
    """A cluster that is asked once whether it has settled."""
    return Policy(gates=GatePolicy(health_checks=1), **named_rules)  # type: ignore[arg-type]


MIXED = [30, 30, 30, 600] * 15


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 15])
def test_slow_hosts_and_quick_ones_side_by_side_take_no_longer_than_their_work_asks_for(
    limit: int,
) -> None:
    """In the order of a plan whose nodes remember their last runs: the slow ones first."""
    seconds = named(MIXED)
    part = Batch(
        tuple(NodeDemand(name, "", control_plane=False, load={}) for name in seconds),
        rolling=Rolling(limit),
    )
    order = slow_first(part, {name: int(each) for name, each in seconds.items()}).names
    world = World({name: seconds[name] for name in order}, policy=quick())
    world.run(Rolling(limit), limit=limit)
    ideal = max(sum(MIXED) / limit, *MIXED)
    assert world.begun.keys() == seconds.keys()
    assert world.most_in_flight == limit
    assert world.makespan / ideal <= 1.05


def test_the_next_begins_once_the_cluster_has_settled_from_one_and_not_before() -> None:
    world = World(named([10, 500, 10]), settling={"node-1": 40}, policy=quick())
    world.run(Rolling(2), limit=2)
    assert 50 <= world.begun["node-3"] <= 52
    assert world.begun["node-3"] < world.ended_at["node-2"]


def test_good_looks_have_to_follow_one_another_in_time() -> None:
    world = World(named([10, 10]), policy=Policy(gates=GatePolicy(health_checks=5)))
    world.run(Rolling(1), limit=1)
    assert 14 <= world.begun["node-2"] <= 16


def test_what_does_not_settle_in_its_time_ends_it_once_those_in_flight_have_finished() -> None:
    world = World(
        named([10, 500, 10]),
        settling={"node-1": 10_000},
        policy=quick(settle_timeout=Duration(60)),  # type: ignore[arg-type]
    )
    world.run(Rolling(2), limit=2)
    assert {result.node for result in world.ledger.finished} == {"node-1", "node-2"}
    (left,) = world.ledger.not_started
    assert left.node == "node-3"
    assert left.message == "after node-1 the cluster did not settle within 1m: node-1 settles"


Cases = tuple[dict[str, float], Rolling, dict[str, float]]


@st.composite
def cases(draw: st.DrawFn) -> Cases:
    seconds = named(draw(st.lists(st.integers(1, 600), min_size=1, max_size=14)))
    capacity = {key: draw(st.integers(0, 6)) for key in KEYS}
    loads = st.dictionaries(st.sampled_from(KEYS), st.integers(1, 4), max_size=3)
    holds = {name: load for name in seconds if (load := draw(loads))}
    settling = {name: float(draw(st.integers(0, 60))) for name in seconds}
    return seconds, Rolling(draw(st.integers(1, 5)), capacity=capacity, holds=holds), settling


class Watching:
    """What must hold whenever time passes: no set that is not allowed, and nobody waits who might
    begin.
    """

    def __init__(self, rules: Rolling, order: list[str]) -> None:
        self.rules = rules
        self.order = order

    def __call__(self, world: World) -> None:
        flying = world.nodes
        self.check_allowed(flying)
        settling = {
            name
            for name, at in world.ended_at.items()
            if world.clock.seconds < at + world.settling.get(name, 0) + 2
        }
        waiting = [name for name in self.order if name not in world.begun]
        idle = [name for name in waiting if may_begin(self.rules, flying | settling, name)]
        assert all(self.is_kept_for_another(name, waiting) for name in idle), (
            f"{idle} wait beside {flying | settling}"
        )

    def check_allowed(self, flying: frozenset[str]) -> None:
        assert len(flying) <= self.rules.in_flight
        used = Counter[str]()
        takers = Counter[str]()
        for name in flying:
            used.update(self.rules.holds.get(name, {}))
            takers.update(self.rules.holds.get(name, {}).keys())
        assert all(used[key] <= self.rules.capacity[key] or takers[key] == 1 for key in used), used

    def is_kept_for_another(self, name: str, waiting: list[str]) -> bool:
        """Whether one before it, passed by as many as may be in flight, needs something that it
        needs.
        """
        needs = self.rules.holds.get(name, {}).keys()
        before = waiting[: waiting.index(name)]
        return any(
            needs & self.rules.holds.get(other, {}).keys() and self.passed(other, waiting)
            for other in before
        )

    def passed(self, name: str, waiting: list[str]) -> bool:
        later = self.order[self.order.index(name) :]
        return sum(other not in waiting for other in later) >= self.rules.in_flight


@settings(max_examples=15, deadline=None)
@given(cases())
def test_whatever_is_held_no_set_is_too_much_nobody_idles_and_all_get_their_turn(
    case: Cases,
) -> None:
    seconds, rules, settling = case
    world = World(seconds, settling, policy=quick(), idle=Watching(rules, list(seconds)))
    world.run(rules, limit=rules.in_flight)
    assert {result.node for result in world.ledger.finished} == set(seconds)
    assert_none_is_passed_too_often(rules, list(seconds), world.begun)


def assert_none_is_passed_too_often(
    rules: Rolling, order: list[str], begun: Mapping[str, float]
) -> None:
    """Of those that need something it needs, no more pass a node than may be in flight."""
    for place, name in enumerate(order):
        needs = rules.holds.get(name, {}).keys()
        passing = [
            other
            for other in order[place + 1 :]
            if begun[other] < begun[name] and needs & rules.holds.get(other, {}).keys()
        ]
        assert len(passing) <= rules.in_flight, f"{passing} went before {name}"
