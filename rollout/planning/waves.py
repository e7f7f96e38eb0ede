"""Laying nodes out in waves: as few as the rules allow, each with its reason.

Two nodes may share a wave when their pods can all leave together: under every disruption budget, with a replica left
of every owner that has no budget, and with room for them on the nodes that stay. A node whose own pods exceed a budget
drains gradually, and shares its wave with no other node of that budget.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rollout.model.plan import Rolling
from rollout.model.policy import ControlPlaneOrder, Policy
from rollout.planning.naming import natural_key
from rollout.planning.packing import Item, Limits, Load, Weight, budget_bound, lower_bound, pack
from rollout.planning.sharing import is_owner

_POOL = "pool:"
CANARY = "canary"
NO_ROOM = "with more nodes, their pods would not fit on the others"


@dataclass(frozen=True, slots=True)
class Piece:
    """A node to place. `group` is its value of the `--spread-by` label; `load` what its drain takes of budgets.

    A pool with a limit of its own is like a budget of which each of its nodes takes one: see `pool_key`.
    """

    name: str
    group: str
    control_plane: bool
    load: Load
    weight: Weight = ()
    pool: str = ""


@dataclass(frozen=True, slots=True)
class Placed:
    """One wave's nodes, why the wave is as it is, and which part of the rollout it belongs to: a clause, or empty.

    `most` is how many nodes its part takes at once; `refused` says of nodes of later waves why there was no place for
    their pods while this one's were away. `rolling` says how its nodes follow one another, None: side by side.
    """

    pieces: tuple[Piece, ...]
    because: str
    part: str = ""
    most: int = 1
    refused: Mapping[str, str] = field(default_factory=dict)
    rolling: Rolling | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes' names."""
        return tuple(piece.name for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Layout:
    """All waves, and a number of waves below which no layout under the same rules can go."""

    waves: tuple[Placed, ...]
    lower_bound: int


def _by_name(piece: Piece) -> tuple[tuple[int, int, str], ...]:
    return natural_key(piece.name)


def _packed(pieces: Sequence[Piece], limits: Limits) -> list[tuple[Piece, ...]]:
    """Waves in the order of their first names, the fuller ones first."""
    ordered = sorted(pieces, key=_by_name)
    groups = pack(_items(ordered), limits)
    waves = [tuple(ordered[index] for index in sorted(group)) for group in groups]
    return sorted(waves, key=lambda wave: (-len(wave), _by_name(wave[0])))


def _used(pieces: Sequence[Piece]) -> Counter[str]:
    used: Counter[str] = Counter()
    for piece in pieces:
        used.update(piece.load)
    return used


def _filled(pieces: Sequence[Piece], limits: Limits) -> Weight:
    return tuple(
        sum(piece.weight[dimension] for piece in pieces if piece.weight) for dimension in range(len(limits.room))
    )


def obstacles(wave: Sequence[Piece], piece: Piece, limits: Limits) -> tuple[str, ...]:
    """Every reason that keeps this piece out of this wave, in sentences; none where it could join."""
    used = _used(wave)
    reasons = [
        _in_words(key, limits) for key, need in sorted(piece.load.items()) if not limits.admits(key, used[key], need)
    ]
    if piece.weight and not limits.has_room(_filled(wave, limits), piece.weight):
        reasons.append(NO_ROOM)
    if len(wave) >= limits.size:
        reasons.append(_full(limits))
    return tuple(reasons)


def pool_key(pool: str) -> str:
    """What stands for a pool's own limit among budgets and owners, whose keys have a slash."""
    return f"{_POOL}{pool}"


def _in_words(key: str, limits: Limits) -> str:
    allowed = limits.allowed.get(key, 0)
    if key.startswith(_POOL):
        return f"at most {allowed} at once of the pool {key.removeprefix(_POOL)}"
    if is_owner(key):
        return f"with more nodes, {key} would lose all its {allowed + 1} pods at once"
    return f"with more nodes, {key} would lose more pods at once than its budget allows ({allowed})"


class _Later:
    """The most that any node of the later waves needs; waves are taken in from the last to the first."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._needs: dict[str, int] = {}
        self._weight: Weight = tuple(0 for _ in limits.room)

    def separation(self, wave: Sequence[Piece]) -> str:
        """Why a wave that has room does not take a node of a later one."""
        barring = (
            key
            for key, used in _used(wave).items()
            if key in self._needs and not self._limits.admits(key, used, self._needs[key])
        )
        first = min(barring, default=None)
        if first is not None:
            return _in_words(first, self._limits)
        if any(self._weight) and not self._limits.has_room(_filled(wave, self._limits), self._weight):
            return NO_ROOM
        return "the remaining nodes"

    def add(self, wave: Sequence[Piece]) -> None:
        """Take in a wave that is later than those still to be asked for."""
        for piece in wave:
            for key, need in piece.load.items():
                self._needs[key] = max(need, self._needs.get(key, 0))
            if piece.weight:
                self._weight = tuple(max(pair) for pair in zip(self._weight, piece.weight, strict=False))


def _gradual(wave: Sequence[Piece], limits: Limits) -> str:
    used = _used(wave)
    tight = sorted(key for key, need in used.items() if need > limits.allowed.get(key, 0) and not is_owner(key))
    if not tight:
        return ""
    allowed = limits.allowed.get(tight[0], 0)
    if not allowed:
        return f"; the budget {tight[0]} allows nothing now"
    return f"; drains gradually: the budget {tight[0]} allows {allowed} at a time"


def _explained(waves: Sequence[tuple[Piece, ...]], limits: Limits, part: str) -> list[Placed]:
    later, placed = _Later(limits), []
    for wave in reversed(waves):
        why = _full(limits) if len(wave) >= limits.size else later.separation(wave)
        placed.append(_placed(wave, why, part, limits))
        later.add(wave)
    return placed[::-1]


def _placed(wave: tuple[Piece, ...], why: str, part: str, limits: Limits) -> Placed:
    prefix = f"{part}: " if part else ""
    return Placed(wave, prefix + why + _gradual(wave, limits), part, limits.size)


def _full(limits: Limits) -> str:
    return f"full wave: at most {limits.size} at once"


def joined(wave: Placed, waiting: Sequence[Piece], limits: Limits) -> tuple[Placed, list[Piece]]:
    """A wave with those of the waiting that can go along under its limits, and those that cannot."""
    own, pieces = replace(limits, size=wave.most), list(wave.pieces)
    remaining: list[Piece] = []
    for piece in waiting:
        (remaining if obstacles(pieces, piece, own) else pieces).append(piece)
    if len(pieces) == len(wave.pieces):
        return wave, remaining
    why = _full(own) if len(pieces) >= wave.most else "filled up with nodes postponed from earlier waves"
    return _placed(tuple(pieces), why, wave.part, own), remaining


def latecomers(last: Placed, waiting: Sequence[Piece], limits: Limits) -> tuple[Placed, list[Piece]]:
    """One more wave of a part, behind its last one, of nodes that could not go along before."""
    empty = replace(last, pieces=(), refused={})
    wave, remaining = joined(empty, waiting, limits)
    own = replace(limits, size=last.most)
    return _placed(wave.pieces, "postponed: no room for their pods during earlier waves", last.part, own), remaining


def without(wave: Placed, refused: Mapping[str, str], limits: Limits) -> Placed:
    """A wave without the nodes whose pods would find no place, each with its reason."""
    staying = tuple(piece for piece in wave.pieces if piece.name not in refused)
    placed = _placed(staying, NO_ROOM, wave.part, replace(limits, size=wave.most))
    return replace(placed, refused=refused)


def _control_plane(pieces: Sequence[Piece], limits: Limits) -> list[Placed]:
    ordered = sorted(pieces, key=_by_name)
    part = "control plane, one at a time"
    return [Placed((piece,), part + _gradual([piece], limits), part) for piece in ordered]


def _split_canary(pieces: Sequence[Piece], canary: int) -> tuple[list[Piece], list[Piece]]:
    ordered = sorted(pieces, key=_by_name)
    return ordered[:canary], ordered[canary:]


def _ramped(
    pieces: Sequence[Piece], limits: Limits, ramp: Sequence[int]
) -> Iterator[tuple[str, Sequence[Piece], Limits]]:
    """The pieces step by step: as many as each step of the ramp says, the rest in waves of its last."""
    remaining = sorted(pieces, key=lambda piece: (natural_key(piece.group), _by_name(piece)))
    for number, size in enumerate(ramp[:-1], start=1):
        yield f"step {number} of the ramp", remaining[:size], replace(limits, size=min(size, limits.size))
        remaining = remaining[size:]
    yield "", remaining, replace(limits, size=min(ramp[-1], limits.size)) if ramp else limits


def _workers(pieces: Sequence[Piece], limits: Limits, policy: Policy, ramp: Sequence[int]) -> tuple[list[Placed], int]:
    first, remaining = _split_canary(pieces, policy.canary)
    alone = replace(limits, size=1)
    waves = [_placed((piece,), "one at a time", CANARY, alone) for piece in first]
    bound = len(first)
    for part, selected, narrower in _ramped(remaining, limits, ramp):
        groups: dict[str, list[Piece]] = defaultdict(list)
        for piece in selected:
            groups[piece.group].append(piece)
        for group in sorted(groups, key=natural_key):
            zone = f"{policy.spread_by}={group or '(none)'}" if policy.spread_by else ""
            label = ", ".join(word for word in (part, zone) if word)
            waves += _explained(_packed(groups[group], narrower), narrower, label)
            bound += lower_bound(_items(groups[group]), narrower)
    return waves, max(bound, budget_bound([piece.load for piece in pieces], limits.allowed))


def _items(pieces: Sequence[Piece]) -> list[Item]:
    return [Item(piece.load, piece.weight) for piece in pieces]


def lay_out(pieces: Sequence[Piece], limits: Limits, policy: Policy, ramp: Sequence[int] = ()) -> Layout:
    """Waves over all pieces: the canary first, then group by group, the control plane last or first.

    `ramp` holds the sizes of the first waves, the last for all that follow.
    """
    control_plane = [piece for piece in pieces if piece.control_plane]
    waves, bound = _workers([piece for piece in pieces if not piece.control_plane], limits, policy, ramp)
    alone = _control_plane(control_plane, limits)
    ordered = alone + waves if policy.control_plane is ControlPlaneOrder.FIRST else waves + alone
    return Layout(tuple(ordered), bound + len(alone))
