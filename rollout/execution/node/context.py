"""What every step of one node's run has at hand."""

import threading
from dataclasses import dataclass, field
from typing import Protocol

from rollout.execution.base.guard import Guard
from rollout.execution.base.outage import OutageNotice
from rollout.execution.base.patience import PatientApi
from rollout.execution.base.reporting import Reporter
from rollout.execution.base.stop import StopRequest
from rollout.execution.drain.task import DrainTask
from rollout.gather.hosts.boot import BootFacts
from rollout.gather.hosts.probe_command import REBOOT_COMMAND
from rollout.model.host import Host
from rollout.model.plan import PlannedNode
from rollout.model.policy import Policy
from rollout.ports import Clock, ClusterApi, HostShell


class NodeGates(Protocol):
    """Everything that can hold one node up between its steps."""

    def before_node(self, context: "NodeContext") -> None:
        """Return where an untouched node may be begun; `NodeFailure` where not."""
        ...

    def before_reboot(self, context: "NodeContext") -> None:
        """Return once a cordoned node may be drained and rebooted; `NodeFailure` where it may not in time."""
        ...

    def before_command(self, context: "NodeContext") -> None:
        """Return once a drained node may be told to reboot; `NodeFailure` where it may not in time."""
        ...

    def after_reboot(self, context: "NodeContext", boot: BootFacts) -> None:
        """Return once a rebooted node may be given back; `NodeFailure` where it may not in time."""
        ...


@dataclass(frozen=True, slots=True)
class NodeContext:
    """One node's run: what was planned for it, where its host is, and the ports.

    `run` is the rollout's id, `probe_timeout` in seconds. `taken_up`: an earlier process has begun this node.
    `returning` are the UIDs of the owners whose pods the drain left, for they come back however often they are evicted.
    """

    planned: PlannedNode
    host: Host
    policy: Policy
    run: str
    api: ClusterApi
    shell: HostShell
    clock: Clock
    guard: Guard
    report: Reporter
    told_of_outage: OutageNotice
    gates: NodeGates
    probe_timeout: float = 60.0
    api_patience: float = 600.0
    pause: threading.Event = field(default_factory=threading.Event)
    stop: StopRequest | None = None
    taken_up: bool = False
    started: float = 0.0
    returning: set[str] = field(default_factory=set)
    reboot_command: str = REBOOT_COMMAND

    @property
    def name(self) -> str:
        """The Node's name."""
        return self.planned.name

    @property
    def drain(self) -> DrainTask:
        """The drain of this node."""
        cluster = PatientApi(self.api, self.clock, self.told_of_outage, self.api_patience)
        return DrainTask(
            self.name,
            self.planned.node_uid,
            self.run,
            self.policy.drain,
            cluster,
            self.guard,
            self.report,
            self.returning,
        )
