"""What the steps of one node's run have at hand, and where that run stands."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from rollout.execution.base.stop import StopRequest
from rollout.execution.drain.task import NodeTask
from rollout.execution.node.host import NodeHost
from rollout.execution.node.transitions import BEFORE_REBOOT, GivenUpError, advance
from rollout.gather.hosts.probe import BootFacts
from rollout.model.cluster import Node
from rollout.model.detection import Source
from rollout.model.host import Host
from rollout.model.own_node import OwnNode
from rollout.model.plan import PlannedNode
from rollout.model.progress import Outcome, Phase
from rollout.planning.eligibility.away import AwayLimit


class NodeAdmission(Protocol):
    """What an untouched node has to pass before it is cordoned, whatever admitted it before."""

    def refusal(self, planned: PlannedNode) -> str:
        """Why it may not be begun now, empty where it may; the slow questions come first. May raise `ApiError`."""
        ...

    def limit(self, nodes: Iterable[Node]) -> AwayLimit:
        """How many of these, all there are, may be away."""
        ...


class Occasion(StrEnum):
    """When a playbook runs; the words are those of `rollout_occasion`."""

    PRE_REBOOT = "pre-reboot"
    POST_REBOOT = "post-reboot"


class NodePlaybooks(Protocol):
    """Runs a playbook on one host."""

    def run(
        self,
        occasion: Occasion,
        host: Host,
        variables: Mapping[str, object],
        *,
        seconds: float,
        check: Callable[[], None],
        notice: Callable[[str], None],
    ) -> str:
        """Why it failed, empty where it passed, or there is none for this occasion; `notice` hears of each task.

        `check` is called again and again while it runs: what it raises ends the playbook, and is raised.
        """
        ...


class NodeGates(Protocol):
    """Everything that can hold one node up between its steps."""

    def before_node(self, context: "NodeContext") -> None:
        """Return where an untouched node may be begun; `NodeFailure` where not."""
        ...

    def is_shut(self, planned: PlannedNode) -> bool:
        """Whether its windows are closed now: people, or checks, may have been waited for until the next day."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext(NodeTask):
    """One node's way through a rollout: its turn, its host, and what may hold it up or stop it.

    `is_taken_up`: an earlier process has begun this node. `remember` is told of a failure before its marks go; `own`
    is this very node where this process is on it.
    """

    host: NodeHost
    gates: NodeGates
    admission: NodeAdmission
    stop: StopRequest
    is_taken_up: bool = False
    own: OwnNode | None = None
    playbooks: NodePlaybooks | None = None
    remember: Callable[[PlannedNode, Outcome, Phase], None] = field(default=lambda _node, _outcome, _phase: None)


@dataclass(frozen=True, slots=True)
class Progress:
    """The phase, and what the run has learnt on the way.

    `marked`: our marks stand on the Node. `in_doubt`: an earlier process may or may not have asked for the reboot.
    `drains`: how often it went back to draining, as pods had come again. `targets` are what the sources that asked for
    the reboot have to be shown after it. `note` is what is worth telling of a node that succeeds, `unmoved` as of a
    `NodeResult`. `endings` are those of the last drain, in seconds by owner.
    """

    phase: Phase = Phase.PENDING
    staged_version: str = ""
    boot: BootFacts | None = None
    marked: bool = False
    in_doubt: bool = False
    drains: int = 0
    targets: Mapping[Source, str] = field(default_factory=dict)
    note: str = ""
    unmoved: int = 0
    endings: tuple[tuple[str, float], ...] = ()

    def to(self, phase: Phase) -> "Progress":
        """Return the same, one phase on."""
        return replace(self, phase=advance(self.phase, phase))

    @property
    def version(self) -> str:
        """The version that the host is known to run, as far as this run has seen."""
        return self.boot.version if self.boot else ""


def until_given_back(context: NodeContext, phase: Phase) -> NodeContext:
    """Return the context for a step that begins in this phase: what is not rebooting yet may be wished back."""

    def check() -> None:
        context.check()
        if context.stop.reverting:
            raise GivenUpError

    return replace(context, check=check) if phase in BEFORE_REBOOT else context
