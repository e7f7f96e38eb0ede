"""What the steps of a node's run work with, and how far that run is."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from rollout.errors import SshError
from rollout.execution.base.deadline import StopRequest
from rollout.execution.drain.task import NodeTask
from rollout.execution.node.failures import GivenUpError, NodeRemovedError
from rollout.execution.node.transitions import BEFORE_REBOOT, follow
from rollout.execution.node.watched import WatchedNode
from rollout.gather.hosts.probe import BootFacts
from rollout.model.cluster import Node
from rollout.model.detection import Source
from rollout.model.finding import ControllerMoving, Finding
from rollout.model.host import Host
from rollout.model.own_node import OwnNode
from rollout.model.plan import PlannedNode
from rollout.model.progress import Edge, Phase
from rollout.model.tool_output import CommandEnd
from rollout.planning.eligibility.away import AwayLimit
from rollout.planning.eligibility.memory import NodeEnd

UNSEEN = BootFacts("", "", "")


class Occasion(StrEnum):
    PRE_REBOOT = "pre-reboot"
    POST_REBOOT = "post-reboot"


class NodePlaybooks(Protocol):
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
        """Return why the playbook failed; empty if it passed, or if there is none.

        `notice` gets each task. `check` is called repeatedly; its error ends the playbook.
        """
        ...


class Rescue(Protocol):
    """Runs reboot.rescue, within its own timeout."""

    def __call__(
        self, environment: Mapping[str, str], *, stopped: Callable[[], bool]
    ) -> CommandEnd: ...


class NodeEngine(Protocol):
    """What the steps of a node ask of their rollout.

    Who may stop a node, in this order:

        PolicyGates.ask        before the start: it waits, or is given up
        run_node_command       before the first mark: it is skipped
        why_refused            right before the cordon: it is tried again
        away_limit_of          the same
        busy_controller        the same
        objection_to_version   another version is staged: it is skipped or returned
        is_window_closed       after configured waits: it is returned
        check_may_act          before each write: the lock is lost
    """

    @property
    def stop(self) -> StopRequest: ...

    @property
    def playbooks(self) -> NodePlaybooks | None: ...

    @property
    def rescue(self) -> Rescue | None: ...

    def run_node_command(self, context: "NodeContext") -> None:
        """Run gates.command for a node; `NotStartedError` if it refuses."""
        ...

    def is_window_closed(self, planned: PlannedNode) -> bool: ...

    def why_refused(self, planned: PlannedNode) -> Finding | None:
        """Return why the node may not be cordoned now, or None. May raise `ApiError`."""
        ...

    def away_limit_of(self, nodes: Collection[Node]) -> AwayLimit: ...

    def busy_controller(self, name: str, nodes: Iterable[Node]) -> ControllerMoving | None:
        """Return a controller of the node's pods that has yet to empty one of these nodes."""
        ...

    def objection_to_version(self, planned: PlannedNode, version: str | None) -> Finding | None:
        """Return why the node may not boot into this staged version; None is an unknown one."""
        ...

    def show_phase(self, name: str, phase: Phase) -> None:
        """Set the node's conditions, if the settings ask for it."""
        ...

    def remember(self, planned: PlannedNode, end: NodeEnd) -> None:
        """Store how the node ended, for later rollouts."""
        ...


class HostAccess(Protocol):
    """How a run reaches its node's host: over SSH, or not at all if the host asks by itself."""

    @property
    def host(self) -> Host: ...

    @property
    def error(self) -> SshError | None:
        """Why the host last did not respond, None if it did."""
        ...

    def boot_now(self) -> BootFacts | None:
        """Return facts of the current boot, None if unknown."""
        ...

    def at_end(self, planned: PlannedNode) -> PlannedNode | None:
        """Return the node with the version that its end says something about, or None."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext(NodeTask):
    """One node's run: its rollout, its host, and what is known of its Node.

    `is_taken_up`: an earlier process has started it. `own` is set if this process runs on it.
    """

    engine: NodeEngine
    host: HostAccess
    is_taken_up: bool = False
    own: OwnNode | None = None
    watched: WatchedNode | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """The phase of a node, and what its run has learned so far.

    staged_version: the one last approved.
    in_doubt: an earlier process may have requested the reboot.
    drains: how often new pods led back to draining.
    targets: what each source must show after the reboot.
    note: what to report of a success.
    ineffective_reboots: reboots in a row that changed nothing.
    endings: seconds that pods took to end in the last drain, by owner.
    edge: the move into the phase, None if already reported.
    """

    phase: Phase = Phase.PENDING
    staged_version: str = ""
    boot: BootFacts = UNSEEN
    marked: bool = False
    in_doubt: bool = False
    drains: int = 0
    restagings: int = 0
    targets: Mapping[Source, str] = field(default_factory=dict)
    note: str = ""
    ineffective_reboots: int = 0
    endings: tuple[tuple[str, float], ...] = ()
    edge: Edge | None = None

    def move(self, edge: Edge) -> "Progress":
        return replace(self, phase=follow(self.phase, edge), edge=edge)

    def again(self) -> "Progress":
        return replace(self, edge=None)

    @property
    def version(self) -> str:
        return self.boot.version


def at_version(context: NodeContext, version: str) -> NodeContext:
    planned = context.planned
    if version == planned.staged_version:
        return context
    return replace(
        context,
        planned=replace(planned, staged_version=version, staged=planned.staged or bool(version)),
    )


def with_check_of_phase(context: NodeContext, phase: Phase) -> NodeContext:
    """Before the reboot, make `check_may_act` also raise if the node is to be returned."""
    if phase not in BEFORE_REBOOT:
        return context

    def check_before_reboot() -> None:
        context.check_may_act()
        if context.engine.stop.is_reverting:
            raise GivenUpError
        removal = context.watched.why_removed if context.watched else ""
        if removal:
            raise NodeRemovedError(f"not rebooted: {removal} while it was {phase}")

    return replace(context, check_may_act=check_before_reboot)
