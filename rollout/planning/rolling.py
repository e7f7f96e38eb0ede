"""Rolling on: a part of the rollout as one wave whose nodes begin as soon as others are back.

Waves say which nodes may be away together by listing them; here any set may come about that holds no more of anything
than there is. What each node holds stands in the plan, so that whoever carries it out, from whatever machine, lets the
same sets be in flight.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush, nlargest
from itertools import groupby
from statistics import median

from rollout.model.plan import Rolling
from rollout.planning.sharing import Limits
from rollout.planning.waves import Placed

_ROOM = ("room:cpu", "room:memory", "room:pods")
# So many times as long as the median takes a slow node.
_SLOW = 2
Near = Callable[[str], Iterable[str]]
"""By node, those that its pods could go to."""
_NOTHING: Mapping[str, int] = {}


def may_begin(rules: Rolling, in_flight: Collection[str], node: str) -> bool:
    """Whether a node may be away beside those in flight. One that holds too much alone goes alone."""
    needs = rules.holds.get(node, _NOTHING)
    return len(in_flight) < rules.in_flight and not _is_barred(rules, _used(rules, in_flight), needs)


def together(rules: Rolling, names: Iterable[str]) -> list[str]:
    """As many of these nodes, in their order, as may be in flight at once."""
    used, going = Counter[str](), list[str]()
    for name in names:
        if len(going) >= rules.in_flight:
            break
        needs = rules.holds.get(name, _NOTHING)
        if not _is_barred(rules, used, needs):
            going.append(name)
            used.update(needs)
    return going


def candidates(
    rules: Rolling, order: Mapping[str, int], waiting: Sequence[str], in_flight: Collection[str]
) -> Generator[str, bool | None]:
    """Those of the waiting that may begin beside those in flight, in the plan's order; `order` has all by place.

    Send back whether it begins. A node that may not begin holds nobody up, until as many as may be in flight have
    passed it: then all that it needs is kept for it.
    """
    used, kept, passed = _used(rules, in_flight), set[str](), list[tuple[int, int]]()
    free, begun, before = rules.in_flight - len(in_flight), 0, len(order) - len(waiting)
    for place, node in enumerate(waiting):
        if begun >= free:
            return
        needs = rules.holds.get(node, _NOTHING)
        if not kept.isdisjoint(needs) or _is_barred(rules, used, needs):
            # Of those that have begun, these come before it: the others have passed it.
            earlier = order[node] - place + begun
            heappush(passed, (earlier + rules.in_flight, place))
        elif (yield node):
            begun += 1
            used.update(needs)
        while passed and passed[0][0] <= before + begun:
            kept.update(rules.holds.get(waiting[heappop(passed)[1]], _NOTHING))


def _used(rules: Rolling, in_flight: Collection[str]) -> Counter[str]:
    used: Counter[str] = Counter()
    for node in in_flight:
        used.update(rules.holds.get(node, _NOTHING))
    return used


def _is_barred(rules: Rolling, used: Mapping[str, int], needs: Mapping[str, int]) -> bool:
    """Whether there is too little left of anything that others have taken of."""
    return any(used[key] and used[key] + need > rules.capacity.get(key, 0) for key, need in needs.items())


def rolled(waves: Sequence[Placed], limits: Limits, near: Near) -> tuple[Placed, ...]:
    """The waves of each part of the rollout as one whose nodes follow one another, in the order of those waves."""
    parts = (list(part) for _, part in groupby(waves, key=lambda wave: wave.part))
    return tuple(_rolled(part, limits, near) for part in parts)


def _rolled(part: Sequence[Placed], limits: Limits, near: Near) -> Placed:
    first, pieces = part[0], tuple(piece for wave in part for piece in wave.pieces)
    # However the waves were packed: to begin early costs no time here, for permits go to the nodes that end first.
    holds, capacity = _company(part, near)
    for piece in pieces:
        room = zip(_ROOM, piece.weight, strict=False)
        holds[piece.name].update({**limits.use(piece.load, piece.holds), **{key: need for key, need in room if need}})
    capacity = {**limits.capacity, **dict(zip(_ROOM, limits.room, strict=False)), **capacity}
    scarce = _scarce(holds.values(), capacity, first.most)
    kept = {name: {key: taken[key] for key in taken.keys() & scarce} for name, taken in holds.items()}
    rules = Rolling(
        min(first.most, len(pieces)),
        capacity={key: capacity.get(key, 0) for key in sorted(scarce)},
        holds={name: dict(sorted(taken.items())) for name, taken in kept.items() if taken},
    )
    refused = {name: why for wave in part for name, why in wave.refused.items()}
    return replace(first, pieces=pieces, because=_because(first.part, rules), refused=refused, rolling=rules)


def _company(part: Sequence[Placed], near: Near) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
    """What keeps nodes whose pods would fit nowhere beside a wave apart from those of it that could take such pods."""
    holds: dict[str, dict[str, int]] = {piece.name: {} for wave in part for piece in wave.pieces}
    capacity: dict[str, int] = {}
    for number, wave in enumerate(part, start=1):
        places = set[str]().union(*map(near, wave.refused))
        beside = [name for name in wave.names if name in places]
        capacity[key := f"place:{number}"] = len(beside)
        for name in beside:
            holds[name][key] = 1
        for name in wave.refused:
            holds[name][key] = len(beside)
    return holds, capacity


def _scarce(holds: Iterable[Mapping[str, int]], capacity: Mapping[str, int], most: int) -> set[str]:
    """What so many nodes could take too much of."""
    needs: dict[str, list[int]] = defaultdict(list)
    for taken in holds:
        for key, need in taken.items():
            needs[key].append(need)
    return {
        key
        for key, amounts in needs.items()
        if len(amounts) > 1 and sum(nlargest(most, amounts)) > capacity.get(key, 0)
    }


def _because(part: str, rules: Rolling) -> str:
    how = f"the next begins as soon as one of {rules.in_flight} is back" if rules.in_flight > 1 else "one at a time"
    return f"{part}: {how}" if part and how not in part else part or how


def slow_first(seconds: Mapping[str, int]) -> Mapping[str, int]:
    """The same, those first that take much longer than most: begun last, one of them would run on alone."""
    if not seconds:
        return seconds
    much = _SLOW * median(seconds.values())
    return dict(sorted(seconds.items(), key=lambda item: -item[1] if item[1] >= much else 0))


# So many nodes are scheduled to the second, larger plans in longer steps.
_PRECISE = 100
_KEPT = -1


def schedule(
    rules: Rolling, seconds: Mapping[str, int], begun: Callable[[str, int], int] | None = None
) -> tuple[Mapping[str, int], int]:
    """When each node begins, and when the last is back, where each is away for so many seconds; in the plan's order.

    `begun` says of one that begins then how long it is away, where that shows only by then.
    """
    names, begins, away = list(seconds), dict[str, int](), list[tuple[int, int]]()
    turns = Turns(rules, names)
    now, step = 0, 1 + len(names) // _PRECISE
    while len(begins) < len(names):
        while len(away) < rules.in_flight and (place := turns.next_one()) is not None:
            name = names[place]
            begins[name] = now
            gone = begun(name, now) if begun else seconds[name]
            heappush(away, (now + -(-gone // step) * step, place))
        now = away[0][0]
        while away and away[0][0] == now and len(begins) < len(names):
            turns.end(heappop(away)[1])
    return begins, max((end for end, _ in away), default=now)


class Turns:
    """Whose turn it is, by place in the plan's order.

    `_queues` has those that wait, by what bars them: a key, and how much of it they need, or `_KEPT` where all of it is
    kept for one before them. `_agenda` has the heads of queues that may have become free. `_fresh` and all behind it
    have not been looked at yet.
    """

    def __init__(self, rules: Rolling, names: Sequence[str]) -> None:
        self._rules = rules
        self._needs = [rules.holds.get(name, _NOTHING) for name in names]
        self._used: Counter[str] = Counter()
        self._queues: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        self._agenda: list[tuple[int, str, int]] = []
        self._fresh = 0
        self._begun = _Begun(len(names))
        self._passing: list[tuple[int, int]] = []
        self._kept: dict[str, list[int]] = defaultdict(list)

    def next_one(self) -> int | None:
        """The first that may begin, which has begun with that; None while none may."""
        while (place := self._next_to_look_at()) is not None:
            barrier = self._barrier(place)
            if barrier is None:
                self._begin(place)
                return place
            self._wait(place, *barrier)
        return None

    def end(self, place: int) -> None:
        """What this one held is free again."""
        for key, freed in self._needs[place].items():
            self._used[key] -= freed
        for key in self._needs[place]:
            for need in self._queues.get(key, ()):
                self._wake(key, need)

    def _next_to_look_at(self) -> int | None:
        while self._agenda:
            place, key, need = heappop(self._agenda)
            queue = self._queues[key][need]
            if queue and queue[0] == place and not self._bars(key, need, place):
                heappop(queue)
                self._wake(key, need)
                return place
        if self._fresh == len(self._needs):
            return None
        place = self._fresh
        self._fresh += 1
        heappush(self._passing, (self._begun.before(place) + self._rules.in_flight, place))
        return place

    def _barrier(self, place: int) -> tuple[str, int] | None:
        """What keeps it from beginning: a key, and how much of it is needed."""
        used, capacity, kept = self._used, self._rules.capacity, self._kept
        for key, need in self._needs[place].items():
            if key in kept and self._bars(key, _KEPT, place):
                return key, _KEPT
            taken = used.get(key)
            if taken and taken + need > capacity.get(key, 0):
                return key, need
        return None

    def _bars(self, key: str, need: int, place: int) -> bool:
        if need != _KEPT:
            used = self._used[key]
            return used > 0 and used + need > self._rules.capacity.get(key, 0)
        kept = self._kept.get(key, [])
        while kept and self._begun.has(kept[0]):
            heappop(kept)
        return bool(kept) and kept[0] < place

    def _wait(self, place: int, key: str, need: int) -> None:
        heappush(self._queues[key][need], place)

    def _begin(self, place: int) -> None:
        self._begun.add(place)
        for key, need in self._needs[place].items():
            self._used[key] += need
            self._wake(key, _KEPT)
        self._keep_for_the_passed()

    def _wake(self, key: str, need: int) -> None:
        queue = self._queues[key][need] if key in self._queues else ()
        if queue:
            heappush(self._agenda, (queue[0], key, need))

    def _keep_for_the_passed(self) -> None:
        """Keep what those need that as many have passed by now as may be in flight."""
        while self._passing and self._passing[0][0] <= self._begun.total:
            _, place = heappop(self._passing)
            if self._begun.has(place):
                continue
            if (due := self._begun.before(place) + self._rules.in_flight) > self._begun.total:
                heappush(self._passing, (due, place))
                continue
            for key in self._needs[place]:
                heappush(self._kept[key], place)


class _Begun:
    """Which places have begun, counted by a binary indexed tree (Fenwick 1994)."""

    def __init__(self, size: int) -> None:
        self.total = 0
        self._has = bytearray(size)
        self._sums = [0] * (size + 1)

    def has(self, place: int) -> bool:
        return bool(self._has[place])

    def add(self, place: int) -> None:
        self.total += 1
        self._has[place] = 1
        place += 1
        while place < len(self._sums):
            self._sums[place] += 1
            place += place & -place

    def before(self, place: int) -> int:
        """How many of those before it."""
        count = 0
        while place:
            count += self._sums[place]
            place &= place - 1
        return count
