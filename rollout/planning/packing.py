"""Nodes into as few groups as their disruption budgets and the group size allow.

With budgets that allow one disruption this is graph colouring, so the method is the one for that: always place the node
that has the fewest groups left to go to (DSATUR, Brélaz 1979), into the fullest group that takes it. Groups are opened
up to the lower bound at once, further ones only when a node fits nowhere.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rollout.model.names import natural_key
from rollout.planning.sharing import Limits, Load, Rates, SharedDrain, Weight, sum_of

# Starts of the search for a clique: more find hardly a larger one.
_CLIQUE_STARTS = 8
_MANY = 1000
_NO_WEIGHT = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Item:
    """A node to be packed."""

    load: Load
    weight: Weight = ()


def _first_groups(items: Sequence[Item], limits: Limits) -> int:
    """How many groups to open at once: by rate, conflicts of two nodes are rare, and looking for them costs much."""
    if limits.rounds and len(items) > _MANY:
        loads = [item.load for item in items]
        by_size = math.ceil(len(items) / limits.size)
        return max(by_size, _room_bound(items, limits.room), budget_bound(loads, limits.capacity))
    return lower_bound(items, limits)


def lower_bound(items: Sequence[Item], limits: Limits) -> int:
    """A number of groups below which no packing can go: by size, by room, by each budget alone, and by conflicts."""
    loads = [item.load for item in items]
    return max(
        math.ceil(len(items) / limits.size),
        _room_bound(items, limits.room),
        budget_bound(loads, limits.capacity),
        clique_bound(loads, limits.capacity),
    )


def _room_bound(items: Sequence[Item], room: Weight) -> int:
    """Groups that the scarcest room demands; a node that exceeds it is alone with all that weigh anything."""
    bound = 0
    for dimension, most in enumerate(room):
        weights = [item.weight[dimension] for item in items]
        alone = sum(1 for weight in weights if weight > most)
        together = sum(weight for weight in weights if weight <= most)
        bound = max(bound, alone + (math.ceil(together / most) if most > 0 else 0))
    return bound


def budget_bound(loads: Iterable[Load], allowed: Mapping[str, int]) -> int:
    """Groups that the tightest budget demands: one for each node that uses it up alone, the rest by their sum."""
    needs: dict[str, list[int]] = defaultdict(list)
    for load in loads:
        for budget, need in load.items():
            needs[budget].append(need)
    return max((_groups_for(amounts, allowed.get(budget, 0)) for budget, amounts in needs.items()), default=0)


def _groups_for(amounts: Sequence[int], allowed: int) -> int:
    alone = sum(1 for amount in amounts if amount >= max(1, allowed))
    together = sum(amount for amount in amounts if amount < allowed)
    return alone + (math.ceil(together / allowed) if together else 0)


def clique_bound(loads: Sequence[Load], allowed: Mapping[str, int]) -> int:
    """The size of a set of nodes of which no two may be in one group, found greedily from the most contended nodes."""
    conflicts = _conflicts(loads, allowed)
    starts = sorted(range(len(loads)), key=lambda index: (-conflicts[index].bit_count(), index))[:_CLIQUE_STARTS]
    return max((_clique_from(start, conflicts) for start in starts), default=0)


def _conflicts(loads: Sequence[Load], allowed: Mapping[str, int]) -> list[int]:
    """By node, the nodes that it may share no group with, as bits of an integer."""
    needs: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for index, load in enumerate(loads):
        for budget, need in load.items():
            needs[budget].append((need, index))
    conflicts = [0] * len(loads)
    for budget, amounts in needs.items():
        _add_conflicts(conflicts, sorted(amounts, reverse=True), allowed.get(budget, 0))
    return conflicts


def _add_conflicts(conflicts: list[int], amounts: Sequence[tuple[int, int]], allowed: int) -> None:
    """`amounts` are (need, node), largest first: a node conflicts with those that need more than it leaves."""
    reaching, mask = 0, 0
    for need, index in reversed(amounts):
        while reaching < len(amounts) and need + amounts[reaching][0] > allowed:
            mask |= 1 << amounts[reaching][1]
            reaching += 1
        conflicts[index] |= mask & ~(1 << index)


def _clique_from(start: int, conflicts: Sequence[int]) -> int:
    size, candidates = 1, conflicts[start]
    while candidates:
        following = max(_bits(candidates), key=lambda index: ((conflicts[index] & candidates).bit_count(), -index))
        candidates &= conflicts[following]
        size += 1
    return size


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def pack(items: Sequence[Item], limits: Limits) -> list[list[int]]:
    """Groups of indices into `items`; equal inputs give equal groups."""
    return _Packing(items, limits).run()


class _Packing:
    """One packing under way. Sets of groups are integers, a bit for each: they are tested millions of times."""

    def __init__(self, items: Sequence[Item], limits: Limits) -> None:
        self._loads = [item.load for item in items]
        self._heft = [item.weight for item in items]
        self._limits = limits
        self._capacity = limits.capacity
        self._groups: list[list[int]] = [[] for _ in range(_first_groups(items, limits))]
        self._by_size = {0: (1 << len(self._groups)) - 1}
        self._used: list[Counter[str]] = [Counter() for _ in self._groups]
        self._filled: list[Weight] = [_NO_WEIGHT[: len(limits.room)] for _ in self._groups]
        self._barred = [0] * len(items)
        self._waiting = set(range(len(items)))
        self._sharing: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for index, load in enumerate(self._loads):
            for budget, need in load.items():
                self._sharing[budget].append((need, index))
        for sharing in self._sharing.values():
            sharing.sort(reverse=True)
        self._urgency = self._ranks()

    def run(self) -> list[list[int]]:
        while self._waiting:
            index = max(self._waiting, key=self._urgency.__getitem__)
            self._waiting.discard(index)
            self._place(index, self._choose(index))
        return [sorted(group) for group in self._groups if group]

    def _ranks(self) -> list[int]:
        """By node, how soon it must be placed, as one number: barred groups count for more than any rank."""
        weights = [self._weigh(load) for load in self._loads]
        ranks = [0] * len(weights)
        for rank, index in enumerate(sorted(range(len(weights)), key=lambda item: (weights[item], -item))):
            ranks[index] = rank
        return ranks

    def _weigh(self, load: Load) -> float:
        """How much a node is in the way of others: the larger its share of a budget, and the more share that budget."""
        allowed = self._capacity
        return sum(len(self._sharing[budget]) * need / max(1, allowed.get(budget, 0)) for budget, need in load.items())

    def _choose(self, index: int) -> int:
        """The fullest group that takes the node; a new one where none does."""
        barred, heft = self._barred[index], self._heft[index]
        for size in sorted(self._by_size, reverse=True):
            for number in _bits(self._by_size[size] & ~barred):
                if not heft or self._limits.has_room(self._filled[number], heft):
                    return number
        self._by_size[0] = self._by_size.get(0, 0) | 1 << len(self._groups)
        self._groups.append([])
        self._used.append(Counter())
        self._filled.append(_NO_WEIGHT[: len(self._limits.room)])
        return len(self._groups) - 1

    def _place(self, index: int, number: int) -> None:
        self._fill(number, index)
        self._filled[number] = tuple(
            filled + more for filled, more in zip(self._filled[number], self._heft[index], strict=False)
        )
        used, bit = self._used[number], 1 << number
        for budget, need in self._loads[index].items():
            used[budget] += need
            if used[budget]:
                self._bar(self._sharing[budget], self._capacity.get(budget, 0) - used[budget], bit)

    def _bar(self, sharing: Sequence[tuple[int, int]], left: int, bit: int) -> None:
        """Bar those from a group that need more of a budget than is left there; the first need most."""
        for need, index in sharing:
            if need <= left:
                break
            if index in self._waiting and not self._barred[index] & bit:
                self._barred[index] |= bit
                self._urgency[index] += len(self._urgency)

    def _fill(self, number: int, index: int) -> None:
        """Put the node into the group; full ones are looked at no more."""
        group, bit = self._groups[number], 1 << number
        self._by_size[len(group)] &= ~bit
        if not self._by_size[len(group)]:
            del self._by_size[len(group)]
        group.append(index)
        if len(group) < self._limits.size:
            self._by_size[len(group)] = self._by_size.get(len(group), 0) | bit


@dataclass(frozen=True, slots=True)
class Piece:
    """A node to place. `group` is its value of the `--spread-by` label; `load` what its drain takes of budgets.

    `holds` is the part of the load that comes back only with the node: pods without a place while it is away. `pods` is
    how many leave, `ending` the seconds that the slowest of them takes to end. `price` is how many pods its drain
    moves, and the CPU that these request (thousandths). A `pool` with a limit of its own is like a budget of which each
    of its nodes takes one: see `pool_key`.
    """

    name: str
    group: str
    control_plane: bool
    load: Load
    weight: Weight = ()
    holds: Load = field(default_factory=dict)
    pods: int = 0
    ending: int = 0
    price: tuple[int, int] = (0, 0)
    pool: str = ""


def by_name(piece: Piece) -> tuple[tuple[int, int, str], ...]:
    """Sort key: names as people count them."""
    return natural_key(piece.name)


def by_price(piece: Piece) -> tuple[object, ...]:
    """Sort key: the fewest pods first, then the least CPU, then by name."""
    return piece.price, by_name(piece)


def used_by(pieces: Sequence[Piece], limits: Limits) -> Counter[str]:
    """What these nodes take together of budgets and owners."""
    return Counter(sum_of(limits.use(piece.load, piece.holds) for piece in pieces))


def filled_by(pieces: Sequence[Piece], limits: Limits) -> Weight:
    """The room that their pods need elsewhere, by dimension."""
    return tuple(
        sum(piece.weight[dimension] for piece in pieces if piece.weight) for dimension in range(len(limits.room))
    )


def joining(wave: Sequence[Piece], waiting: Sequence[Piece], limits: Limits) -> tuple[tuple[Piece, ...], list[Piece]]:
    """The wave with those of the waiting that may join it, one after another, and those that may not."""
    used, weight = used_by(wave, limits), filled_by(wave, limits)
    pieces, staying = list(wave), list[Piece]()
    for piece in waiting:
        uses = limits.use(piece.load, piece.holds)
        if (
            len(pieces) < limits.size
            and all(limits.admits(key, used[key], need) for key, need in uses.items())
            and (not piece.weight or limits.has_room(weight, piece.weight))
        ):
            pieces.append(piece)
            used.update(uses)
            weight = tuple(map(sum, zip(weight, piece.weight, strict=False))) if piece.weight else weight
        else:
            staying.append(piece)
    return tuple(pieces), staying


def items_of(pieces: Sequence[Piece], limits: Limits) -> list[Item]:
    """The nodes as what is packed."""
    return [Item(limits.use(piece.load, piece.holds), piece.weight) for piece in pieces]


# Up to so many nodes all numbers of rounds are tried up to the second figure.
_FEW, _EACH = 500, 10
# For more than so many nodes, one layout is all that there is time for: by the number of rounds that mostly is best.
_MANY, _ROUNDS_OF_MANY = 1000, 3
# How many waves at most are given up for others, and how many of the smallest are looked at for each of their nodes.
_MERGES = 16


def fastest(pieces: Sequence[Piece], limits: Limits) -> tuple[list[tuple[Piece, ...]], int]:
    """The waves that take least time of all, and how many rounds of a budget they were packed by.

    More rounds make fewer waves of longer drains: what that is worth, the rates say.
    """
    if len(pieces) > _MANY and limits.rounds:
        return _merged(_packed(pieces, limits.up_to(_ROUNDS_OF_MANY)), limits), _ROUNDS_OF_MANY
    fewest, chosen = -(-len(pieces) // limits.size), 1
    best = _packed(pieces, limits.up_to(1))
    for rounds in _steps(pieces, limits):
        if len(best) <= fewest:
            break
        waves = _merged(_packed(pieces, limits.up_to(rounds)), limits)
        if _cost(waves, limits.rates) < _cost(best, limits.rates):
            best, chosen = waves, rounds
        if len(waves) <= fewest:
            break
    return best, chosen


def _packed(pieces: Sequence[Piece], limits: Limits) -> list[tuple[Piece, ...]]:
    """Waves of the nodes with the fewest pods first, then the fuller ones, then by their first names.

    Whatever is evicted before any node is done goes to nodes that are still to be drained, and moves again.
    """
    ordered = sorted(pieces, key=by_price)
    groups = pack(items_of(ordered, limits), limits)
    waves = [tuple(ordered[index] for index in sorted(group)) for group in groups]
    return _cheapest_first(waves)


def _cheapest_first(waves: Iterable[tuple[Piece, ...]]) -> list[tuple[Piece, ...]]:
    return sorted(waves, key=lambda wave: (_price(wave), -len(wave), by_name(wave[0])))


def _price(wave: Sequence[Piece]) -> tuple[int, int]:
    pods, cpu = (sum(piece.price[part] for piece in wave) for part in (0, 1))
    return pods, cpu


@dataclass(slots=True)
class _Filling:
    """A wave as it is filled up, with what it uses of the limits."""

    limits: Limits
    pieces: tuple[Piece, ...]
    used: Counter[str]
    weight: Weight
    drain: SharedDrain

    @classmethod
    def of(cls, wave: tuple[Piece, ...], limits: Limits) -> "_Filling":
        drain = SharedDrain(limits.rates)
        for piece in wave:
            drain.add(piece)
        return cls(limits, wave, used_by(wave, limits), filled_by(wave, limits), drain)

    def takes(self, piece: Piece) -> bool:
        uses = self.limits.use(piece.load, piece.holds)
        return (
            len(self.pieces) < self.limits.size
            and all(self.limits.admits(key, self.used[key], need) for key, need in uses.items())
            and (not piece.weight or self.limits.has_room(self.weight, piece.weight))
        )

    def joined_by(self, piece: Piece) -> "_Filling":
        used, drain = self.used.copy(), self.drain.copy()
        used.update(self.limits.use(piece.load, piece.holds))
        drain.add(piece)
        weight = tuple(map(sum, zip(self.weight, piece.weight, strict=True))) if piece.weight else self.weight
        return _Filling(self.limits, (*self.pieces, piece), used, weight, drain)


def _merged(waves: Sequence[tuple[Piece, ...]], limits: Limits) -> list[tuple[Piece, ...]]:
    """The waves without the smallest, as long as its nodes find places in others and the whole is faster for it."""
    fillings = [_Filling.of(wave, limits) for wave in waves]
    for _ in range(min(_MERGES, len(waves) - 1)):
        *others, smallest = fillings
        saved = smallest.drain.seconds + limits.rates.between
        fuller = _spread(smallest.pieces, others)
        if fuller is None or _lasting(fuller) - _lasting(others) >= saved:
            break
        fillings = sorted(fuller, key=lambda filling: (-len(filling.pieces), by_name(filling.pieces[0])))
    return [filling.pieces for filling in fillings]


def thin_first(waves: Sequence[tuple[Piece, ...]], rounds: int, limits: Limits) -> tuple[list[tuple[Piece, ...]], int]:
    """As few nodes in the first wave as the others can take the rest of, in no more time: its pods move twice."""
    first, *others = [_Filling.of(wave, limits) for wave in _cheapest_first(waves)]
    for piece in sorted(first.pieces, key=by_price, reverse=True)[: len(first.pieces) - 1]:
        staying = tuple(other for other in first.pieces if other is not piece)
        smaller = _Filling.of(staying, limits)
        fuller = _spread((piece,), sorted(others, key=lambda filling: -len(filling.pieces)))
        if fuller and _lasting((smaller, *fuller)) <= _lasting((first, *others)):
            first, others = smaller, fuller
    thinned = [first, *others]
    return _cheapest_first(filling.pieces for filling in thinned), max(rounds, *map(_rounds_of, thinned))


def _rounds_of(filling: _Filling) -> int:
    """How often one after another its nodes use a budget up."""
    limits = filling.limits
    used = ((filling.used[key], limits.allowed.get(key, 0), most) for key, most in limits.rounds.items())
    return max((min(most, -(-needed // allowed)) for needed, allowed, most in used if allowed), default=1)


def _lasting(fillings: Iterable[_Filling]) -> int:
    return sum(filling.drain.seconds for filling in fillings)


def _spread(pieces: Sequence[Piece], waves: Sequence[_Filling]) -> list[_Filling] | None:
    """The waves with these nodes in them, each where it makes the drains longest by least; None where one fits none."""
    fuller = list(waves)
    for piece in pieces:
        smaller = [index for index, wave in enumerate(fuller) if len(wave.pieces) < wave.limits.size][-_MERGES:]
        longer = [
            (fuller[index].drain.seconds_with(piece) - fuller[index].drain.seconds, index)
            for index in smaller
            if fuller[index].takes(piece)
        ]
        if not longer:
            return None
        _, index = min(longer)
        fuller[index] = fuller[index].joined_by(piece)
    return fuller


def _steps(pieces: Sequence[Piece], limits: Limits) -> Iterator[int]:
    """Numbers of rounds to try beyond one: each for few nodes, ever fewer of them for many."""
    used = Counter(key for piece in pieces for key in piece.load)
    most = max((limits.rounds.get(key, 1) for key, number in used.items() if number > 1), default=1)
    rounds = 2
    while rounds <= min(most, len(pieces)):
        yield rounds
        rounds += 1 if len(pieces) <= _FEW and rounds < _EACH else (rounds + 1) // 2


def _seconds(waves: Sequence[Sequence[Piece]], rates: Rates) -> int:
    return sum(rates.drain(wave) + rates.between for wave in waves)


def _cost(waves: Sequence[Sequence[Piece]], rates: Rates) -> tuple[int, int]:
    """Seconds; of equal ones waves of equal sizes are better: they send fewer pods to nodes that still wait."""
    return _seconds(waves, rates), sum(len(wave) ** 2 for wave in waves)
