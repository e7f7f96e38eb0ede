"""Who of a wave may begin beside whom, and when the place of a node that has ended is free again."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rollout.model.plan import PlannedNode
from rollout.model.progress import NodeResult


class Admission(Protocol):
    """What a wave's runner asks. Reading the cluster may raise `ApiError`."""

    @property
    def unsettled(self) -> frozenset[str]:
        """Nodes that have ended, and keep their places until the cluster has settled from them."""
        ...

    def candidates(self, waiting: Sequence[PlannedNode], in_flight: Collection[str]) -> Iterator[PlannedNode]:
        """Those of the waiting that may begin beside those in flight, in their order."""
        ...

    def begin(self, nodes: Sequence[PlannedNode]) -> None:
        """These are about to begin."""
        ...

    def end(self, result: NodeResult) -> None:
        """A node has ended."""
        ...

    def look(self, running: frozenset[str]) -> str:
        """See who has settled, while these are under way; why no further node may begin, empty where one may."""
        ...


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Any may begin, and none waits for another to settle: that is for the end of the wave."""

    unsettled: frozenset[str] = frozenset()

    def candidates(
        self,
        waiting: Sequence[PlannedNode],
        in_flight: Collection[str],  # noqa: ARG002 - the protocol's
    ) -> Iterator[PlannedNode]:
        """All."""
        return iter(waiting)

    def begin(self, nodes: Sequence[PlannedNode]) -> None:
        """What was well is measured before the wave."""

    def end(self, result: NodeResult) -> None:
        """What is not well is waited for after the wave."""

    def look(self, running: frozenset[str]) -> str:  # noqa: ARG002 - the protocol's
        """Nothing is waited for."""
        return ""
