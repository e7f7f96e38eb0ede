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
from rollout.planning.packing import Limits
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
