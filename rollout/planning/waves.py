"""Laying nodes out in waves: as few as the rules allow, each with its reason.

Two nodes may share a wave when their pods can leave under every disruption budget, with a replica left of every owner
that has no budget, and with room for them on the nodes that stay. A budget is a rate: what finds a place elsewhere
gives its permit back, so that one drain waits for another's, as long as neither takes too long, and as the whole is
faster than wave after wave. What finds no place keeps its permit until its node is back: of that, a wave takes only
as much as the budget allows at a time. With `--sharing exclusive` that goes for all pods. A node whose own pods exceed
a budget drains gradually, and shares its wave with no other node of that budget.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rollout.model.plan import Rolling
from rollout.model.policy import ControlPlaneOrder, Policy
from rollout.model.quantity import Duration
from rollout.planning.naming import natural_key
from rollout.planning.packing import Item, Limits, Load, Weight, budget_bound, lower_bound, pack
from rollout.planning.rates import Rates, SharedDrain
from rollout.planning.sharing import is_owner

# Up to so many nodes all numbers of rounds are tried up to the second figure.
_FEW, _EACH = 500, 10
# For more than so many nodes, one layout is all that there is time for: by the number of rounds that mostly is best.
_MANY, _ROUNDS_OF_MANY = 1000, 3
# How many waves at most are given up for others, and how many of the smallest are looked at for each of their nodes.
_MERGES = 16

# The part of the rollout whose pods have only nodes to go to that wait for their own turn.
_FEW_FIRST = "few nodes first"
_MOVING_AGAIN = "their pods move again"
_POOL = "pool:"
CANARY = "canary"
NO_ROOM = "with more nodes, their pods would not fit on the others"


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


@dataclass(frozen=True, slots=True)
class Placed:
    """One wave's nodes, why the wave is as it is, and which part of the rollout it belongs to: a clause, or empty.

    `why` is the reason without its part and its price; `most` is how many nodes its part takes at once, and `rounds`
    how often one after another they were packed to use a budget up; `refused` says of nodes of later waves why there
    was no place for their pods while this one's were away.
    `rolling` says how its nodes follow one another, None: side by side.
    """

    pieces: tuple[Piece, ...]
    because: str
    part: str = ""
    most: int = 1
    rounds: int = 1
    why: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)
    rolling: Rolling | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes' names."""
        return tuple(piece.name for piece in self.pieces)

    def own(self, limits: Limits) -> Limits:
        """The limits that this wave was laid out by."""
        return replace(limits.up_to(self.rounds), size=self.most)


@dataclass(frozen=True, slots=True)
class Layout:
    """All waves, and a number of waves below which no layout under the same rules can go."""

    waves: tuple[Placed, ...]
    lower_bound: int


def _by_name(piece: Piece) -> tuple[tuple[int, int, str], ...]:
    return natural_key(piece.name)


def _by_price(piece: Piece) -> tuple[object, ...]:
    return piece.price, _by_name(piece)


def _packed(pieces: Sequence[Piece], limits: Limits) -> list[tuple[Piece, ...]]:
    """Waves of the nodes with the fewest pods first, then the fuller ones, then by their first names.

    Whatever is evicted before any node is done goes to nodes that are still to be drained, and moves again.
    """
    ordered = sorted(pieces, key=_by_price)
    groups = pack(_items(ordered, limits), limits)
    waves = [tuple(ordered[index] for index in sorted(group)) for group in groups]
    return _cheapest_first(waves)


def _cheapest_first(waves: Iterable[tuple[Piece, ...]]) -> list[tuple[Piece, ...]]:
    return sorted(waves, key=lambda wave: (_price(wave), -len(wave), _by_name(wave[0])))


def _price(wave: Sequence[Piece]) -> tuple[int, int]:
    pods, cpu = (sum(piece.price[part] for piece in wave) for part in (0, 1))
    return pods, cpu


def _used(pieces: Sequence[Piece], limits: Limits) -> Counter[str]:
    used: Counter[str] = Counter()
    for piece in pieces:
        used.update(limits.use(piece.load, piece.holds))
    return used


