from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from msgspec import Struct, field

from rollout.errors import (
    HostKeyError,
    SshAuthError,
    SshError,
    SshNoRouteError,
    SshRefusedError,
    SshStalledError,
    SshTimeoutError,
)
from rollout.execution.node.early_observations import EarlyObservations, Observations
from rollout.execution.node.failures import NO_ANSWER_HINT, NodeFailure
from rollout.gather.hosts.polling import observe, observe_all
from rollout.gather.hosts.probe import BOOT_COMMAND, BootFacts, parse_boot
from rollout.gather.hosts.probe_command import REBOOT_COMMAND, USUAL_PROBE, Probe
from rollout.gather.hosts.rollback_command import rollback_command
from rollout.model.host import Host, HostObservation
from rollout.model.plan import PlannedNode
from rollout.model.policy import Policy
from rollout.model.progress import Outcome
from rollout.model.quantity import Duration
from rollout.ports import CommandResult, HostExecutor, HostShell

T = TypeVar("T")
_BOOT_SECONDS = 20.0
# The others of a wave are observed when they start.
_MOST_EARLY_OBSERVATIONS = 32


@dataclass
class RememberingShell:
    """`error` is how the last command failed, or None."""

    wrapped: HostShell
    error: SshError | None = None

    def run(self, host: Host, command: str, *, timeout: float) -> CommandResult:
        return self._remember_error(lambda: self.wrapped.run(host, command, timeout=timeout))

    def run_if(
        self,
        host: Host,
        question: str,
        accepts: Callable[[CommandResult], bool],
        command: str,
        *,
        timeout: float,
    ) -> CommandResult | None:
        return self._remember_error(
            lambda: self.wrapped.run_if(host, question, accepts, command, timeout=timeout)
        )

    def _remember_error(self, run: Callable[[], T]) -> T:
        try:
            answer = run()
        except SshError as error:
            self.error = error
            raise
        self.error = None
        return answer


class SshHost(Struct, frozen=True):
    endpoint: Host
    planned: PlannedNode
    shell: RememberingShell
    # In seconds.
    probe_timeout: float = 60.0
    # In a rollback, also chooses the other system.
    reboot_command: str = REBOOT_COMMAND
    probe: Probe = USUAL_PROBE
    early_observations: EarlyObservations = field(default_factory=EarlyObservations)

    def start_early_observation(self, now: float) -> None:
        """The next `observe` returns this observation if it is fresh."""
        name = self.planned.name
        self.early_observations.start([name], self._observe_in_background(), now)

    def observe(self, now: float) -> HostObservation:
        """`now` is monotonic."""
        early = self.early_observations.take(self.planned.name, now)
        return early or self._observe_with(self.shell)

    def _observe_in_background(self) -> Observations:
        # The next step reads `error` of its own commands.
        yield self.planned.name, self._observe_with(self.shell.wrapped)

    def _observe_with(self, shell: HostShell) -> HostObservation:
        return observe(self.endpoint, shell, probe=self.probe, timeout=self.probe_timeout)

    @property
    def error(self) -> SshError | None:
        return self.shell.error

    def boot_now(self) -> BootFacts | None:
        try:
            return read_boot(self).boot
        except NodeFailure:
            return None

    def node_to_remember(self, planned: PlannedNode) -> PlannedNode:
        return planned


