"""Laying nodes out in waves: as few as the rules allow, each with its reason.

Two nodes may share a wave when their pods can all leave together: under every disruption budget, with a replica left
of every owner that has no budget, and with room for them on the nodes that stay. A node whose own pods exceed a budget
drains gradually, and shares its wave with no other node of that budget.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from rollout.model.policy import ControlPlaneOrder, Policy
from rollout.planning.naming import natural_key
from rollout.planning.packing import Item, Limits, Load, Weight, budget_bound, lower_bound, pack
from rollout.planning.sharing import is_owner


@dataclass(frozen=True, slots=True)
class Piece:
    """A node to place. `group` is its value of the `--spread-by` label; `load` what its drain takes of budgets."""

    name: str
    group: str
    control_plane: bool
    load: Load
    weight: Weight = ()


@dataclass(frozen=True, slots=True)
class Placed:
    """One wave's nodes, why the wave is as it is, and which part of the rollout it belongs to: a clause, or empty."""

    pieces: tuple[Piece, ...]
    because: str
    part: str = ""

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
    return tuple(sum(piece.weight[each] for piece in pieces if piece.weight) for each in range(len(limits.room)))


def obstacles(wave: Sequence[Piece], piece: Piece, limits: Limits) -> tuple[str, ...]:
    """Every reason that keeps this piece out of this wave, in sentences; none where it could join."""
    used = _used(wave)
    found = [
        _in_words(key, limits) for key, need in sorted(piece.load.items()) if not limits.admits(key, used[key], need)
    ]
    if piece.weight and not limits.has_room(_filled(wave, limits), piece.weight):
        found.append("with more, the pods would not fit on the nodes that stay open")
    if len(wave) >= limits.size:
        found.append(f"as many as may be away at once ({limits.size})")
    return tuple(found)


def _in_words(key: str, limits: Limits) -> str:
    allowed = limits.allowed.get(key, 0)
    if is_owner(key):
        return f"with more, {key} would lose all its {allowed + 1} pods at once"
    return f"with more, {key} would lose more pods at once than its budget allows ({allowed})"


class _Waves:
    """What waves use, summed once: each is compared with all the later ones."""

    def __init__(self, waves: Sequence[tuple[Piece, ...]], limits: Limits) -> None:
        self._waves = waves
        self._limits = limits
        self._needs = [_largest_needs(wave) for wave in waves]

    def separation(self, position: int) -> str:
        """Why a wave that has room does not take a node of a later one."""
        wave, later = self._waves[position], self._waves[position + 1 :]
        used = _used(wave)
        barring = {
            key
            for needs in self._needs[position + 1 :]
            for key, need in needs.items()
            if key in used and not self._limits.admits(key, used[key], need)
        }
        if barring:
            return _in_words(min(barring), self._limits)
        filled = _filled(wave, self._limits)
        if any(piece.weight and not self._limits.has_room(filled, piece.weight) for some in later for piece in some):
            return "with more, the pods would not fit on the nodes that stay open"
        return "the last of its kind"


def _largest_needs(wave: Sequence[Piece]) -> dict[str, int]:
    needs: dict[str, int] = {}
    for piece in wave:
        for key, need in piece.load.items():
            needs[key] = max(need, needs.get(key, 0))
    return needs


def _gradual(wave: Sequence[Piece], limits: Limits) -> str:
    used = _used(wave)
    tight = sorted(key for key, need in used.items() if need > limits.allowed.get(key, 0) and not is_owner(key))
    if not tight:
        return ""
    return f"; drains gradually: the budget {tight[0]} allows {limits.allowed.get(tight[0], 0)} at a time"


def _explained(waves: Sequence[tuple[Piece, ...]], limits: Limits, part: str) -> list[Placed]:
    compared, placed = _Waves(waves, limits), []
    for position, wave in enumerate(waves):
        full = len(wave) >= limits.size
        why = f"as many as may be away at once ({limits.size})" if full else compared.separation(position)
        prefix = f"{part}: " if part else ""
        placed.append(Placed(wave, prefix + why + _gradual(wave, limits), part))
    return placed


def _control_plane(pieces: Sequence[Piece], limits: Limits) -> list[Placed]:
    ordered = sorted(pieces, key=_by_name)
    part = "control plane, one at a time"
    return [Placed((piece,), part + _gradual([piece], limits), part) for piece in ordered]


def _split_canary(pieces: Sequence[Piece], canary: int) -> tuple[list[Piece], list[Piece]]:
    ordered = sorted(pieces, key=_by_name)
    return ordered[:canary], ordered[canary:]


def _workers(pieces: Sequence[Piece], limits: Limits, policy: Policy) -> tuple[list[Placed], int]:
    first, rest = _split_canary(pieces, policy.canary)
    waves = _explained(_packed(first, limits), limits, "canary")
    bound = lower_bound(_items(first), limits)
    groups: dict[str, list[Piece]] = defaultdict(list)
    for piece in rest:
        groups[piece.group].append(piece)
    for group in sorted(groups, key=natural_key):
        part = f"{policy.spread_by}={group or '(none)'}" if policy.spread_by else ""
        waves += _explained(_packed(groups[group], limits), limits, part)
        bound += lower_bound(_items(groups[group]), limits)
    return waves, max(bound, budget_bound([piece.load for piece in pieces], limits.allowed))


def _items(pieces: Sequence[Piece]) -> list[Item]:
    return [Item(piece.load, piece.weight) for piece in pieces]


def lay_out(pieces: Sequence[Piece], limits: Limits, policy: Policy) -> Layout:
    """Waves over all pieces: the canary first, then group by group, the control plane last or first."""
    control_plane = [piece for piece in pieces if piece.control_plane]
    waves, bound = _workers([piece for piece in pieces if not piece.control_plane], limits, policy)
    alone = _control_plane(control_plane, limits)
    ordered = alone + waves if policy.control_plane is ControlPlaneOrder.FIRST else waves + alone
    return Layout(tuple(ordered), bound + len(alone))
