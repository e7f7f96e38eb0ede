"""What the steps of one node's run have at hand, and how far that run is."""

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

_UNSEEN = BootFacts("", "", "")


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
        """Return why the playbook failed; empty if it passed, or if there is none.

        `notice` is called with each task. `check` is called repeatedly while the playbook runs; an
        error that it raises ends the playbook, and is raised.
        """
        ...


class Rescue(Protocol):
    """Runs reboot.rescue for a host that has not come back, within its own timeout."""

    def __call__(
        self, environment: Mapping[str, str], *, stopped: Callable[[], bool]
    ) -> CommandEnd: ...


class NodeEngine(Protocol):
    """What the steps of a node ask of the rollout that the node is part of: its `Engine`.

    Who may prevent or end what, in the order of a node's way:

    * `PolicyGates.ask`, before the node starts: the node waits, or is given up.
    * `objection_to_version`, for a version other than the planned one: the node is skipped before
      its cordon (`NotStartedError`), and returned later (`WithheldError`).
    * `run_node_command`, before the first mark: the node is skipped.
    * `why_refused`, right before the cordon: the gates again, then the stop of the rollout and its
      failures. The node is tried again (`RefusedError`).
    * `away_limit_of` and `busy_controller`, right before the cordon: the same.
    * `is_window_closed`, after waits that the settings ask for: the node is returned.
    * `check_may_act`, before each write: the run no longer holds its lock (`FencedError`).
    """

    @property
    def stop(self) -> StopRequest: ...

    @property
    def playbooks(self) -> NodePlaybooks | None: ...

    @property
    def rescue(self) -> Rescue | None: ...

    def run_node_command(self, context: "NodeContext") -> None:
        """Run gates.command for a node; `NotStartedError` if it refuses the node.

        `why_refused` checks the other gates.
        """
        ...

    def is_window_closed(self, planned: PlannedNode) -> bool: ...

    def why_refused(self, planned: PlannedNode) -> Finding | None:
        """Return why the node may not be cordoned now, None if it may. May raise `ApiError`."""
        ...

    def away_limit_of(self, nodes: Collection[Node]) -> AwayLimit: ...

    def busy_controller(self, name: str, nodes: Iterable[Node]) -> ControllerMoving | None:
        """Return a controller of the node's pods that first has to empty one of these nodes."""
        ...

    def objection_to_version(self, planned: PlannedNode, version: str | None) -> Finding | None:
        """Return why the node may not boot into this staged version; `version` None is unknown."""
        ...

    def show_phase(self, name: str, phase: Phase) -> None:
        """Set the conditions of the phase that a node has entered, if the settings ask for it."""
        ...

    def remember(self, planned: PlannedNode, end: NodeEnd) -> None:
        """Store for later rollouts how the node ended, a failure before its marks are removed."""
        ...


class HostAccess(Protocol):
    """How a run reaches its node's host: over SSH, or not at all if the host asks by itself."""

    @property
    def host(self) -> Host: ...

    @property
    def error(self) -> SshError | None:
        """Why the host did not respond when it was last asked, None if it did."""
        ...

    def boot_now(self) -> BootFacts | None:
        """Return facts of the current boot, None if the host does not tell."""
        ...

    def at_end(self, planned: PlannedNode) -> PlannedNode | None:
        """Return the node with the version that its end is about; None if it is about none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext(NodeTask):
    """One node's run: its rollout, its host, and what is known of its Node.

    `is_taken_up`: an earlier process has started this node. `own` is set if this process runs on
    the node. `watched` is the watch of its Node once the node is started.
    """

    engine: NodeEngine
    host: HostAccess
    is_taken_up: bool = False
    own: OwnNode | None = None
    watched: WatchedNode | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """The phase of a node, and what its run has learned so far.

    staged_version: the version that the node was last approved for.
    boot: the boot after the reboot.
    marked: rollout's marks are on the Node.
    in_doubt: an earlier process may have requested the reboot.
    drains: how often new pods have sent the node back to draining.
    restagings: how often the host has staged another version.
    targets: what each source that asked for the reboot must show after it.
    note: what to report of a node that succeeds.
    ineffective_reboots: how many reboots in a row have changed nothing.
    endings: seconds that pods took to end in the last drain, by owner.
    edge: the move into the phase, None if it was reported before.
    """

    phase: Phase = Phase.PENDING
    staged_version: str = ""
    boot: BootFacts = _UNSEEN
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
        """A move that is not in the table is a defect."""
        return replace(self, phase=follow(self.phase, edge), edge=edge)

    def again(self) -> "Progress":
        return replace(self, edge=None)

    @property
    def version(self) -> str:
        """The version that the host is known to run, as far as this run has seen."""
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
    """Return the context whose `check_may_act` suits a step in this phase.

    Until the reboot is requested, the check also raises `GivenUpError` when a stop returns nodes,
    and `NodeRemovedError` when the Node is removed.
    """
    if phase not in BEFORE_REBOOT:
        return context

    def check_before_reboot() -> None:
        context.check_may_act()
        if context.engine.stop.returns_nodes:
            raise GivenUpError
        removal = context.watched.why_removed if context.watched else ""
        if removal:
            raise NodeRemovedError(f"not rebooted: {removal} while it was {phase}")

    return replace(context, check_may_act=check_before_reboot)
