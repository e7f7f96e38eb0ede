"""What the steps of one node's way through a rollout have at hand."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from rollout.execution.base.guard import Guard
from rollout.execution.base.patience import PatientApi
from rollout.execution.base.reporting import Reporter
from rollout.execution.base.stop import StopRequest
from rollout.execution.drain.moves import MovedPods
from rollout.execution.drain.precedence import Precedence
from rollout.execution.drain.task import DrainTask
from rollout.execution.events.writer import EventWriter
from rollout.execution.node.host import NodeHost
from rollout.execution.node.task import NodeTask
from rollout.gather.hosts.boot import BootFacts
from rollout.model.cluster import Node
from rollout.model.own_node import OwnNode
from rollout.model.plan import PlannedNode
from rollout.model.policy import Policy
from rollout.model.progress import Outcome, Phase
from rollout.planning.away import Room


class NodeAdmission(Protocol):
    """What an untouched node has to pass before it is cordoned, whatever admitted it before."""

    def refusal(self, planned: PlannedNode) -> str:
        """Why it may not be begun now, empty where it may; the slow questions come first. May raise `ApiError`."""
        ...

    def room(self, nodes: Iterable[Node]) -> Room:
        """How many of these, all there are, may be away."""
        ...


class NodeGates(Protocol):
    """Everything that can hold one node up between its steps."""

    def before_node(self, context: "NodeContext") -> None:
        """Return where an untouched node may be begun; `NodeFailure` where not."""
        ...

    def before_drain(self, context: "NodeContext") -> None:
        """Return once a cordoned node may be drained and rebooted; `NodeFailure` where it may not in time."""
        ...

    def after_waiting(self, context: "NodeContext", when: str) -> None:
        """Return where a node that has waited may go on; `NodeFailure`, which says `when`, where it came too late."""
        ...

    def before_reboot(self, context: "NodeContext") -> None:
        """Return once a drained node may be told to reboot; `NodeFailure` where it may not in time."""
        ...

    def after_reboot(self, context: "NodeContext", boot: BootFacts) -> None:
        """Return once a rebooted node may be given back; `NodeFailure` where it may not in time."""
        ...


@dataclass(frozen=True, slots=True)
class NodeContext:
    """One node's way through a rollout: the node, its host, the rules, and what may hold it up or stop it.

    `is_taken_up`: an earlier process has begun this node. `returning` are the UIDs of the owners whose pods the drain
    left, for they come back however often they are evicted. `remember` is told of a failure before its marks go; `own`
    is this very node where this process is on it. `events` writes those of the run.
    """

    task: NodeTask
    host: NodeHost
    policy: Policy
    gates: NodeGates
    admission: NodeAdmission
    stop: StopRequest
    is_taken_up: bool = False
    returning: set[str] = field(default_factory=set)
    precedence: Precedence = field(default_factory=Precedence)
    moved: MovedPods = field(default_factory=MovedPods)
    own: OwnNode | None = None
    events: EventWriter | None = None
    remember: Callable[[PlannedNode, Outcome, Phase], None] = field(default=lambda _node, _outcome, _phase: None)

    @property
    def name(self) -> str:
        """The Node's name."""
        return self.task.name

    @property
    def planned(self) -> PlannedNode:
        """What was planned for the node."""
        return self.task.planned

    @property
    def cluster(self) -> PatientApi:
        """Where the Node stands."""
        return self.task.cluster

    @property
    def guard(self) -> Guard:
        """What is asked before every act."""
        return self.task.guard

    @property
    def report(self) -> Reporter:
        """Who is told."""
        return self.task.report

    @property
    def drain(self) -> DrainTask:
        """The drain of this node."""
        return DrainTask(
            self.name,
            self.planned.node_uid,
            self.task.rollout,
            self.policy.drain,
            self.cluster,
            self.guard,
            self.report,
            self.returning,
            self.precedence,
            self.moved,
            self.events,
        )
