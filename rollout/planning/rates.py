"""Budgets as rates: how long drains take that share what a budget allows at a time.

An evicted pod gives its permit back once its replacement is ready. So the drains of a wave are played through every
budget: pod after pod, as many at a time as it allows, the nodes that are nearest to being empty first.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

# Nobody waits longer than that many turns for a budget, even where no deadline ends a drain.
_MOST_ROUNDS = 1000


class Draining(Protocol):
    """A node to empty. `pods` is how many leave, and `ending` the seconds that the slowest of them takes to end.

    `load` is what they take of each budget, `holds` the part of it that comes back only with the node.
    """

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def load(self) -> Mapping[str, int]:
        """Pods by budget."""
        ...

    @property
    def holds(self) -> Mapping[str, int]:
        """Pods by budget."""
        ...

    @property
    def pods(self) -> int:
        """All of them."""
        ...

    @property
    def ending(self) -> int:
        """Seconds."""
        ...


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast a budget lets pods go: `permits` at a time, each away until its replacement is ready.

    All else is seconds: `ending` until a pod is gone, `turn` until its replacement is ready. `margin` is by how many
    more a turn may take where only the past speaks for its being shorter than assumed: no drain may run into its
    deadline for that. `spacing` is how far apart permits come back that were used together.
    """

    permits: int
    ending: int
    turn: int
    margin: int = 0
    spacing: int = 0

    def seconds(self, pods: int, held: int = 0) -> int:
        """How long it takes until the last of so many pods is gone, `held` permits being away all the while."""
        if pods + held <= self.permits:
            return self.ending  # as mostly, and asked for many thousand times
        return self.ending + self.ready(max(0, pods - max(1, self.permits - held)), held)

    def ready(self, pods: int, held: int = 0) -> int:
        """How long it takes until the replacements of so many pods are ready, and their permits back."""
        if not pods:
            return 0
        rounds = -(-pods // max(1, self.permits - held))
        return max(rounds * self.turn, self.turn + (pods - 1) * self.spacing)

    def rounds_within(self, seconds: float) -> int:
        """How often its permits may be given anew within so many seconds; at least once."""
        turn = max(1, self.turn + self.margin)
        rounds = int((seconds - self.ending) // turn) + 1
        if self.spacing:
            pods = self.permits + 1 + int((seconds - self.ending - turn) // (self.spacing + self.margin))
            rounds = min(rounds, pods // max(1, self.permits))
        return min(_MOST_ROUNDS, max(1, rounds))


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates of all budgets that drains meet. `patience`: the most seconds that a drain may take in company.

    `between` is what each wave takes besides its drains, in seconds.
    """

    by_key: Mapping[str, Rate] = field(default_factory=dict)
    patience: float = 0.0
    between: int = 0

    def rounds(self) -> Mapping[str, int]:
        """How often each budget's permits may be given within the patience."""
        return {key: rate.rounds_within(self.patience) for key, rate in self.by_key.items()}

    def drains(self, nodes: Iterable[Draining]) -> Mapping[str, int]:
        """When each of these nodes, drained side by side, is empty: seconds by name."""
        going = sorted(nodes, key=lambda node: (node.pods, node.name))
        if len(going) == 1:
            return {going[0].name: self.drain_alone(going[0])}
        held = sum_of(node.holds for node in going)
        gone: dict[str, int] = {}
        seconds: dict[str, int] = {}
        for node in going:
            seconds[node.name] = node.ending
            for key, need in node.load.items():
                if (rate := self.by_key.get(key)) is None:
                    continue
                passing = need - node.holds.get(key, 0)
                gone[key] = passed = gone.get(key, 0) + passing
                waited = rate.seconds(passed, held.get(key, 0)) if passing else rate.ending
                seconds[node.name] = max(seconds[node.name], waited)
        return seconds

    def drain(self, nodes: Iterable[Draining]) -> int:
        """When the last of these nodes is empty, in seconds: in which order they go makes no difference to that."""
        side_by_side = list(nodes)
        longest = max((node.ending for node in side_by_side), default=0)
        load, holds = sum_of(node.load for node in side_by_side), sum_of(node.holds for node in side_by_side)
        return self._lasting(load, holds, longest)

    def drain_alone(self, node: Draining) -> int:
        """When this node is empty with no other beside it."""
        return self._lasting(node.load, node.holds, node.ending)

    def _lasting(self, load: Mapping[str, int], holds: Mapping[str, int], ending: int) -> int:
        """How long it takes until all of these pods are gone, of which the slowest takes so long to end."""
        seconds, by_key = ending, self.by_key
        for key, need in load.items():
            if (rate := by_key.get(key)) is None:
                continue
            if need <= rate.permits:
                waited = rate.ending
            else:
                held = holds.get(key, 0)
                waited = rate.seconds(need - held, held) if need > held else rate.ending
            seconds = max(seconds, waited)
        return seconds

    def waits(self, nodes: Sequence[Draining], at_once: int) -> Mapping[str, int]:
        """How many seconds longer each of these nodes drains in company than alone: so many at once, in their order."""
        alone = self._alone(nodes)
        companies = (nodes[first : first + at_once] for first in range(0, len(nodes), at_once))
        return self._waits(companies, alone)

    def waits_beside(
        self, nodes: Iterable[Draining], begins: Mapping[str, int], waits: Mapping[str, int]
    ) -> Mapping[str, int]:
        """The same where they begin at these times: a node has for company those that begin while the first drains.

        `waits` is how long each may wait at most, so that the company is rather too large than too small.
        """
        order = sorted(nodes, key=lambda node: (begins[node.name], node.name))
        alone = self._alone(order)
        companies: list[list[Draining]] = []
        end = -1
        for node in order:
            if begins[node.name] >= end:
                companies.append([])
                end = begins[node.name] + max(1, alone[node.name] + waits[node.name])
            companies[-1].append(node)
        return {name: min(waits[name], seconds) for name, seconds in self._waits(companies, alone).items()}

    def _alone(self, nodes: Iterable[Draining]) -> Mapping[str, int]:
        return {node.name: self.drain_alone(node) for node in nodes}

    def _waits(self, companies: Iterable[Sequence[Draining]], alone: Mapping[str, int]) -> Mapping[str, int]:
        together = (self.drains(company).items() for company in companies)
        return {name: max(0, seconds - alone[name]) for drains in together for name, seconds in drains}

    def price(self, nodes: Sequence[Draining]) -> tuple[str, int]:
        """The budget that these nodes wait for longest in company, and how many seconds more than each alone."""
        users, load = Counter(key for node in nodes for key in node.load), sum_of(node.load for node in nodes)
        shared = (key for key, number in users.items() if number > 1)
        seconds = {key: rate.seconds(load[key]) for key in shared if (rate := self.by_key.get(key))}
        if not seconds:
            return "", 0
        more = self.drain(nodes) - max(map(self.drain_alone, nodes))
        return min(seconds, key=lambda key: (-seconds[key], key)), more


NO_RATES = Rates()


@dataclass(slots=True)
class SharedDrain:
    """Nodes that drain side by side, as they become more. `seconds`: until the last of them is empty."""

    rates: Rates
    seconds: int = 0
    _passing: dict[str, int] = field(default_factory=dict)
    _held: dict[str, int] = field(default_factory=dict)

    def seconds_with(self, node: Draining) -> int:
        """How long it would be with this node too."""
        seconds, by_key = max(self.seconds, node.ending), self.rates.by_key
        for key, need in node.load.items():
            if (rate := by_key.get(key)) is None:
                continue
            held = node.holds.get(key, 0)
            passing = self._passing.get(key, 0) + need - held
            waited = rate.seconds(passing, self._held.get(key, 0) + held) if passing else rate.ending
            seconds = max(seconds, waited)
        return seconds

    def add(self, node: Draining) -> None:
        """One more."""
        self.seconds = self.seconds_with(node)
        for key, need in node.load.items():
            held = node.holds.get(key, 0)
            self._held[key] = self._held.get(key, 0) + held
            self._passing[key] = self._passing.get(key, 0) + need - held

    def copy(self) -> "SharedDrain":
        """The same, to be changed on its own."""
        return SharedDrain(self.rates, self.seconds, self._passing.copy(), self._held.copy())


def sum_of(loads: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    """Several loads in one; a Counter's own `update` takes three times as long."""
    total: dict[str, int] = {}
    for load in loads:
        for key, need in load.items():
            total[key] = total.get(key, 0) + need
    return total
