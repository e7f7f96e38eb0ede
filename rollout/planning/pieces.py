"""The nodes to place in waves, and what several of them use together."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from rollout.planning.naming import natural_key
from rollout.planning.packing import Item, Limits, Load, Weight
from rollout.planning.rates import sum_of


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
