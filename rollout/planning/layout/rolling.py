"""Rolling on: a part of the rollout as one wave whose nodes begin as soon as others are back.

Waves say which nodes may be away together by listing them; here any set may come about that holds no more of anything
than there is. What each node holds stands in the plan, so that whoever carries it out, from whatever machine, lets the
same sets be in flight. That pods find places beside all of them is tried with the worst of each group of nodes that
certain pods are bound to: those that have the most to move.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import nlargest
from itertools import groupby
from statistics import median

from rollout.model.cluster import Pod
from rollout.model.plan import Rolling
from rollout.planning.drain.scheduler import Scheduler
from rollout.planning.layout.sharing import Limits
from rollout.planning.layout.waves import Batch

# So many times as long as the median takes a slow node.
_SLOW = 2
_NOTHING: Mapping[str, int] = {}


class RollingQueue:
    """The nodes of a part that wait and that are in flight, and which of the waiting may begin next.

    A node begins beside others where nothing that both hold runs short. One that may not holds nobody up, until as many
    as may be in flight have passed it: then all that it needs is kept for it. One that holds too much alone goes alone.

    A large rollout asks for each node that is back. So it knows by a bit of each key what is used up, and which of
    these keys each node needs: nearly all are told by that alone.
    """

    def __init__(
        self,
        rules: Rolling,
        order: Sequence[str],
        waiting: Collection[str] | None = None,
        in_flight: Iterable[str] = (),
    ) -> None:
        self._rules, self._number, self._in_flight = rules, len(order), 0
        self._bits = {key: 1 << place for place, key in enumerate(rules.capacity)}
        self._waiting = [
            (place, sum(self._bits[key] for key in self._needs(name)), name)
            for place, name in enumerate(order)
            if waiting is None or name in waiting
        ]
        self._used, self._used_up = Counter[str](), 0
        for name in in_flight:
            self._hold(name, 1)

    def candidates(self) -> Iterator[str]:
        """Those of the waiting of which the next may be taken, in the plan's order."""
        return (name for _, name in self._open())

    def begin(self) -> Iterator[str]:
        """Let all begin that may."""
        while (candidate := next(self._open(), None)) is not None:
            place, name = candidate
            del self._waiting[place]
            self._hold(name, 1)
            yield name

    def end(self, name: str) -> None:
        """Free the place of a node."""
        self._hold(name, -1)

    def _open(self) -> Iterator[tuple[int, str]]:
        """Yield the candidates, each with its place among those that wait."""
        if self._in_flight >= self._rules.in_flight:
            return
        # Of these a node may take nothing: what is used up, and what is kept for others.
        closed, begun = self._used_up, self._number - len(self._waiting)
        for passed, (place, mask, name) in enumerate(self._waiting):
            if not mask & closed and not self._is_barred(name):
                yield passed, name
            elif begun - (place - passed) >= self._rules.in_flight:  # of those begun, the others come before it
                closed |= mask

    def _needs(self, name: str) -> Mapping[str, int]:
        return self._rules.holds.get(name, _NOTHING)

    def _is_barred(self, name: str) -> bool:
        """Whether there is too little left of anything that others have taken of."""
        used, capacity = self._used, self._rules.capacity
        return any(used[key] and used[key] + need > capacity[key] for key, need in self._needs(name).items())

    def _hold(self, name: str, sign: int) -> None:
        self._in_flight += sign
        for key, need in self._needs(name).items():
            self._used[key] = used = self._used[key] + sign * need
            if 0 < used >= self._rules.capacity[key]:
                self._used_up |= self._bits[key]
            else:
                self._used_up &= ~self._bits[key]


def roll_parts(waves: Sequence[Batch], limits: Limits) -> tuple[Batch, ...]:
    """Return the waves of each part of the rollout as one, whose nodes follow one another in the same order."""
    parts = (list(part) for _, part in groupby(waves, key=lambda wave: wave.part))
    return tuple(_roll_part(part, limits) for part in parts)


