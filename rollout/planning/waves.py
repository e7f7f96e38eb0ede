"""Laying nodes out in waves: as few as the rules allow, each with its reason.

Two nodes may share a wave when their pods can all leave together under every disruption budget; a node whose own
pods exceed a budget drains gradually, and shares its wave with no other node of that budget. Nodes are placed most
constrained first, each into the first wave that takes it (first-fit decreasing).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rollout.model.policy import ControlPlaneOrder, Policy
from rollout.planning.budgets import Load
from rollout.planning.naming import natural_key


@dataclass(frozen=True, slots=True)
class Piece:
    """A node to place. `group` is its value of the `--spread-by` label; `load` what its drain takes of budgets."""

    name: str
    group: str
    control_plane: bool
    load: Load


@dataclass(frozen=True, slots=True)
class Limits:
    """What a wave may hold: `size` nodes, and of each budget what it allows now."""

    size: int
    allowed: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Placed:
    """One wave's nodes, by name, and why the wave is as it is."""

    names: tuple[str, ...]
    because: str


@dataclass(frozen=True, slots=True)
class Layout:
    """All waves, and a number of waves below which no layout under the same rules can go."""

    waves: tuple[Placed, ...]
    lower_bound: int


@dataclass(slots=True)
class _Open:
    """A wave being filled."""

    pieces: list[Piece] = field(default_factory=list)
    used: Counter[str] = field(default_factory=Counter)


def _obstacle(wave: _Open, piece: Piece, limits: Limits) -> str | None:
    """The first budget that keeps this piece out of this wave."""
    for budget, need in piece.load.items():
        used = wave.used[budget]
        if used and used + need > limits.allowed.get(budget, 0):
            return budget
    return None


def _place(wave: _Open, piece: Piece) -> None:
    wave.pieces.append(piece)
    wave.used.update(piece.load)


def _pressure(piece: Piece, limits: Limits) -> float:
    """How much of its tightest budget a piece takes alone."""
    return max((need / max(1, limits.allowed.get(budget, 0)) for budget, need in piece.load.items()), default=0.0)


def _pack(pieces: Sequence[Piece], limits: Limits) -> list[_Open]:
    done: list[_Open] = []
    filling: list[_Open] = []
    for piece in sorted(pieces, key=lambda piece: (-_pressure(piece, limits), natural_key(piece.name))):
        wave = next((wave for wave in filling if _obstacle(wave, piece, limits) is None), None)
        if wave is None:
            wave = _Open()
            filling.append(wave)
        _place(wave, piece)
        if len(wave.pieces) >= limits.size:
            filling.remove(wave)
            done.append(wave)
    return sorted(done + filling, key=lambda wave: min(natural_key(piece.name) for piece in wave.pieces))


def _budget_bound(pieces: Iterable[Piece], allowed: Mapping[str, int]) -> int:
    """Waves that the tightest budget demands: one for each node that exceeds it alone, the rest by their sum."""
    needs: dict[str, list[int]] = defaultdict(list)
    for piece in pieces:
        for budget, need in piece.load.items():
            needs[budget].append(need)
    return max((_waves_for(amounts, allowed.get(budget, 0)) for budget, amounts in needs.items()), default=0)


def _waves_for(amounts: Sequence[int], allowed: int) -> int:
    alone = sum(1 for amount in amounts if amount >= max(1, allowed))
    together = sum(amount for amount in amounts if amount < allowed)
    return alone + (math.ceil(together / allowed) if together else 0)


def _bound(pieces: Sequence[Piece], limits: Limits) -> int:
    return max(math.ceil(len(pieces) / limits.size), _budget_bound(pieces, limits.allowed))


def _separation(wave: _Open, others: Sequence[_Open], limits: Limits) -> str:
    """Why a wave that has room does not take a node of a later one."""
    obstacles = {
        obstacle
        for other in others
        for piece in other.pieces
        if (obstacle := _obstacle(wave, piece, limits)) is not None
    }
    if not obstacles:
        return "the last of its kind"
    budget = min(obstacles)
    allowed = limits.allowed.get(budget, 0)
    return f"with more, {budget} would lose more pods at once than its budget allows ({allowed})"


def _gradual(wave: _Open, limits: Limits) -> str:
    tight = sorted(budget for budget, need in wave.used.items() if need > limits.allowed.get(budget, 0))
    return (
        f"; drains gradually: its budget {tight[0]} allows {limits.allowed.get(tight[0], 0)} at a time" if tight else ""
    )


def _explained(waves: Sequence[_Open], limits: Limits, prefix: str) -> list[Placed]:
    placed = []
    for position, wave in enumerate(waves):
        names = tuple(sorted((piece.name for piece in wave.pieces), key=natural_key))
        full = len(names) >= limits.size
        why = (
            f"as many as may be away at once ({limits.size})"
            if full
            else _separation(wave, waves[position + 1 :], limits)
        )
        placed.append(Placed(names, prefix + why + _gradual(wave, limits)))
    return placed


def _control_plane(pieces: Sequence[Piece], limits: Limits) -> list[Placed]:
    single = Limits(1, limits.allowed)
    ordered = sorted(pieces, key=lambda piece: natural_key(piece.name))
    return [
        Placed(
            (piece.name,),
            "control plane, one at a time" + _gradual(_Open([piece], Counter(piece.load)), single),
        )
        for piece in ordered
    ]


def _split_canary(pieces: Sequence[Piece], canary: int) -> tuple[list[Piece], list[Piece]]:
    ordered = sorted(pieces, key=lambda piece: natural_key(piece.name))
    return ordered[:canary], ordered[canary:]


def _workers(pieces: Sequence[Piece], limits: Limits, policy: Policy) -> tuple[list[Placed], int]:
    first, rest = _split_canary(pieces, policy.canary)
    waves = _explained(_pack(first, limits), limits, "canary: ")
    bound = _bound(first, limits)
    groups: dict[str, list[Piece]] = defaultdict(list)
    for piece in rest:
        groups[piece.group].append(piece)
    for group in sorted(groups, key=natural_key):
        prefix = f"{policy.spread_by}={group or '(none)'}: " if policy.spread_by else ""
        waves += _explained(_pack(groups[group], limits), limits, prefix)
        bound += _bound(groups[group], limits)
    return waves, max(bound, _budget_bound(pieces, limits.allowed))


def lay_out(pieces: Sequence[Piece], limits: Limits, policy: Policy) -> Layout:
    """Waves over all pieces: the canary first, then group by group, the control plane last or first."""
    control_plane = [piece for piece in pieces if piece.control_plane]
    waves, bound = _workers([piece for piece in pieces if not piece.control_plane], limits, policy)
    alone = _control_plane(control_plane, limits)
    ordered = alone + waves if policy.control_plane is ControlPlaneOrder.FIRST else waves + alone
    return Layout(tuple(ordered), bound + len(alone))
