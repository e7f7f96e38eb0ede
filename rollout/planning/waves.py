"""Laying nodes out in waves: as few as the rules allow, each with its reason.

Two nodes may share a wave when their pods can all leave together under every disruption budget; a node whose own pods
exceed a budget drains gradually, and shares its wave with no other node of that budget.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from rollout.model.policy import ControlPlaneOrder, Policy
from rollout.planning.naming import natural_key
from rollout.planning.packing import Limits, Load, budget_bound, lower_bound, pack


@dataclass(frozen=True, slots=True)
class Piece:
    """A node to place. `group` is its value of the `--spread-by` label; `load` what its drain takes of budgets."""

    name: str
    group: str
    control_plane: bool
    load: Load


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


@dataclass(frozen=True, slots=True)
class _Wave:
    """Pieces that go together, and what they use of each budget."""

    pieces: tuple[Piece, ...]
    used: Counter[str]

    @classmethod
    def of(cls, pieces: Sequence[Piece]) -> "_Wave":
        used: Counter[str] = Counter()
        for piece in pieces:
            used.update(piece.load)
        return cls(tuple(sorted(pieces, key=_by_name)), used)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(piece.name for piece in self.pieces)


def _by_name(piece: Piece) -> tuple[tuple[int, int, str], ...]:
    return natural_key(piece.name)


def _packed(pieces: Sequence[Piece], limits: Limits) -> list[_Wave]:
    """Waves in the order of their first names, the fuller ones first."""
    ordered = sorted(pieces, key=_by_name)
    groups = pack([piece.load for piece in ordered], limits)
    waves = [_Wave.of([ordered[index] for index in group]) for group in groups]
    return sorted(waves, key=lambda wave: (-len(wave.pieces), _by_name(wave.pieces[0])))


def _obstacle(wave: _Wave, piece: Piece, limits: Limits) -> str | None:
    """The first budget that keeps this piece out of this wave."""
    return next((b for b, need in piece.load.items() if not limits.admits(b, wave.used[b], need)), None)


def _separation(wave: _Wave, others: Sequence[_Wave], limits: Limits) -> str:
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


def _gradual(wave: _Wave, limits: Limits) -> str:
    tight = sorted(budget for budget, need in wave.used.items() if need > limits.allowed.get(budget, 0))
    if not tight:
        return ""
    return f"; drains gradually: the budget {tight[0]} allows {limits.allowed.get(tight[0], 0)} at a time"


def _explained(waves: Sequence[_Wave], limits: Limits, prefix: str) -> list[Placed]:
    placed = []
    for position, wave in enumerate(waves):
        full = len(wave.pieces) >= limits.size
        why = f"as many as may be away at once ({limits.size})"
        if not full:
            why = _separation(wave, waves[position + 1 :], limits)
        placed.append(Placed(wave.names, prefix + why + _gradual(wave, limits)))
    return placed


def _control_plane(pieces: Sequence[Piece], limits: Limits) -> list[Placed]:
    single = Limits(1, limits.allowed)
    ordered = sorted(pieces, key=_by_name)
    return [
        Placed(
            (piece.name,),
            "control plane, one at a time" + _gradual(_Wave.of([piece]), single),
        )
        for piece in ordered
    ]


def _split_canary(pieces: Sequence[Piece], canary: int) -> tuple[list[Piece], list[Piece]]:
    ordered = sorted(pieces, key=_by_name)
    return ordered[:canary], ordered[canary:]


def _workers(pieces: Sequence[Piece], limits: Limits, policy: Policy) -> tuple[list[Placed], int]:
    first, rest = _split_canary(pieces, policy.canary)
    waves = _explained(_packed(first, limits), limits, "canary: ")
    bound = lower_bound(_loads(first), limits)
    groups: dict[str, list[Piece]] = defaultdict(list)
    for piece in rest:
        groups[piece.group].append(piece)
    for group in sorted(groups, key=natural_key):
        prefix = f"{policy.spread_by}={group or '(none)'}: " if policy.spread_by else ""
        waves += _explained(_packed(groups[group], limits), limits, prefix)
        bound += lower_bound(_loads(groups[group]), limits)
    return waves, max(bound, budget_bound(_loads(pieces), limits.allowed))


def _loads(pieces: Sequence[Piece]) -> list[Load]:
    return [piece.load for piece in pieces]


def lay_out(pieces: Sequence[Piece], limits: Limits, policy: Policy) -> Layout:
    """Waves over all pieces: the canary first, then group by group, the control plane last or first."""
    control_plane = [piece for piece in pieces if piece.control_plane]
    waves, bound = _workers([piece for piece in pieces if not piece.control_plane], limits, policy)
    alone = _control_plane(control_plane, limits)
    ordered = alone + waves if policy.control_plane is ControlPlaneOrder.FIRST else waves + alone
    return Layout(tuple(ordered), bound + len(alone))