def _roll_part(part: Sequence[Batch], limits: Limits) -> Batch:
    first, demands = part[0], tuple(demand for wave in part for demand in wave.demands)
    # However the waves were packed: to begin early costs no time here, for permits go to the nodes that end first.
    holds, capacity = {demand.name: limits.use(demand.load, demand.holds) for demand in demands}, limits.capacity
    scarce = _scarce(holds.values(), capacity, first.most)
    kept = {name: {key: taken[key] for key in taken.keys() & scarce} for name, taken in holds.items()}
    rules = Rolling(
        min(first.most, len(demands)),
        capacity={key: capacity.get(key, 0) for key in sorted(scarce)},
        holds={name: dict(sorted(taken.items())) for name, taken in kept.items() if taken},
    )
    refused = {name: why for wave in part for name, why in wave.refused.items()}
    return replace(first, demands=demands, refused=refused, rolling=rules)


def _scarce(holds: Iterable[Mapping[str, int]], capacity: Mapping[str, int], most: int) -> set[str]:
    """Return what so many nodes could take too much of."""
    needs: dict[str, list[int]] = defaultdict(list)
    for taken in holds:
        for key, need in taken.items():
            needs[key].append(need)
    return {
        key
        for key, amounts in needs.items()
        if len(amounts) > 1 and sum(nlargest(most, amounts)) > capacity.get(key, 0)
    }


def slow_first(part: Batch, seconds: Mapping[str, int]) -> Batch:
    """Return a part with those nodes first that take much longer than most: begun last, one would run on alone."""
    if part.rolling is None:
        return part
    much = _SLOW * median(seconds.values())
    ordered = sorted(part.demands, key=lambda demand: -seconds[demand.name] if seconds[demand.name] >= much else 0)
    return replace(part, demands=tuple(ordered))


Leaving = Mapping[str, Sequence[Pod]]


def without_crowding(wave: Batch, leaving: Leaving, scheduler: Scheduler) -> Batch:
    """Return the wave with rules under which its pods find places; the `scheduler` is as before the rollout."""
    if wave.rolling is None or wave.rolling.in_flight == 1:
        return wave
    rules = wave.rolling
    for number, members in enumerate(_bound_together(wave, leaving, scheduler), start=1):
        rules = _kept_apart(rules, f"place:pods-{number}", members, leaving, scheduler)
    return replace(wave, rolling=rules)


def _bound_together(wave: Batch, leaving: Leaving, scheduler: Scheduler) -> list[list[str]]:
    """Return the nodes of the wave that pods with the same demands leave, or can go to."""
    order = {name: place for place, name in enumerate(wave.names)}
    matching = (scheduler.nodes_for(pod) for name in order for pod in leaving.get(name, ()))
    groups = (order.keys() & nodes for nodes in {id(nodes): nodes for nodes in matching}.values())
    return [sorted(members, key=order.__getitem__) for members in groups if len(members) > 1]


def _kept_apart(rules: Rolling, key: str, members: Sequence[str], leaving: Leaving, scheduler: Scheduler) -> Rolling:
    """Return the rules with as few of these nodes in flight as have places for all that would find one alone.

    It is tried with as many as may be in flight together, those with the most to move first.
    """

    def much(name: str) -> tuple[int, int]:
        pods = leaving.get(name, ())
        return sum(pod.requests.cpu_milli for pod in pods), sum(pod.requests.memory for pod in pods)

    def is_crowded(size: int) -> bool:
        together = {name: leaving.get(name, ()) for name in worst[:size]}
        staying = _staying(together, scheduler)
        return staying > 0 and staying > sum(_staying({name: pods}, scheduler) for name, pods in together.items())

    worst = list(RollingQueue(rules, sorted(members, key=much, reverse=True)).begin())
    most = bisect_left(range(2, len(worst) + 1), 1, key=is_crowded) + 1
    if most >= len(worst):
        return rules
    holds = {**rules.holds, **{name: {**rules.holds.get(name, {}), key: 1} for name in members}}
    return replace(rules, capacity={**rules.capacity, key: most}, holds=holds)


def _staying(leaving: Leaving, scheduler: Scheduler) -> int:
    with scheduler.emptied(leaving) as staying:
        return sum(map(len, staying.values()))
