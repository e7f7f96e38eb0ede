"""What every act on one Node has at hand."""

from dataclasses import dataclass, field

from rollout.execution.base.guard import Guard
from rollout.execution.base.patience import PatientApi
from rollout.execution.base.reporting import Reporter
from rollout.model.courtesy import CourtesyPolicy
from rollout.model.plan import PlannedNode


@dataclass(frozen=True, slots=True)
class NodeTask:
    """One node's turn: what was planned for it, for which rollout (its id), and since when, in monotonic seconds.

    `courtesy` is by which rules others' labels and annotations are written on it.
    """

    planned: PlannedNode
    rollout: str
    cluster: PatientApi
    guard: Guard
    report: Reporter
    started: float = 0.0
    courtesy: CourtesyPolicy = field(default_factory=CourtesyPolicy)

    @property
    def name(self) -> str:
        """The Node's name."""
        return self.planned.name

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return self.cluster.clock.monotonic() - self.started