class RolloutHosts(Struct, frozen=True):
    by_node: Mapping[str, Host]
    shell: HostExecutor
    probe_timeout: float = 60.0
    reboot_command: str = REBOOT_COMMAND
    detect_command: str = ""
    early_observations: EarlyObservations = field(default_factory=EarlyObservations)

    def __contains__(self, node: str) -> bool:
        return node in self.by_node

    def attending(self, nodes: Iterable[PlannedNode]) -> AbstractContextManager[None]:
        hosts = [self.by_node[node.name] for node in nodes if node.name in self.by_node]
        return self.shell.attending(hosts)

    def start_early_observations(
        self, nodes: Sequence[PlannedNode], policy: Policy, now: float
    ) -> None:
        names = [node.name for node in nodes if node.name in self.by_node]
        names = names[:_MOST_EARLY_OBSERVATIONS]
        observations = observe_all(
            {name: self.by_node[name] for name in names},
            self.shell,
            probe=self._probe(policy),
            timeout=self.probe_timeout,
            concurrency=_MOST_EARLY_OBSERVATIONS,
        )
        self.early_observations.start(names, observations, now)

    def host(self, planned: PlannedNode, policy: Policy) -> SshHost:
        reboot_command = self.reboot_command
        if policy.rollback:
            reboot_command = rollback_command(reboot_command)
        return SshHost(
            endpoint=self.by_node[planned.name],
            planned=planned,
            shell=RememberingShell(self.shell),
            probe_timeout=self.probe_timeout,
            reboot_command=reboot_command,
            probe=self._probe(policy),
            early_observations=self.early_observations,
        )

    def _probe(self, policy: Policy) -> Probe:
        return Probe(policy.sources, self.detect_command, unwanted_version=policy.rollback)


def is_host_silent(error: SshError | None) -> bool:
    is_silent = isinstance(error, SshRefusedError | SshNoRouteError | SshTimeoutError)
    return is_silent and not isinstance(error, SshStalledError)


def is_login_refused(error: SshError | None) -> bool:
    """The host itself may be well."""
    return isinstance(error, HostKeyError | SshAuthError)


class BootReading(NamedTuple):
    # None without a usable answer.
    boot: BootFacts | None
    # Why to ask again, unless this is a new boot.
    reason_to_wait: str


def read_boot(host: SshHost, seconds_left: float = _BOOT_SECONDS) -> BootReading:
    """The boot may still be the old one.

    Raises `NodeFailure` if another machine may be answering.
    """
    timeout = min(_BOOT_SECONDS, max(1.0, seconds_left))
    try:
        result = host.shell.run(host.endpoint, BOOT_COMMAND, timeout=timeout)
    except HostKeyError as error:
        raise NodeFailure(
            Outcome.NOT_BACK, f"the host cannot be trusted: {error}", hint=error.hint
        ) from error
    except SshError as error:
        return BootReading(None, str(error))
    boot = parse_boot(result)
    if boot is None or not boot.machine_id:
        return BootReading(None, "its response lacks a boot ID or a machine ID")
    difference = machine_difference(host, boot)
    if difference:
        raise NodeFailure(
            Outcome.NOT_BACK,
            difference,
            hint=f"Find out what answers at {host.endpoint.address} now.",
        )
    return BootReading(boot, "still up with its old boot ID")


def machine_difference(host: SshHost, boot: BootFacts) -> str:
    expected = host.planned.machine_id
    if boot.machine_id == expected:
        return ""
    actual = boot.machine_id or "unreadable"
    return (
        f"a different machine answers at {host.endpoint.address}: machine ID {actual} instead of"
        f" {expected or 'an unknown one'}"
    )


def is_in_old_boot(host: SshHost, boot: BootFacts) -> bool:
    return boot.boot_id == host.planned.boot_id


def missing_boot_failure(
    host: SshHost, boot: BootFacts | None, reason_to_wait: str, timeout: Duration
) -> NodeFailure:
    """`boot` is the old one, or None without an answer."""
    is_still_up = boot is not None
    if is_still_up:
        return NodeFailure(
            Outcome.NOT_REBOOTED,
            f"the host did not reboot within --reboot-timeout {timeout}: same boot ID as before",
            see=("systemd-inhibit --list on the host", "systemctl list-jobs on the host"),
        )
    if host.error and is_login_refused(host.error):
        message = f"the host responds, but the login fails: {host.error}"
        return NodeFailure(Outcome.NOT_BACK, message, hint=host.error.hint)
    return NodeFailure(
        Outcome.NOT_BACK,
        f"the host did not come back within --reboot-timeout {timeout}: {reason_to_wait}",
        hint=NO_ANSWER_HINT,
    )
