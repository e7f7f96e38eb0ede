"""Laying nodes out in waves: as few as the rules allow, each with its reason.

Two nodes may share a wave when their pods can leave under every disruption budget, with a replica left of every owner
that has no budget, and with room for them on the nodes that stay. A budget is a rate: what finds a place elsewhere
gives its permit back, so that one drain waits for another's, as long as neither takes too long, and as the whole is
faster than wave after wave. What finds no place keeps its permit until its node is back: of that, a wave takes only
as much as the budget allows at a time. With `waves.sharing` exclusive that goes for all pods. A node whose own pods
exceed a budget drains gradually, and shares its wave with no other node of that budget.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from rollout.model.plan import Rolling
from rollout.model.policy import ControlPlaneOrder, Policy
from rollout.model.quantity import Duration
from rollout.model.text import natural_key
from rollout.planning.layout.packing import (
    budget_bound,
    by_name,
    by_price,
    fastest,
    joining,
    lower_bound,
    used_by,
)
from rollout.planning.layout.sharing import Limits, Piece, is_owner, is_room

_POOL = "pool:"
CANARY = "canary"


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason as a sentence, and as a note of a few words where nobody would expect it."""

    sentence: str
    note: str = ""


ALONE = Reason("one at a time")
NO_ROOM = Reason("with more nodes, their pods would not fit on the others", "no room for the pods of more nodes")
_NOTHING = Reason("")


@dataclass(frozen=True, slots=True)
class Placed:
    """One wave's nodes, why the wave is as it is, and which part of the rollout it belongs to: a clause, or empty.

    `price` is what budgets make of its drains; `most` is how many nodes its part takes at once, and `rounds` how often
    one after another they were packed to use a budget up; `refused` says of nodes of later waves why there was no place
    for their pods while this one's were away. `rolling` says how its nodes follow one another, None: side by side.
    """

    pieces: tuple[Piece, ...]
    part: str = ""
    why: Reason = _NOTHING
    price: Reason = _NOTHING
    most: int = 1
    rounds: int = 1
    refused: Mapping[str, str] = field(default_factory=dict)
    rolling: Rolling | None = None

    @property
    def because(self) -> str:
        """Part, reason and price in a sentence."""
        return self._told(self.why.sentence, self.price.sentence)

    @property
    def note(self) -> str:
        """Of these what nobody would expect."""
        return self._told(self.why.note, self.price.note)

    def _told(self, why: str, price: str) -> str:
        return "; ".join(filter(None, (": ".join(filter(None, (self.part, why))), price)))

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


def obstacles(wave: Sequence[Piece], piece: Piece, limits: Limits) -> tuple[str, ...]:
    """Every reason that keeps this piece out of this wave, in sentences; none where it could join."""
    full = [_full(limits)] if len(wave) >= limits.size else []
    return tuple(reason.sentence for reason in (*_conflicts(wave, piece, limits), *full))


def _conflicts(wave: Sequence[Piece], piece: Piece, limits: Limits) -> tuple[Reason, ...]:
    """What of budgets, owners and room keeps them apart."""
    used, uses = used_by(wave, limits), limits.use(piece.load, piece.holds)
    held = piece.holds.keys() | {key for other in wave for key in other.holds}
    barring = (key for key, need in uses.items() if not limits.admits(key, used[key], need))
    ordered = sorted(barring, key=lambda key: (is_room(key), key))
    return tuple(dict.fromkeys(_in_words(key, limits, held=key in held) for key in ordered))


def pool_key(pool: str) -> str:
    """What stands for a pool's own limit among budgets and owners, whose keys have a slash."""
    return f"{_POOL}{pool}"


def _in_words(key: str, limits: Limits, *, held: bool) -> Reason:
    """Why no more nodes may use this budget, owner, pool or room."""
    if is_room(key):
        return NO_ROOM
    allowed = limits.allowed.get(key, 0)
    if key.startswith(_POOL):
        return noted(f"at most {allowed} at once of the pool {key.removeprefix(_POOL)}")
    if is_owner(key):
        price = f"{key} would lose all its {allowed + 1} pods at once"
    elif key not in limits.rounds:
        price = f"{key} would lose more pods at once than its budget allows ({allowed})"
    elif held:
        price = f"{key} would lack more pods than its budget allows ({allowed}) until nodes are back"
    else:
        price = f"drains would wait too long for {key}, which lets {_at_a_time(allowed)} go"
    return Reason(f"with more nodes, {price}", f"kept small by {key}")


def _at_a_time(pods: int) -> str:
    return f"{'one pod' if pods == 1 else f'{pods} pods'} at a time"


def _separation(wave: Sequence[Piece], following: Sequence[Piece], limits: Limits) -> Reason:
    """Why a wave that has room does not take a node of the next one."""
    reasons = (reason for piece in following for reason in _conflicts(wave, piece, limits))
    return next(reasons, Reason("the remaining nodes"))


def _price(wave: Sequence[Piece], limits: Limits) -> Reason:
    """What the budgets make of these drains, in seconds where they wait for one another."""
    key, seconds = limits.rates.price(wave) if limits.rounds and len(wave) > 1 else ("", 0)
    if seconds > 0:
        more = f"+{Duration(seconds)}"
        sentence = f"shares {key}, {_at_a_time(limits.allowed.get(key, 0))}: {more}"
        return Reason(sentence, f"waits for budget {key}, {more}")
    needs = Counter[str]()
    for piece in wave:
        needs |= Counter(piece.load)
    over = (key for key, need in needs.items() if need > limits.allowed.get(key, 0))
    tight = sorted(key for key in over if not (is_owner(key) or is_room(key)))
    if not tight:
        return _NOTHING
    if not (allowed := limits.allowed.get(tight[0], 0)):
        return Reason(f"the budget {tight[0]} allows nothing now", f"budget {tight[0]} allows nothing now")
    sentence = f"drains gradually: the budget {tight[0]} allows {allowed} at a time"
    return Reason(sentence, f"waits for budget {tight[0]}")


