"""What a drain has at hand: the node, the rules, the cluster and whom to tell."""

from dataclasses import dataclass, field

from rollout.execution.base.guard import Guard
from rollout.execution.base.patience import PatientApi
from rollout.execution.base.reporting import Reporter
from rollout.execution.drain.moves import MovedPods
from rollout.execution.drain.precedence import Precedence
from rollout.execution.events.writer import EventWriter
from rollout.model.policy import DrainPolicy


@dataclass(frozen=True, slots=True)
class DrainTask:
    """One node to empty, on behalf of a rollout, whose id is `rollout`.

    `spent` is how many seconds of its time-out another process has had. `returning` takes up the UIDs of owners whose
    pods are left, for they come back however often they are evicted. `precedence`, `moved` and `events` are what the
    drains of one process have in common; without `events` a drain has its Events written beside it, and whoever ends
    the process does not wait for the last of them.
    """

    node: str
    node_uid: str
    rollout: str
    policy: DrainPolicy
    cluster: PatientApi
    guard: Guard
    report: Reporter
    returning: set[str] = field(default_factory=set)
    precedence: Precedence = field(default_factory=Precedence)
    moved: MovedPods = field(default_factory=MovedPods)
    events: EventWriter | None = None
    spent: float = 0.0
