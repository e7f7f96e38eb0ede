"""Which pods a run has moved, and which of them not for the first time."""

import threading
from dataclasses import dataclass, field

from rollout.model.progress import Moves


@dataclass(slots=True)
class MovedPods:
    """The pods that the drains of one process have evicted or deleted. Used by all of their threads.

    `before` are the UIDs of those that were there when it was planned: any other came during the run, mostly for one
    that was moved.
    """

    before: frozenset[str] = frozenset()
    _moved: set[str] = field(default_factory=set)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def add(self, uid: str) -> None:
        """One more; one that is known already is not counted again."""
        with self._turn:
            self._moved.add(uid)

    def of(self, pods_to_move: int) -> Moves:
        """All so far, beside how many had to move."""
        with self._turn:
            return Moves(pods_to_move, len(self._moved), len(self._moved - self.before))
