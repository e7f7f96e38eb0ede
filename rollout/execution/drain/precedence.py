"""Whose permit is next, where several drains of one process want those of one budget.

The node that is nearest to being empty goes first: then its reboot begins while the others still drain, where all would
end together otherwise. A drain that has used up half of its time goes before those that have not. Nobody waits for a
drain that lets a permit lie: after a few seconds it is taken.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

# Seconds that a permit is left to a drain which is to go first.
_MOST_DEFERENCE = 3.0


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a drain stands: how many pods are left, and of each budget how many could go at once if it let them.

    `pressed`: half of its time is over.
    """

    left: int
    wanted: Mapping[str, int]
    pressed: bool = False


@dataclass(slots=True)
class Precedence:
    """The drains of one process. Used by all of their threads."""

    _standings: dict[str, Standing] = field(default_factory=dict)
    _deferring: dict[tuple[str, str], float] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def stand(self, node: str, standing: Standing) -> None:
        """Where this node's drain stands now."""
        with self._turn:
            self._standings[node] = standing

    def leave(self, node: str) -> None:
        """This node's drain has ended."""
        with self._turn:
            self._standings.pop(node, None)
            for known in [known for known in self._deferring if known[0] == node]:
                del self._deferring[known]

    def ahead(self, node: str, budget: str, allowance: int, now: float) -> str:
        """The node for which this one has to leave a budget's permits, of which there are so many; empty: none."""
        with self._turn:
            first = self._first(node, budget, allowance)
            if not first:
                self._deferring.pop((node, budget), None)
                return ""
            since = self._deferring.setdefault((node, budget), now)
            return first if now - since < _MOST_DEFERENCE else ""

    def closed(self, node: str, budget: str) -> None:
        """The budget lets nothing go now: those who are ahead have taken what there was."""
        with self._turn:
            self._deferring.pop((node, budget), None)

    def _first(self, node: str, budget: str, allowance: int) -> str:
        own = self._rank(node)
        ahead = [other for other in self._standings if self._rank(other) < own]
        wanting = {other: wanted for other in ahead if (wanted := self._standings[other].wanted.get(budget, 0))}
        if not wanting or sum(wanting.values()) < allowance:
            return ""
        return min(wanting, key=self._rank)

    def _rank(self, node: str) -> tuple[bool, int, str]:
        standing = self._standings[node]
        return not standing.pressed, standing.left, node
