"""The times of a rolling part: those of a dispatcher that walks all that wait whenever a node comes back."""

from collections.abc import Mapping
from heapq import heappop, heappush

from hypothesis import given, settings
from hypothesis import strategies as st

from rollout.model.plan import Rolling
from rollout.planning.rolling import candidates, may_begin, schedule, together

KEYS = ("shop/web", "shop/db", "replicaset/shop/api", "room:cpu", "place:1")


def walked(rules: Rolling, seconds: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """The plain way to the same times: all that wait are asked, in their order, each time that nodes come back."""
    order, waiting, begins = {name: place for place, name in enumerate(seconds)}, list(seconds), dict[str, int]()
    away: list[tuple[int, str]] = []
    now, step = 0, 1 + len(seconds) // 100
    while waiting:
        walk = candidates(rules, order, waiting, [name for _, name in away])
        node = next(walk, None)
        while node is not None:
            begins[node] = now
            heappush(away, (now + -(-seconds[node] // step) * step, node))
            try:
                node = walk.send(True)
            except StopIteration:
                node = None
        waiting = [name for name in waiting if name not in begins]
        now = away[0][0]
        while away and away[0][0] == now and waiting:
            heappop(away)
    return begins, max((end for end, _ in away), default=now)


@st.composite
def parts(draw: st.DrawFn) -> tuple[Rolling, dict[str, int]]:
    """Up to 250 nodes, of which many need something that only few may have."""
    names = [f"w-{number}" for number in range(draw(st.integers(1, 250)))]
    random = draw(st.randoms(use_true_random=False))
    often, most = draw(st.floats(0.02, 1)), draw(st.integers(1, 6))
    holds = {name: {key: random.randint(0, most) for key in KEYS if random.random() < often} for name in names}
    capacity = {key: random.randint(0, 10) for key in KEYS}
    rules = Rolling(draw(st.integers(1, 40)), capacity=capacity, holds=holds)
    lasting = draw(st.sampled_from(((1,), (30, 600), tuple(range(100)))))
    return rules, {name: random.choice(lasting) for name in names}


@settings(max_examples=150, deadline=None)
@given(parts())
def test_the_times_are_those_of_a_dispatcher_that_asks_all_that_wait(part: tuple[Rolling, dict[str, int]]) -> None:
    rules, seconds = part
    begins, whole = schedule(rules, seconds)
    expected, end = walked(rules, seconds)
    assert (list(begins.items()), whole) == (list(expected.items()), end)


@settings(max_examples=100, deadline=None)
@given(parts())
def test_those_that_go_together_may_begin_one_beside_another(
    part: tuple[Rolling, dict[str, int]],
) -> None:
    rules, names = part[0], list(part[1])
    going: list[str] = []
    for name in names:
        if may_begin(rules, going, name):
            going.append(name)
    assert together(rules, names) == going


def test_no_nodes_take_no_time() -> None:
    assert schedule(Rolling(1), {}) == ({}, 0)
