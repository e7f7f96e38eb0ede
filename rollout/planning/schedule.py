"""When each node of a part that rolls on is likely to begin: by the rule of `rolling.candidates`, for thousands.

To walk all that wait whenever a node comes back is most of the time that such a plan takes. So a node that may not
begin waits in a queue for what bars it, and is looked at again once there may be enough of that.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush

from rollout.model.plan import Rolling

# So many nodes are scheduled to the second, larger plans in longer steps.
_PRECISE = 100
_KEPT = -1
_NOTHING: Mapping[str, int] = {}


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
