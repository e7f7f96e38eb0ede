"""Nodes into waves, as few or as fast as their disruption budgets, the room and the wave's size allow.

The node that is most in the way of others comes first, and each goes into the first wave that takes it.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from rollout.model.text import natural_key
from rollout.planning.drain.budgets import Load
from rollout.planning.layout.sharing import Limits, Piece, Rates, is_room, sum_of

# How often a wave may use a budget up, in the layouts that are tried: more rounds make fewer waves of longer drains.
# With many nodes there is time for one layout.
_ROUNDS, _ROUNDS_OF_MANY, _MANY = (1, 2, 3, 5, 8, 13, 21, 34), (8,), 1000


def by_name(piece: Piece) -> tuple[tuple[int, int, str], ...]:
    """Sort key: names as people count them."""
    return natural_key(piece.name)


def by_price(piece: Piece) -> tuple[object, ...]:
    """Sort key: the fewest pods first, then the least CPU, then by name."""
    return piece.price, by_name(piece)


def used_by(pieces: Sequence[Piece], limits: Limits) -> Counter[str]:
    """What these nodes take together of budgets and owners."""
    return Counter(sum_of(limits.use(piece.load, piece.holds) for piece in pieces))


def joining(wave: Sequence[Piece], waiting: Sequence[Piece], limits: Limits) -> tuple[tuple[Piece, ...], list[Piece]]:
    """The wave with those of the waiting that may join it, one after another, and those that may not."""
    used, capacity = dict(used_by(wave, limits)), limits.capacity
    pieces, staying = list(wave), list[Piece]()
    for place, piece in enumerate(waiting):
        if len(pieces) >= limits.size:
            return tuple(pieces), [*staying, *waiting[place:]]
        uses = limits.use(piece.load, piece.holds)
        # as `Limits.admits` has it: a call for each budget of each node and wave costs more than all else
        if any(used.get(key) and used[key] + need > capacity.get(key, 0) for key, need in uses.items()):
            staying.append(piece)
            continue
        pieces.append(piece)
        for key, need in uses.items():
            used[key] = used.get(key, 0) + need
    return tuple(pieces), staying


def lower_bound(pieces: Sequence[Piece], limits: Limits) -> int:
    """A number of groups below which no packing can go: by size, and by each budget, or room, alone."""
    return max(math.ceil(len(pieces) / limits.size), budget_bound(_uses(pieces, limits), limits.capacity))


def _uses(pieces: Sequence[Piece], limits: Limits) -> list[Load]:
    return [limits.use(piece.load, piece.holds) for piece in pieces]


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
    waves, waiting = list[tuple[Piece, ...]](), _most_contended_first(pieces, limits)
    while waiting:
        wave, waiting = joining((), waiting, limits)
        waves.append(tuple(sorted(wave, key=by_price)))
    return _cheapest_first(waves)


def _most_contended_first(pieces: Sequence[Piece], limits: Limits) -> list[Piece]:
    """By how much they are in the way: the larger a node's share of a budget, and the more nodes share that budget."""
    capacity, ordered = limits.capacity, sorted(pieces, key=by_price)
    uses = _uses(ordered, limits)
    sharing = Counter(key for load in uses for key in load)
    contention = {
        piece.name: sum(
            sharing[key] * need / max(1, capacity.get(key, 0)) for key, need in load.items() if not is_room(key)
        )
        for piece, load in zip(ordered, uses, strict=True)
    }
    return sorted(ordered, key=lambda piece: -contention[piece.name])


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