def _filled(pieces: Sequence[Piece], limits: Limits) -> Weight:
    return tuple(
        sum(piece.weight[dimension] for piece in pieces if piece.weight) for dimension in range(len(limits.room))
    )


def obstacles(wave: Sequence[Piece], piece: Piece, limits: Limits) -> tuple[str, ...]:
    """Every reason that keeps this piece out of this wave, in sentences; none where it could join."""
    full = [_full(limits)] if len(wave) >= limits.size else []
    return (*_conflicts(wave, piece, limits), *full)


def _conflicts(wave: Sequence[Piece], piece: Piece, limits: Limits) -> tuple[str, ...]:
    """What of budgets, owners and room keeps them apart."""
    used, uses = _used(wave, limits), limits.use(piece.load, piece.holds)
    held = piece.holds.keys() | {key for other in wave for key in other.holds}
    reasons = [
        _in_words(key, limits, held=key in held)
        for key, need in sorted(uses.items())
        if not limits.admits(key, used[key], need)
    ]
    if piece.weight and not limits.has_room(_filled(wave, limits), piece.weight):
        reasons.append(NO_ROOM)
    return tuple(reasons)


def pool_key(pool: str) -> str:
    """What stands for a pool's own limit among budgets and owners, whose keys have a slash."""
    return f"{_POOL}{pool}"


def _in_words(key: str, limits: Limits, *, held: bool) -> str:
    allowed = limits.allowed.get(key, 0)
    if key.startswith(_POOL):
        return f"at most {allowed} at once of the pool {key.removeprefix(_POOL)}"
    if is_owner(key):
        return f"with more nodes, {key} would lose all its {allowed + 1} pods at once"
    if key not in limits.rounds:
        return f"with more nodes, {key} would lose more pods at once than its budget allows ({allowed})"
    if held:
        return f"with more nodes, {key} would lack more pods than its budget allows ({allowed}) until nodes are back"
    return f"with more nodes, drains would wait too long for {key}, which lets {_at_a_time(allowed)} go"


def _at_a_time(pods: int) -> str:
    return f"{'one pod' if pods == 1 else f'{pods} pods'} at a time"


