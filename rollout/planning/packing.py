"""Nodes into as few groups as their disruption budgets and the group size allow.

With budgets that allow one disruption this is graph colouring, so the method is the one for that: always place the node
that has the fewest groups left to go to (DSATUR, Brélaz 1979), into the fullest group that takes it. Groups are opened
up to the lower bound at once, further ones only when a node fits nowhere.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rollout.planning.rates import NO_RATES, Rates

# Starts of the search for a clique: more find hardly a larger one.
_CLIQUE_STARTS = 8
_MANY = 1000
_NO_WEIGHT = (0, 0, 0)

Load = Mapping[str, int]
"""What one node takes of each budget, by the budget's namespace/name; owners' keys are kind/namespace/name."""


Weight = tuple[int, ...]
"""What taking one node away costs of the room of the whole: the pods it sends elsewhere, and its own free room."""


@dataclass(frozen=True, slots=True)
class Item:
    """A node to be packed."""

    load: Load
    weight: Weight = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """What a group may hold: `size` nodes, of each budget what it allows, and of weight in each dimension `room`.

    A node that exceeds a budget, or the room, alone may be in a group, but with no other node that uses of it.
    `rounds` is how often, one after another, a group may use a budget up: once where it is not named. What a node holds
    until it is back is away in all of these rounds. `rates` says how long they take. `_variants` remembers limits that
    were made from these: every wave asks for them, and a large cluster has many budgets.
    """

    size: int
    allowed: Mapping[str, int]
    room: Weight = ()
    rounds: Mapping[str, int] = field(default_factory=dict)
    rates: Rates = NO_RATES
    _variants: dict[tuple[str, float], "Limits"] = field(default_factory=dict, init=False, repr=False, compare=False)

    def up_to(self, rounds: int) -> "Limits":
        """The same with at most so many rounds of each budget."""
        key = "rounds", rounds
        if key not in self._variants:
            fewer = {budget: min(rounds, most) for budget, most in self.rounds.items()}
            self._variants[key] = replace(self, rounds=fewer)
        return self._variants[key]

    def with_patience(self, factor: float) -> "Limits":
        """The same where drains may take so many times as long in company."""
        key = "patience", factor
        if key not in self._variants:
            rates = replace(self.rates, patience=self.rates.patience * factor)
            self._variants[key] = replace(self, rounds=rates.rounds(), rates=rates)
        return self._variants[key]

    @property
    def capacity(self) -> Mapping[str, int]:
        """What a group may use of each budget, all rounds together."""
        return {key: most * self.rounds.get(key, 1) for key, most in self.allowed.items()}

    def use(self, load: Load, holds: Load) -> Load:
        """What a node uses of that: what it holds counts in every round."""
        if not holds:
            return load
        held = {key: need * (self.rounds.get(key, 1) - 1) for key, need in holds.items() if key in load}
        return {**load, **{key: load[key] + more for key, more in held.items()}}

    def admits(self, budget: str, used: int, need: int) -> bool:
        """Whether a node that needs so much of a budget may join a group that uses so much of it already."""
        return used == 0 or used + need <= self.allowed.get(budget, 0) * self.rounds.get(budget, 1)

    def has_room(self, used: Weight, more: Weight) -> bool:
        """Whether so much weight may join a group that weighs so much already; an empty one takes anything."""
        return not any(used) or all(
            filled + addition <= most for filled, addition, most in zip(used, more, self.room, strict=False)
        )


def _first_groups(items: Sequence[Item], limits: Limits) -> int:
    """How many groups to open at once: by rate, conflicts of two nodes are rare, and looking for them costs much."""
    if limits.rounds and len(items) > _MANY:
        loads = [item.load for item in items]
        by_size = math.ceil(len(items) / limits.size)
        return max(by_size, _room_bound(items, limits.room), budget_bound(loads, limits.capacity))
    return lower_bound(items, limits)


def lower_bound(items: Sequence[Item], limits: Limits) -> int:
    """A number of groups below which no packing can go: by size, by room, by each budget alone, and by conflicts."""
    loads = [item.load for item in items]
    return max(
        math.ceil(len(items) / limits.size),
        _room_bound(items, limits.room),
        budget_bound(loads, limits.capacity),
        clique_bound(loads, limits.capacity),
    )


def _room_bound(items: Sequence[Item], room: Weight) -> int:
    """Groups that the scarcest room demands; a node that exceeds it is alone with all that weigh anything."""
    bound = 0
    for dimension, most in enumerate(room):
        weights = [item.weight[dimension] for item in items]
        alone = sum(1 for weight in weights if weight > most)
        together = sum(weight for weight in weights if weight <= most)
        bound = max(bound, alone + (math.ceil(together / most) if most > 0 else 0))
    return bound


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


def clique_bound(loads: Sequence[Load], allowed: Mapping[str, int]) -> int:
    """The size of a set of nodes of which no two may be in one group, found greedily from the most contended nodes."""
    conflicts = _conflicts(loads, allowed)
    starts = sorted(range(len(loads)), key=lambda index: (-conflicts[index].bit_count(), index))[:_CLIQUE_STARTS]
    return max((_clique_from(start, conflicts) for start in starts), default=0)


def _conflicts(loads: Sequence[Load], allowed: Mapping[str, int]) -> list[int]:
    """By node, the nodes that it may share no group with, as bits of an integer."""
    needs: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for index, load in enumerate(loads):
        for budget, need in load.items():
            needs[budget].append((need, index))
    conflicts = [0] * len(loads)
    for budget, amounts in needs.items():
        _add_conflicts(conflicts, sorted(amounts, reverse=True), allowed.get(budget, 0))
    return conflicts


def _add_conflicts(conflicts: list[int], amounts: Sequence[tuple[int, int]], allowed: int) -> None:
    """`amounts` are (need, node), largest first: a node conflicts with those that need more than it leaves."""
    reaching, mask = 0, 0
    for need, index in reversed(amounts):
        while reaching < len(amounts) and need + amounts[reaching][0] > allowed:
            mask |= 1 << amounts[reaching][1]
            reaching += 1
        conflicts[index] |= mask & ~(1 << index)


def _clique_from(start: int, conflicts: Sequence[int]) -> int:
    size, candidates = 1, conflicts[start]
    while candidates:
        following = max(_bits(candidates), key=lambda index: ((conflicts[index] & candidates).bit_count(), -index))
        candidates &= conflicts[following]
        size += 1
    return size


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def pack(items: Sequence[Item], limits: Limits) -> list[list[int]]:
    """Groups of indices into `items`; equal inputs give equal groups."""
    return _Packing(items, limits).run()


class _Packing:
    """One packing under way. Sets of groups are integers, a bit for each: they are tested millions of times."""

    def __init__(self, items: Sequence[Item], limits: Limits) -> None:
        self._loads = [item.load for item in items]
        self._heft = [item.weight for item in items]
        self._limits = limits
        self._capacity = limits.capacity
        self._groups: list[list[int]] = [[] for _ in range(_first_groups(items, limits))]
        self._by_size = {0: (1 << len(self._groups)) - 1}
        self._used: list[Counter[str]] = [Counter() for _ in self._groups]
        self._filled: list[Weight] = [_NO_WEIGHT[: len(limits.room)] for _ in self._groups]
        self._barred = [0] * len(items)
        self._waiting = set(range(len(items)))
        self._sharing: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for index, load in enumerate(self._loads):
            for budget, need in load.items():
                self._sharing[budget].append((need, index))
        for sharing in self._sharing.values():
            sharing.sort(reverse=True)
        self._urgency = self._ranks()

    def run(self) -> list[list[int]]:
        while self._waiting:
            index = max(self._waiting, key=self._urgency.__getitem__)
            self._waiting.discard(index)
            self._place(index, self._choose(index))
        return [sorted(group) for group in self._groups if group]

    def _ranks(self) -> list[int]:
        """By node, how soon it must be placed, as one number: barred groups count for more than any rank."""
        weights = [self._weigh(load) for load in self._loads]
        ranks = [0] * len(weights)
        for rank, index in enumerate(sorted(range(len(weights)), key=lambda item: (weights[item], -item))):
            ranks[index] = rank
        return ranks

    def _weigh(self, load: Load) -> float:
        """How much a node is in the way of others: the larger its share of a budget, and the more share that budget."""
        allowed = self._capacity
        return sum(len(self._sharing[budget]) * need / max(1, allowed.get(budget, 0)) for budget, need in load.items())

    def _choose(self, index: int) -> int:
        """The fullest group that takes the node; a new one where none does."""
        barred, heft = self._barred[index], self._heft[index]
        for size in sorted(self._by_size, reverse=True):
            for number in _bits(self._by_size[size] & ~barred):
                if not heft or self._limits.has_room(self._filled[number], heft):
                    return number
        self._by_size[0] = self._by_size.get(0, 0) | 1 << len(self._groups)
        self._groups.append([])
        self._used.append(Counter())
        self._filled.append(_NO_WEIGHT[: len(self._limits.room)])
        return len(self._groups) - 1

    def _place(self, index: int, number: int) -> None:
        self._fill(number, index)
        self._filled[number] = tuple(
            filled + more for filled, more in zip(self._filled[number], self._heft[index], strict=False)
        )
        used, bit = self._used[number], 1 << number
        for budget, need in self._loads[index].items():
            used[budget] += need
            if used[budget]:
                self._bar(self._sharing[budget], self._capacity.get(budget, 0) - used[budget], bit)

    def _bar(self, sharing: Sequence[tuple[int, int]], left: int, bit: int) -> None:
        """Bar those from a group that need more of a budget than is left there; the first need most."""
        for need, index in sharing:
            if need <= left:
                break
            if index in self._waiting and not self._barred[index] & bit:
                self._barred[index] |= bit
                self._urgency[index] += len(self._urgency)

    def _fill(self, number: int, index: int) -> None:
        """Put the node into the group; full ones are looked at no more."""
        group, bit = self._groups[number], 1 << number
        self._by_size[len(group)] &= ~bit
        if not self._by_size[len(group)]:
            del self._by_size[len(group)]
        group.append(index)
        if len(group) < self._limits.size:
            self._by_size[len(group)] = self._by_size.get(len(group), 0) | bit
