"""What a rollout is given: the outside world, and how this process runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rollout.execution.base.deadline import PatientApi, StopRequest
from rollout.execution.base.reporting import Reporter
from rollout.execution.gates import GatePorts
from rollout.execution.lease import LeaseWatch
from rollout.execution.lock import LeaseLock
from rollout.gather.hosts.probe_command import REBOOT_COMMAND
from rollout.model import marks
from rollout.model.own_node import OwnNode
from rollout.planning.eligibility.evidence import Proven
from rollout.ports import Clock, ClusterApi, HostExecutor, Observer


@dataclass(frozen=True, slots=True)
class Ports:
    """The outside world of a rollout. The observers hear of each event in this order."""

    api: ClusterApi
    shell: HostExecutor
    clock: Clock
    observers: Sequence[Observer]
    gates: GatePorts = field(default_factory=GatePorts)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How this process runs, besides the policy. Times are in seconds.

    `selected` is the number of nodes that percentages are of; `holder` says who holds the Lease;
    `force_unlock` is a run whose Lease is not waited for. `own_node` is the node under this
    process. `unattended`: nobody watches, and the next pass goes on with what is left. `watch` is
    what was seen of the lock before there was a plan. `detect_command` is the setting
    `detect.command`, which may be empty. `process` is a word that no other process has. `proven` is
    what another cluster has proved, None where it need not.
    """

    selected: int
    holder: str
    lease_namespace: str = marks.LEASE_NAMESPACE
    lease_seconds: int = 30
    probe_timeout: float = 60.0
    force_unlock: str = ""
    reboot_command: str = REBOOT_COMMAND
    own_node: OwnNode | None = None
    unattended: bool = False
    watch: LeaseWatch | None = None
    detect_command: str = ""
    process: str = ""
    proven: Proven | None = None


def lease_lock(
    cluster: PatientApi, options: RunOptions, run: str, report: Reporter, stop: StopRequest
) -> LeaseLock:
    """Return the lock of this run, to be entered."""
    return LeaseLock(
        cluster,
        options.lease_namespace,
        options.holder,
        run,
        options.lease_seconds,
        options.force_unlock,
        options.process,
        stop,
        report.notice,
        options.watch,
    )
