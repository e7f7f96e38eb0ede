"""How often a host is tried until it answers in another boot."""

from collections import deque
from dataclasses import dataclass, field

from rollout.errors import SshRefusedError
from rollout.execution.base.deadline import Deadline
from rollout.execution.node.context import NodeContext
from rollout.execution.node.ssh_host import SshHost, is_host_silent

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 5.0
# Pause for the time waited so far, divided by this.
_WAITED_PER_PAUSE = 5
# A host that is down costs a single packet.
_DOWN_PAUSE = 0.15
# Firewalls such as `ufw limit ssh` refuse the sixth connection within 30 s. Refused ones count,
# too, so frequent attempts would never get through.
_MOST_REFUSED = 5
_KEPT_FOR_REPORT = 1
_COUNTED_SECONDS = 31.0
# After the first refusals in a row. One attempt of those that are counted is kept for the
# kubelet's report.
_REFUSED_PAUSES = (_DOWN_PAUSE, 1.0)
_LONGEST_REFUSED_PAUSE = 10.0


@dataclass
class _Refusals:
    times: deque[float] = field(default_factory=lambda: deque(maxlen=_MOST_REFUSED))

    @property
    def least_pause(self) -> float:
        number = len(self.times)
        if number > len(_REFUSED_PAUSES):
            return _LONGEST_REFUSED_PAUSE
        return _REFUSED_PAUSES[number - 1]

    def seconds_blocked(self, now: float, reserve: int = 0) -> float:
        """Return how long a firewall would refuse any attempt but the last `reserve` ones."""
        most = _MOST_REFUSED - reserve
        if len(self.times) < most:
            return 0.0
        return max(0.0, self.times[-most] + _COUNTED_SECONDS - now)


@dataclass
class ConnectionPace:
    """Paces the attempts to connect to one host: `pause`, connect, `note_attempt`."""

    context: NodeContext
    host: SshHost

    def __post_init__(self) -> None:
        self._refusals = _Refusals()
        self._began = self.context.now
        self._reported = self._reported_boot()
        self.note_attempt()

    def note_attempt(self) -> None:
        if isinstance(self.host.error, SshRefusedError):
            self._refusals.times.append(self.context.now)
        else:
            # A host that was down has forgotten what its firewall counted.
            self._refusals.times.clear()

    def pause(self, deadline: Deadline) -> None:
        if self._refusals.times:
            self._pause_after_refusal(deadline)
        elif is_host_silent(self.host.error):
            deadline.pause(_DOWN_PAUSE)
        else:
            self._back_off(deadline)
        self._reported = self._reported_boot()

    def _pause_after_refusal(self, deadline: Deadline) -> None:
        now = self.context.now
        blocked = self._refusals.seconds_blocked(now)
        until_due = max(
            self._refusals.least_pause, self._refusals.seconds_blocked(now, _KEPT_FOR_REPORT)
        )
        # Whatever the kubelet reports, the firewall would refuse an attempt.
        deadline.pause(blocked)
        rest = max(0.0, until_due - blocked)
        self._await_report(min(deadline.remaining, rest))

    def _back_off(self, deadline: Deadline) -> None:
        waited = self.context.now - self._began
        seconds = min(deadline.remaining, waited / _WAITED_PER_PAUSE)
        self._await_report(min(_LONGEST_PAUSE, max(_FIRST_PAUSE, seconds)))

    def _await_report(self, seconds: float) -> None:
        """Wait at most until the kubelet reports another boot."""
        end = self.context.cluster.deadline(seconds)
        if self.context.watched is None:
            end.pause(seconds)
        else:
            self.context.watched.await_other_boot(self._reported, end)

    def _reported_boot(self) -> str:
        return self.context.watched.boot_id if self.context.watched else ""
