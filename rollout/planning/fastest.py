"""The waves that take least time of all: fewer of longer drains, or more of shorter ones."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rollout.planning.packing import Limits, Weight, pack
from rollout.planning.pieces import Piece, by_name, by_price, filled_by, items_of, used_by
from rollout.planning.rates import Rates, SharedDrain

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
