"""Nodes into as few groups as their disruption budgets and the group size allow.

With budgets that allow one disruption this is graph colouring, so the method is the one for that: always place the node
that has the fewest groups left to go to (DSATUR, Brélaz 1979), into the fullest group that takes it. Groups are opened
up to the lower bound at once, further ones only when a node fits nowhere.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Load = Mapping[str, int]
"""What one node takes of each budget, by the budget's namespace/name."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a group may hold: `size` nodes, and of each budget what it allows.

    A node that exceeds a budget alone may be in a group, but with no other node of that budget.
    """

    size: int
    allowed: Mapping[str, int]

    def admits(self, budget: str, used: int, need: int) -> bool:
        """Whether a node that needs so much of a budget may join a group that uses so much of it already."""
        return used == 0 or used + need <= self.allowed.get(budget, 0)


def lower_bound(loads: Sequence[Load], limits: Limits) -> int:
    """A number of groups below which no packing can go: by size, and by each budget alone."""
    return max(math.ceil(len(loads) / limits.size), budget_bound(loads, limits.allowed))


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


def pack(loads: Sequence[Load], limits: Limits) -> list[list[int]]:
    """Groups of indices into `loads`; equal inputs give equal groups."""
    return _Packing(loads, limits).run()


class _Packing:
    """One packing under way. Sets of groups are integers, a bit for each: they are tested millions of times."""

    def __init__(self, loads: Sequence[Load], limits: Limits) -> None:
        self._loads = loads
        self._limits = limits
        self._groups: list[list[int]] = [[] for _ in range(lower_bound(loads, limits))]
        self._used: list[Counter[str]] = [Counter() for _ in self._groups]
        self._barred = [0] * len(loads)
        self._bars = [0] * len(loads)
        self._waiting = set(range(len(loads)))
        self._sharing: dict[str, list[int]] = defaultdict(list)
        for index, load in enumerate(loads):
            for budget in load:
                self._sharing[budget].append(index)
        self._weight = [self._weigh(load) for load in loads]

    def run(self) -> list[list[int]]:
        while self._waiting:
            index = max(self._waiting, key=lambda each: (self._bars[each], self._weight[each], -each))
            self._waiting.discard(index)
            self._place(index, self._choose(index))
        return [sorted(group) for group in self._groups if group]

    def _weigh(self, load: Load) -> float:
        """How much a node is in the way of others: the larger its share of a budget, and the more share that budget."""
        allowed = self._limits.allowed
        return sum(len(self._sharing[budget]) * need / max(1, allowed.get(budget, 0)) for budget, need in load.items())

    def _choose(self, index: int) -> int:
        """The fullest group that takes the node; a new one where none does."""
        barred, size = self._barred[index], self._limits.size
        open_to_it = [
            number for number, group in enumerate(self._groups) if len(group) < size and not (barred >> number) & 1
        ]
        if open_to_it:
            return max(open_to_it, key=lambda number: (len(self._groups[number]), -number))
        self._groups.append([])
        self._used.append(Counter())
        return len(self._groups) - 1

    def _place(self, index: int, number: int) -> None:
        self._groups[number].append(index)
        used, bit = self._used[number], 1 << number
        for budget, need in self._loads[index].items():
            used[budget] += need
            for other in self._sharing[budget]:
                if other in self._waiting and not self._barred[other] & bit:
                    self._bar(other, budget, used[budget], bit)

    def _bar(self, index: int, budget: str, used: int, bit: int) -> None:
        if not self._limits.admits(budget, used, self._loads[index][budget]):
            self._barred[index] |= bit
            self._bars[index] += 1
