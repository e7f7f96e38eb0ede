from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from rollout.errors import DrainError, SshError
from rollout.execution.base.deadline import GracefulStop
from rollout.execution.base.gate_ports import NodePlaybooks, Rescue
from rollout.execution.base.reporting import LongestTerminations
from rollout.execution.drain.task import NodeTask
from rollout.execution.node.failures import NodeRemovedError, StoppedError
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
from rollout.planning.eligibility.away import AwayLimit
from rollout.planning.eligibility.memory import NodeEnd

UNKNOWN_BOOT = BootFacts("", "", "")


class NodeEngine(Protocol):
    """What the steps of a node ask of their rollout.

    Who may stop a node, in this order. Gates are asked three times, because they may change:

        question                where                                    if the answer is no
        PolicyGates.ask         WaveRunner, before the thread            it waits, or is dropped
        objection_to_version    at each newly staged version             it is skipped or returned
        run_gate_command        before claim_and_cordon                  it is skipped
        why_not_to_cordon       claim_and_cordon, twice                  it is tried again
        away_limit_of           claim_and_cordon                         it is tried again
        find_busy_controller    claim_and_cordon                         it is tried again
        is_window_closed        after configured waits                   it is returned
        check_may_act           before each write                        it is left as it is

    With FleetLock, `SlotAdmission._check_gates` asks `PolicyGates.ask` before it reserves a slot. A
    node that is to be tried again releases its slot until the host's next request.
    """

    @property
    def stop(self) -> GracefulStop: ...

    @property
    def playbooks(self) -> NodePlaybooks | None: ...

    @property
    def rescue(self) -> Rescue | None: ...

    def run_gate_command(self, context: "NodeContext") -> None:
        """`NotStartedError` if gates.command refuses."""
        ...

    def is_window_closed(self, planned: PlannedNode) -> bool: ...

    def why_not_to_cordon(self, planned: PlannedNode) -> Finding | None: ...

    def away_limit_of(self, nodes: Collection[Node]) -> AwayLimit: ...

    def find_busy_controller(self, name: str, nodes: Iterable[Node]) -> ControllerMoving | None: ...

    def objection_to_version(self, planned: PlannedNode, version: str | None) -> Finding | None:
        """`version` is None if unknown."""
        ...

    def set_phase_conditions(self, name: str, phase: Phase) -> None: ...

    def remember(self, planned: PlannedNode, end: NodeEnd) -> None: ...


class HostAccess(Protocol):
    """The host of a node: over SSH, or out of reach if it asks for its reboot itself."""

    @property
    def endpoint(self) -> Host: ...

    @property
    def error(self) -> SshError | None:
        """None if the host last responded."""
        ...

    def boot_now(self) -> BootFacts | None:
        """None if unknown."""
        ...

    def node_to_remember(self, planned: PlannedNode) -> PlannedNode | None:
        """None if the host's version is unknown."""
        ...


class NodeContext(NodeTask, frozen=True, kw_only=True):
    engine: NodeEngine
    host: HostAccess
    started_by_earlier_process: bool = False
    # Only if this process runs on this node.
    own_node: OwnNode | None = None
    # None until the cordon.
    watched: WatchedNode | None = None


class Progress(Struct, frozen=True):
    phase: Phase = Phase.PENDING
    # Approved at the claim, or when another was staged since.
    staged_version: str = ""
    boot: BootFacts = UNKNOWN_BOOT
    # The Node has this rollout's marks.
    marked: bool = False
    # The host may not have received the request to reboot.
    in_doubt: bool = False
    # How often pods have come to the drained node.
    repeated_drains: int = 0
    # How often the host has staged another update since the claim.
    restagings: int = 0
    # What each source must show after the reboot.
    targets: Mapping[Source, str] = {}
    note: str = ""
    # Reboots in a row that changed nothing.
    ineffective_reboots: int = 0
    # Of the last drain.
    longest_terminations: LongestTerminations = ()
    # The move into the phase; None if reported.
    edge: Edge | None = None

    def move(self, edge: Edge) -> "Progress":
        return replace(self, phase=follow(self.phase, edge), edge=edge)

    @property
    def version(self) -> str:
        return self.boot.running_version


def with_staged_version(context: NodeContext, version: str) -> NodeContext:
    planned = context.planned
    if version == planned.staged_version:
        return context
    # An update may be staged without a known version.
    is_staged = planned.staged or bool(version)
    planned = replace(planned, staged_version=version, staged=is_staged)
    return replace(context, planned=planned)


def with_pre_reboot_check(context: NodeContext, phase: Phase) -> NodeContext:
    """Let `check_may_act` also end a node that must not reboot now.

    It raises `StoppedError` if nodes are to be returned, `NodeRemovedError` if the Node is removed,
    and during the drain `DrainError` if the node was uncordoned.
    """
    if phase not in BEFORE_REBOOT:
        return context
    watched = context.watched

    def check_before_reboot() -> None:
        context.check_may_act()
        if context.engine.stop.is_reverting:
            raise StoppedError
        why_removed = watched.why_removed if watched else ""
        if why_removed:
            raise NodeRemovedError(f"not rebooted: {why_removed} while it was {phase}")
        is_in_drain = phase is Phase.DRAINING
        if is_in_drain and watched and watched.is_uncordoned:
            raise DrainError(
                f"{context.name} was uncordoned outside this rollout while it was drained"
            )

    return replace(context, check_may_act=check_before_reboot)
