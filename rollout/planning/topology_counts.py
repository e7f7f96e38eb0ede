"""How many of certain pods stand under each value of a topology key, kept up to date as pods move.

A large cluster asks this for every pod that moves: nothing here looks at all nodes where it can be helped.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rollout.model.cluster import Node


@dataclass(frozen=True, slots=True)
class Places:
    """The values of a topology key, by the names of the nodes that count as places."""

    topology: str
    by_node: Mapping[str, str]
    values: frozenset[str]

    @classmethod
    def of(cls, topology: str, nodes: Iterable[Node]) -> "Places":
        """Of these nodes, those that carry the key."""
        by_node = {node.name: node.labels[topology] for node in nodes if topology in node.labels}
        return cls(topology, by_node, frozenset(by_node.values()))

    def among(self, closed: frozenset[str]) -> frozenset[str]:
        """The values that still have a node which is not closed."""
        if not closed:
            return self.values
        return frozenset(value for node, value in self.by_node.items() if node not in closed)


@dataclass(slots=True)
class Tally:
    """The count of each value that has any; `_heights` counts the values by their counts, to know the least at once."""

    places: Places
    total: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    _heights: Counter[int] = field(default_factory=Counter)

    def move(self, node: str, by: int) -> None:
        """A pod came to a node (1) or left it (-1)."""
        self.total += by
        value = self.places.by_node.get(node)
        if value is None:
            return
        before = self.counts.get(value, 0)
        self.counts[value] = before + by
        self._heights[before] -= 1
        self._heights[before + by] += 1
        if not self._heights[before]:
            del self._heights[before]

    def least(self) -> int:
        """The smallest count of any value."""
        return 0 if self._has_zero() else min(self._reached(), default=0)

    def reaches(self, most: int) -> bool:
        """Whether any value has a count of at most this."""
        return most >= 0 and (self._has_zero() or any(count <= most for count in self._reached()))

    def _reached(self) -> Iterator[int]:
        return (count for count, number in self._heights.items() if count and number > 0)

    def _has_zero(self) -> bool:
        return len(self.places.values) > sum(self._heights[count] for count in self._reached())
