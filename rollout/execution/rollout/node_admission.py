"""What admits a node of a rollout, asked once more in the step that cordons it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rollout.execution.gates.gates import Gates
from rollout.model.cluster import Node
from rollout.model.plan import PlannedNode, RolloutPlan
from rollout.planning.away import Room


@dataclass(frozen=True, slots=True)
class RunAdmission:
    """The gates, the reasons why no further node may begin, and the limit; percentages are of `selected` nodes."""

    plan: RolloutPlan
    selected: int
    gates: Gates
    reason_to_stop: Callable[[], str]

    def refusal(self, planned: PlannedNode) -> str:
        """Why a node may not be begun now; the gates first, which may be slow."""
        return self.gates.refusal(planned) or self.reason_to_stop()

    def room(self, nodes: Iterable[Node]) -> Room:
        """How many of these may be away."""
        return Room.of(self.plan, self.selected, nodes)
