"""What every step of one node's run has at hand."""

import threading
from dataclasses import dataclass, field
from typing import Protocol

from rollout.execution.gates.gates import Gates, NoGates
from rollout.execution.reporting import Reporter
from rollout.gather.hosts.probe_command import REBOOT_COMMAND
from rollout.model.host import Host
from rollout.model.plan import PlannedNode
from rollout.model.policy import Policy
from rollout.ports import Clock, ClusterApi, HostShell


class Guard(Protocol):
    """Says whether this process may act."""

    def check(self) -> None:
        """Return while it may; `FencedError` where it may not."""
        ...


class StopRequest:
    """A wish that no further node be started. Those in flight finish; `revert`: those not rebooting go back."""

    def __init__(self, *, revert: bool = False) -> None:
        self._event = threading.Event()
        self.revert = revert

    def request(self) -> None:
        """Wish it; more than once is the same as once."""
        self._event.set()

    @property
    def requested(self) -> bool:
        """Whether it was wished."""
        return self._event.is_set()

    @property
    def reverting(self) -> bool:
        """Whether nodes that are not rebooting yet are to be given back."""
        return self.revert and self.requested

    def wait(self, seconds: float) -> bool:
        """Sleep for `seconds`, or until it is wished; whether it was."""
        return self._event.wait(seconds)


class OutageNotice:
    """Tells of an API server that is away: once when it goes, not at every attempt."""

    def __init__(self, report: Reporter, *, quiet_seconds: float = 30.0) -> None:
        self._report = report
        self._quiet_seconds = quiet_seconds
        self._turn = threading.Lock()
        self._told_at = float("-inf")

    def __call__(self, error: BaseException) -> None:
        """Hear of one failed attempt."""
        now = self._report.now.timestamp()
        with self._turn:
            if now - self._told_at < self._quiet_seconds:
                return
            self._told_at = now
        self._report.notice(f"waiting for the API server: {error}")


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
    probe_timeout: float = 60.0
    api_patience: float = 600.0
    pause: threading.Event = field(default_factory=threading.Event)
    stop: StopRequest | None = None
    taken_up: bool = False
    gates: Gates = field(default_factory=NoGates)
    started: float = 0.0
    returning: set[str] = field(default_factory=set)
    reboot_command: str = REBOOT_COMMAND

    @property
    def name(self) -> str:
        """The Node's name."""
        return self.planned.name