class _Later:
    """The most that any node of the later waves needs; waves are taken in from the last to the first."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._needs: dict[str, int] = {}
        self._held: set[str] = set()
        self._weight: Weight = tuple(0 for _ in limits.room)

    def separation(self, wave: Sequence[Piece]) -> str:
        """Why a wave that has room does not take a node of a later one."""
        barring = (
            key
            for key, used in _used(wave, self._limits).items()
            if key in self._needs and not self._limits.admits(key, used, self._needs[key])
        )
        first = min(barring, default=None)
        if first is not None:
            return _in_words(first, self._limits, held=first in self._held or any(first in one.holds for one in wave))
        if any(self._weight) and not self._limits.has_room(_filled(wave, self._limits), self._weight):
            return NO_ROOM
        return "the remaining nodes"

    def add(self, wave: Sequence[Piece]) -> None:
        """Take in a wave that is later than those still to be asked for."""
        for piece in wave:
            self._held.update(piece.holds)
            for key, need in self._limits.use(piece.load, piece.holds).items():
                self._needs[key] = max(need, self._needs.get(key, 0))
            if piece.weight:
                self._weight = tuple(max(pair) for pair in zip(self._weight, piece.weight, strict=False))


def _gradual(wave: Sequence[Piece], limits: Limits) -> str:
    """What the budgets make of these drains: a clause, with its price where they wait for one another."""
    key, seconds = limits.rates.price(wave) if limits.rounds and len(wave) > 1 else ("", 0)
    if seconds > 0:
        return f"; shares {key}, {_at_a_time(limits.allowed.get(key, 0))}: +{Duration(seconds)}"
    needs = Counter[str]()
    for piece in wave:
        needs |= Counter(piece.load)
    tight = sorted(key for key, need in needs.items() if need > limits.allowed.get(key, 0) and not is_owner(key))
    if not tight:
        return ""
    allowed = limits.allowed.get(tight[0], 0)
    if not allowed:
        return f"; the budget {tight[0]} allows nothing now"
    return f"; drains gradually: the budget {tight[0]} allows {allowed} at a time"


def _explained(waves: Sequence[tuple[Piece, ...]], limits: Limits, part: str, rounds: int) -> list[Placed]:
    later, placed = _Later(limits), []
    for wave in reversed(waves):
        why = _full(limits) if len(wave) >= limits.size else later.separation(wave)
        placed.append(_placed(wave, why, Placed((), "", part, limits.size, rounds), limits))
        later.add(wave)
    return placed[::-1]


def _placed(wave: tuple[Piece, ...], why: str, like: Placed, limits: Limits) -> Placed:
    """A wave of the same part as another."""
    reason = ": ".join(word for word in (like.part, why) if word)
    return replace(like, pieces=wave, because=reason + _gradual(wave, limits), why=why, refused={})


def as_played(wave: Placed, pieces: Sequence[Piece], limits: Limits) -> Placed:
    """A wave with what its nodes really have to drain by then: pods that earlier waves moved there among it."""
    return replace(_placed(tuple(pieces), wave.why, wave, wave.own(limits)), refused=wave.refused)


def _full(limits: Limits) -> str:
    return f"full wave: at most {limits.size} at once"


def joined(wave: Placed, waiting: Sequence[Piece], limits: Limits) -> tuple[Placed, list[Piece]]:
    """A wave with those of the waiting that can go along under its limits, and those that cannot."""
    own, pieces = wave.own(limits), list(wave.pieces)
    remaining: list[Piece] = []
    for piece in waiting:
        (remaining if obstacles(pieces, piece, own) else pieces).append(piece)
    if len(pieces) == len(wave.pieces):
        return wave, remaining
    why = _full(own) if len(pieces) >= wave.most else "filled up with nodes postponed from earlier waves"
    return _placed(tuple(pieces), why, wave, own), remaining


def latecomers(last: Placed, waiting: Sequence[Piece], limits: Limits) -> tuple[Placed, list[Piece]]:
    """One more wave of a part, behind its last one, of nodes that could not go along before."""
    wave, remaining = joined(replace(last, pieces=(), refused={}), waiting, limits)
    why = "postponed: no room for their pods during earlier waves"
    return _placed(wave.pieces, why, last, last.own(limits)), remaining


def without(wave: Placed, refused: Mapping[str, str], limits: Limits) -> Placed:
    """A wave without the nodes whose pods would find no place, each with its reason."""
    staying = tuple(piece for piece in wave.pieces if piece.name not in refused)
    return replace(_placed(staying, NO_ROOM, wave, wave.own(limits)), refused=refused)


def _control_plane(pieces: Sequence[Piece], limits: Limits) -> list[Placed]:
    ordered = sorted(pieces, key=_by_name)
    part = "control plane, one at a time"
    return [_placed((piece,), "", Placed((), "", part), limits) for piece in ordered]


def excess(pieces: Sequence[Piece], limits: Limits) -> Mapping[str, str]:
    """Those of a wave that are too many for it by now, each with its reason: what they drain has changed."""
    refused: dict[str, str] = {}
    used: Counter[str] = Counter()
    held: set[str] = set()
    for piece in pieces:
        uses = limits.use(piece.load, piece.holds)
        held |= piece.holds.keys()
        barring = [key for key, need in uses.items() if not limits.admits(key, used[key], need)]
        if barring:
            refused[piece.name] = _in_words(min(barring), limits, held=min(barring) in held)
        else:
            used.update(uses)
    return refused


def _split_canary(pieces: Sequence[Piece], canary: int) -> tuple[list[Piece], list[Piece]]:
    ordered = sorted(pieces, key=_by_name)
    return ordered[:canary], ordered[canary:]


def _ramped(
    pieces: Sequence[Piece], limits: Limits, ramp: Sequence[int]
) -> Iterator[tuple[str, Sequence[Piece], Limits]]:
    """The pieces step by step: as many as each step of the ramp says, the rest in waves of its last."""
    remaining = sorted(pieces, key=lambda piece: (natural_key(piece.group), _by_price(piece)))
    for number, size in enumerate(ramp[:-1], start=1):
        yield f"step {number} of the ramp", remaining[:size], replace(limits, size=min(size, limits.size))
        remaining = remaining[size:]
    yield "", remaining, replace(limits, size=min(ramp[-1], limits.size)) if ramp else limits


def _workers(pieces: Sequence[Piece], limits: Limits, policy: Policy, ramp: Sequence[int]) -> tuple[list[Placed], int]:
    first, remaining = _split_canary(pieces, policy.canary)
    waves = [_placed((piece,), "one at a time", Placed((), "", CANARY), limits) for piece in first]
    bound = len(first)
    for part, selected, narrower in _ramped(remaining, limits, ramp):
        groups: dict[str, list[Piece]] = defaultdict(list)
        for piece in selected:
            groups[piece.group].append(piece)
        for group in sorted(groups, key=natural_key):
            zone = f"{policy.spread_by}={group or '(none)'}" if policy.spread_by else ""
            label = ", ".join(word for word in (part, zone) if word)
            packed, rounds = _fastest(groups[group], narrower)
            is_first = policy.prefer_no_schedule_taint and not waves
            if is_first:
                packed, rounds = _thin_first(packed, rounds, narrower)
            placed = _explained(packed, narrower.up_to(rounds), label, rounds)
            waves += _few_first(placed, narrower.up_to(rounds)) if is_first else placed
            bound += lower_bound(_items(groups[group], narrower), narrower)
    uses = [item.load for item in _items(pieces, limits)]
    return waves, max(bound, budget_bound(uses, limits.capacity))


def _fastest(pieces: Sequence[Piece], limits: Limits) -> tuple[list[tuple[Piece, ...]], int]:
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
        return cls(limits, wave, _used(wave, limits), _filled(wave, limits), drain)

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
        fillings = sorted(fuller, key=lambda filling: (-len(filling.pieces), _by_name(filling.pieces[0])))
    return [filling.pieces for filling in fillings]


def _thin_first(waves: Sequence[tuple[Piece, ...]], rounds: int, limits: Limits) -> tuple[list[tuple[Piece, ...]], int]:
    """As few nodes in the first wave as the others can take the rest of, in no more time: its pods move twice."""
    first, *others = [_Filling.of(wave, limits) for wave in _cheapest_first(waves)]
    for piece in sorted(first.pieces, key=_by_price, reverse=True)[: len(first.pieces) - 1]:
        staying = tuple(other for other in first.pieces if other is not piece)
        smaller = _Filling.of(staying, limits)
        fuller = _spread((piece,), sorted(others, key=lambda filling: -len(filling.pieces)))
        if fuller and _lasting((smaller, *fuller)) <= _lasting((first, *others)):
            first, others = smaller, fuller
    thinned = [first, *others]
    return _cheapest_first(filling.pieces for filling in thinned), max(rounds, *map(_rounds_of, thinned))


def _few_first(waves: list[Placed], limits: Limits) -> list[Placed]:
    """The first wave with the reason for its being small; one of two is a part, so that what rolls on waits for it."""
    first, *others = waves
    if not others or len(first.pieces) >= min(first.most, *(len(wave.pieces) for wave in others)):
        return waves
    part = ", ".join(word for word in (first.part, _FEW_FIRST) if word) if len(others) == 1 else first.part
    why = _MOVING_AGAIN if len(others) == 1 else f"{_FEW_FIRST}: {_MOVING_AGAIN}"
    return [_placed(first.pieces, why, replace(first, part=part), limits), *others]


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


def _items(pieces: Sequence[Piece], limits: Limits) -> list[Item]:
    return [Item(limits.use(piece.load, piece.holds), piece.weight) for piece in pieces]


def lay_out(pieces: Sequence[Piece], limits: Limits, policy: Policy, ramp: Sequence[int] = ()) -> Layout:
    """Waves over all pieces: the canary first, then group by group, the control plane last or first.

    `ramp` holds the sizes of the first waves, the last for all that follow.
    """
    control_plane = [piece for piece in pieces if piece.control_plane]
    waves, bound = _workers([piece for piece in pieces if not piece.control_plane], limits, policy, ramp)
    alone = _control_plane(control_plane, limits)
    ordered = alone + waves if policy.control_plane is ControlPlaneOrder.FIRST else waves + alone
    return Layout(tuple(ordered), bound + len(alone))