def _explained(waves: Sequence[tuple[Piece, ...]], limits: Limits, part: str, rounds: int) -> list[Placed]:
    like = Placed((), part, most=limits.size, rounds=rounds)
    return [
        _placed(wave, _full(limits) if len(wave) >= limits.size else _separation(wave, following, limits), like, limits)
        for wave, following in zip_longest(waves, waves[1:], fillvalue=())
    ]


def _placed(wave: tuple[Piece, ...], why: Reason, like: Placed, limits: Limits) -> Placed:
    """A wave of the same part as another."""
    return replace(like, pieces=wave, why=why, price=_price(wave, limits), refused={})


def as_played(wave: Placed, pieces: Sequence[Piece], limits: Limits) -> Placed:
    """A wave with what its nodes really have to drain by then: pods that earlier waves moved there among it."""
    return replace(_placed(tuple(pieces), wave.why, wave, wave.own(limits)), refused=wave.refused)


def _full(limits: Limits) -> Reason:
    return Reason(f"full wave: at most {limits.size} at once")


def noted(sentence: str) -> Reason:
    """What is as short as a note."""
    return Reason(sentence, sentence)


def joined(wave: Placed, waiting: Sequence[Piece], limits: Limits) -> tuple[Placed, list[Piece]]:
    """A wave with those of the waiting that can go along under its limits, and those that cannot."""
    own = wave.own(limits)
    pieces, remaining = joining(wave.pieces, waiting, own)
    if len(pieces) == len(wave.pieces):
        return wave, remaining
    why = _full(own) if len(pieces) >= wave.most else noted("filled up with nodes postponed from earlier waves")
    return _placed(pieces, why, wave, own), remaining


def latecomers(last: Placed, waiting: Sequence[Piece], limits: Limits) -> tuple[Placed, list[Piece]]:
    """One more wave of a part, behind its last one, of nodes that could not go along before."""
    wave, remaining = joined(replace(last, pieces=(), refused={}), waiting, limits)
    why = noted("postponed: no room for their pods during earlier waves")
    return _placed(wave.pieces, why, last, last.own(limits)), remaining


def without(wave: Placed, refused: Mapping[str, str], limits: Limits) -> Placed:
    """A wave without the nodes whose pods would find no place, each with its reason."""
    staying = tuple(piece for piece in wave.pieces if piece.name not in refused)
    return replace(_placed(staying, NO_ROOM, wave, wave.own(limits)), refused=refused)


def _control_plane(pieces: Sequence[Piece], limits: Limits) -> list[Placed]:
    ordered = sorted(pieces, key=by_name)
    return [_placed((piece,), ALONE, Placed((), "control plane"), limits) for piece in ordered]


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
            refused[piece.name] = _in_words(min(barring), limits, held=min(barring) in held).sentence
        else:
            used.update(uses)
    return refused


def _split_canary(pieces: Sequence[Piece], canary: int) -> tuple[list[Piece], list[Piece]]:
    ordered = sorted(pieces, key=by_name)
    return ordered[:canary], ordered[canary:]


def _ramped(
    pieces: Sequence[Piece], limits: Limits, ramp: Sequence[int]
) -> Iterator[tuple[str, Sequence[Piece], Limits]]:
    """The pieces step by step: as many as each step of the ramp says, the rest in waves of its last."""
    remaining = sorted(pieces, key=lambda piece: (natural_key(piece.group), by_price(piece)))
    for number, size in enumerate(ramp[:-1], start=1):
        yield f"step {number} of the ramp", remaining[:size], replace(limits, size=min(size, limits.size))
        remaining = remaining[size:]
    yield "", remaining, replace(limits, size=min(ramp[-1], limits.size)) if ramp else limits


def _workers(pieces: Sequence[Piece], limits: Limits, policy: Policy, ramp: Sequence[int]) -> tuple[list[Placed], int]:
    first, remaining = _split_canary(pieces, policy.canary)
    waves = [_placed((piece,), ALONE, Placed((), CANARY), limits) for piece in first]
    bound = len(first)
    for part, selected, narrower in _ramped(remaining, limits, ramp):
        groups: dict[str, list[Piece]] = defaultdict(list)
        for piece in selected:
            groups[piece.group].append(piece)
        for group in sorted(groups, key=natural_key):
            zone = f"{policy.spread_by}={group or '(none)'}" if policy.spread_by else ""
            label = ", ".join(word for word in (part, zone) if word)
            packed, rounds = fastest(groups[group], narrower)
            waves += _explained(packed, narrower.up_to(rounds), label, rounds)
            bound += lower_bound(groups[group], narrower)
    uses = [limits.use(piece.load, piece.holds) for piece in pieces]
    return waves, max(bound, budget_bound(uses, limits.capacity))


def lay_out(pieces: Sequence[Piece], limits: Limits, policy: Policy, ramp: Sequence[int] = ()) -> Layout:
    """Waves over all pieces: the canary first, then group by group, the control plane last or first.

    `ramp` holds the sizes of the first waves, the last for all that follow.
    """
    control_plane = [piece for piece in pieces if piece.control_plane]
    waves, bound = _workers([piece for piece in pieces if not piece.control_plane], limits, policy, ramp)
    alone = _control_plane(control_plane, limits)
    ordered = alone + waves if policy.control_plane is ControlPlaneOrder.FIRST else waves + alone
    return Layout(tuple(ordered), bound + len(alone))
