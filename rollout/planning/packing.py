"""Nodes into as few groups as their disruption budgets and the group size allow.

With budgets that allow one disruption this is graph colouring, so the method is the one for that: always place the node
that has the fewest groups left to go to (DSATUR, Brélaz 1979), into the fullest group that takes it. Groups are opened
up to the lower bound at once, further ones only when a node fits nowhere.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rollout.model.names import natural_key
from rollout.planning.sharing import Limits, Load, Piece, Rates, Weight, sum_of

# How often a wave may use a budget up, in the layouts that are tried; and in those that there is time for with many
# nodes: more rounds make fewer waves of longer drains.
_ROUNDS, _ROUNDS_OF_MANY, _MANY = (1, 2, 3, 5, 8, 13, 21, 34), (3, 8), 1000
_NO_WEIGHT = (0, 0, 0)


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


def lower_bound(pieces: Sequence[Piece], limits: Limits) -> int:
    """A number of groups below which no packing can go: by size, by room, and by each budget alone."""
    by_budget = budget_bound(_uses(pieces, limits), limits.capacity)
    return max(math.ceil(len(pieces) / limits.size), _room_bound(pieces, limits.room), by_budget)


def _uses(pieces: Sequence[Piece], limits: Limits) -> list[Load]:
    return [limits.use(piece.load, piece.holds) for piece in pieces]


def _room_bound(pieces: Sequence[Piece], room: Weight) -> int:
    """Groups that the scarcest room demands; a node that exceeds it is alone with all that weigh anything."""
    bound = 0
    for dimension, most in enumerate(room):
        weights = [piece.weight[dimension] for piece in pieces]
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


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def pack(pieces: Sequence[Piece], limits: Limits) -> list[list[int]]:
    """Groups of indices into the pieces; equal inputs give equal groups."""
    return _Packing(pieces, limits).run()


class _Packing:
    """One packing under way. Sets of groups are integers, a bit for each: they are tested millions of times."""

    def __init__(self, pieces: Sequence[Piece], limits: Limits) -> None:
        self._loads = _uses(pieces, limits)
        self._heft = [piece.weight for piece in pieces]
        self._limits = limits
        self._capacity = limits.capacity
        self._groups: list[list[int]] = [[] for _ in range(lower_bound(pieces, limits))]
        self._by_size = {0: (1 << len(self._groups)) - 1}
        self._used: list[Counter[str]] = [Counter() for _ in self._groups]
        self._filled: list[Weight] = [_NO_WEIGHT[: len(limits.room)] for _ in self._groups]
        self._barred = [0] * len(pieces)
        self._waiting = set(range(len(pieces)))
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


def fastest(pieces: Sequence[Piece], limits: Limits) -> tuple[list[tuple[Piece, ...]], int]:
    """The waves that take least time of all, and how many rounds of a budget they were packed by.

    More rounds make fewer waves of longer drains: what that is worth, the rates say.
    """
    fewest, most = -(-len(pieces) // limits.size), _most_rounds(pieces, limits)
    best, chosen = list[tuple[Piece, ...]](), 0
    for rounds in _ROUNDS_OF_MANY if len(pieces) > _MANY and limits.rounds else _ROUNDS:
        packed = _packed(pieces, limits.up_to(rounds))
        for waves, used in ((packed, rounds), (_without_last(packed, limits.up_to(rounds + 1)), rounds + 1)):
            if not chosen or _cost(waves, limits.rates) < _cost(best, limits.rates):
                best, chosen = waves, used
        if len(packed) <= fewest or rounds >= most:
            break
    return best, chosen


def _without_last(waves: Sequence[tuple[Piece, ...]], limits: Limits) -> list[tuple[Piece, ...]]:
    """The waves without the smallest, where its nodes find places in others."""
    *fuller, smallest = sorted(waves, key=lambda wave: -len(wave)) or [()]
    waiting: Sequence[Piece] = smallest
    for place, wave in enumerate(fuller):
        fuller[place], waiting = joining(wave, waiting, limits)
    return list(waves) if waiting else _cheapest_first(fuller)


def _packed(pieces: Sequence[Piece], limits: Limits) -> list[tuple[Piece, ...]]:
    """Waves of the nodes with the fewest pods first, then the fuller ones, then by their first names.

    Whatever is evicted before any node is done goes to nodes that are still to be drained, and moves again.
    """
    ordered = sorted(pieces, key=by_price)
    groups = pack(ordered, limits)
    waves = [tuple(ordered[index] for index in sorted(group)) for group in groups]
    return _cheapest_first(waves)


def _cheapest_first(waves: Iterable[tuple[Piece, ...]]) -> list[tuple[Piece, ...]]:
    return sorted(waves, key=lambda wave: (_price(wave), -len(wave), by_name(wave[0])))


def _price(wave: Sequence[Piece]) -> tuple[int, int]:
    pods, cpu = (sum(piece.price[part] for piece in wave) for part in (0, 1))
    return pods, cpu


def _most_rounds(pieces: Sequence[Piece], limits: Limits) -> int:
    """How many rounds can make a difference: of budgets that several nodes share."""
    used = Counter(key for piece in pieces for key in piece.load)
    return max((limits.rounds.get(key, 1) for key, number in used.items() if number > 1), default=1)


def _cost(waves: Sequence[Sequence[Piece]], rates: Rates) -> tuple[int, int]:
    """Seconds; of equal ones waves of equal sizes are better: they send fewer pods to nodes that still wait."""
    return sum(rates.drain(wave) + rates.between for wave in waves), sum(len(wave) ** 2 for wave in waves)
