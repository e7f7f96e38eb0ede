from collections import deque
from dataclasses import dataclass, field

from rollout.errors import SshRefusedError
from rollout.execution.base.deadline import Deadline
from rollout.execution.node.context import NodeContext
from rollout.execution.node.ssh_host import SshHost, is_host_silent

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 5.0
_WAITED_PER_PAUSE = 5
# A host that is down costs a single packet.
_DOWN_PAUSE = 0.15
# Firewalls such as `ufw limit ssh` refuse the sixth connection within 30 s, and count refused ones,
# too.
_MOST_COUNTED = 5
_COUNTED_SECONDS = 31.0
# For the moment when the kubelet reports the new boot.
_SPARED_FOR_REPORT = 1
# After the first refusals in a row.
_REFUSED_PAUSES = (_DOWN_PAUSE, 1.0)
_LONGEST_REFUSED_PAUSE = 10.0


@dataclass
class _Refusals:
    # Monotonic seconds.
    times: deque[float] = field(default_factory=lambda: deque(maxlen=_MOST_COUNTED))

    @property
    def least_pause(self) -> float:
        """Seconds, longer after each refusal in a row."""
        number = len(self.times)
        if number > len(_REFUSED_PAUSES):
            return _LONGEST_REFUSED_PAUSE
        return _REFUSED_PAUSES[number - 1]

    def seconds_until_allowed(self, now: float, *, spared_attempts: int = 0) -> float:
        most_counted = _MOST_COUNTED - spared_attempts
        if len(self.times) < most_counted:
            return 0.0
        # An attempt is allowed once the firewall forgets this refusal.
        oldest_counted = self.times[-most_counted]
        return max(0.0, oldest_counted + _COUNTED_SECONDS - now)


@dataclass
class ConnectionPace:
    """Paces the attempts to connect: `pause`, connect, `note_attempt`.

    A pause ends early if the kubelet reports another boot, but not while the host's firewall
    refuses connections.
    """

    context: NodeContext
    host: SshHost

    def __post_init__(self) -> None:
        self._refusals = _Refusals()
        self._began = self.context.now
        self._boot_reported_before = self._boot_reported_by_kubelet()
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
        self._boot_reported_before = self._boot_reported_by_kubelet()

    def _pause_after_refusal(self, deadline: Deadline) -> None:
        now = self.context.now
        seconds_blocked = self._refusals.seconds_until_allowed(now)
        seconds_without_report = max(
            self._refusals.least_pause,
            self._refusals.seconds_until_allowed(now, spared_attempts=_SPARED_FOR_REPORT),
        )
        # A report does not help, because the firewall would refuse the attempt.
        deadline.pause(seconds_blocked)
        rest = max(0.0, seconds_without_report - seconds_blocked)
        self._pause_until_new_report(min(deadline.remaining, rest))

    def _back_off(self, deadline: Deadline) -> None:
        waited = self.context.now - self._began
        seconds = min(deadline.remaining, waited / _WAITED_PER_PAUSE)
        self._pause_until_new_report(min(_LONGEST_PAUSE, max(_FIRST_PAUSE, seconds)))

    def _pause_until_new_report(self, longest: float) -> None:
        end = self.context.cluster.deadline(longest)
        if self.context.watched is None:
            end.pause(longest)
        else:
            self.context.watched.await_other_boot(self._boot_reported_before, end)

    def _boot_reported_by_kubelet(self) -> str:
        return self.context.watched.boot_id if self.context.watched else ""
