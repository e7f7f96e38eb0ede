"""A node's host, asked over SSH: which boot it is in, and whether it is the machine that was planned."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rollout.errors import (
    HostKeyError,
    SshAuthError,
    SshError,
    SshRefusedError,
    SshTimeoutError,
)
from rollout.execution.node.failures import NodeFailure
from rollout.gather.hosts.probe import BOOT_COMMAND, BootFacts, parse_boot
from rollout.gather.hosts.probe_command import REBOOT_COMMAND, USUAL_PROBE, Probe
from rollout.model.host import Host
from rollout.model.plan import PlannedNode
from rollout.model.progress import Outcome
from rollout.model.quantity import Duration
from rollout.ports import CommandResult, HostShell

T = TypeVar("T")
SSH_SECONDS = 20.0


@dataclass
class RememberingShell:
    """Passes everything on; `error` is why the host did not answer when it was last asked, None where it did."""

    shell: HostShell
    error: SshError | None = None

    def run(self, host: Host, command: str, *, timeout: float) -> CommandResult:
        """As the shell does."""
        return self._remembering(lambda: self.shell.run(host, command, timeout=timeout))

    def run_if(
        self,
        host: Host,
        question: str,
        agreed: Callable[[CommandResult], bool],
        command: str,
        *,
        timeout: float,
    ) -> CommandResult | None:
        """As the shell does."""
        return self._remembering(
            lambda: self.shell.run_if(host, question, agreed, command, timeout=timeout)
        )

    def _remembering(self, ask: Callable[[], T]) -> T:
        try:
            answer = ask()
        except SshError as error:
            self.error = error
            raise
        self.error = None
        return answer


@dataclass(frozen=True, slots=True)
class SshHost:
    """A host that is asked over SSH, and the node that it has to be.

    `probe_timeout` is in seconds. `probe` is what the host is asked.
    """

    host: Host
    planned: PlannedNode
    shell: RememberingShell
    probe_timeout: float = 60.0
    reboot_command: str = REBOOT_COMMAND
    probe: Probe = USUAL_PROBE

    @property
    def error(self) -> SshError | None:
        return self.shell.error

    def boot_now(self) -> BootFacts | None:
        """Return facts of the boot that the host is in; None if it does not answer, or not as itself."""
        try:
            facts, _waiting = look(self)
        except NodeFailure:
            return None
        return facts

    def at_end(self, planned: PlannedNode) -> PlannedNode:
        return planned


def is_host_silent(error: SshError | None) -> bool:
    """Whether the host did not answer at all, as while it reboots."""
    return isinstance(error, SshRefusedError | SshTimeoutError)


def is_login_refused(error: SshError | None) -> bool:
    """Whether keys or credentials are the cause, the host's or ours: the host itself may be well."""
    return isinstance(error, HostKeyError | SshAuthError)


def look(host: SshHost, left: float = SSH_SECONDS) -> tuple[BootFacts | None, str]:
    """Facts of the boot that the host is in now, None where it gives none; and what is being waited for.

    `left` are the seconds until a deadline. Raises `NodeFailure` where whoever answers is not the
    node's machine: no amount of waiting mends that, and nothing that such a host says may be
    believed.
    """
    try:
        result = host.shell.run(host.host, BOOT_COMMAND, timeout=min(SSH_SECONDS, max(1.0, left)))
    except HostKeyError as error:
        raise NodeFailure(
            Outcome.NOT_BACK, f"the host cannot be trusted: {error}", hint=error.hint
        ) from error
    except SshError as error:
        return None, str(error)
    facts = parse_boot(result)
    if facts is None or not facts.machine_id:
        return None, "no boot id, or no machine id, in its answer"
    if why := other_machine(host, facts):
        raise NodeFailure(
            Outcome.NOT_BACK, why, hint=f"Find out what answers at {host.host.address} now."
        )
    return facts, "still up with the boot id from before"


def other_machine(host: SshHost, facts: BootFacts) -> str:
    """Why these facts are not of the machine that the node was planned for; empty where they are."""
    expected = host.planned.machine_id
    if facts.machine_id == expected:
        return ""
    difference = (
        f"machine id {facts.machine_id or 'unreadable'} instead of {expected or 'an unknown one'}"
    )
    return f"another machine answers at {host.host.address}: {difference}"


def in_boot_before(host: SshHost, facts: BootFacts) -> bool:
    """Whether the host is still in the boot that the node was planned in."""
    return facts.boot_id == host.planned.boot_id


def no_boot(host: SshHost, last: str, timeout: Duration) -> NodeFailure:
    """Judge a host that has not rebooted: one that still answers works as before, one that is away does not."""
    facts, _waiting = look(host)
    if facts is not None and in_boot_before(host, facts):
        return NodeFailure(
            Outcome.NOT_REBOOTED,
            f"the host did not reboot within --reboot-timeout {timeout}: same boot id as before",
            see=("systemd-inhibit --list on the host", "systemctl list-jobs on the host"),
        )
    if host.error and is_login_refused(host.error):
        why = f"the host answers, but one cannot log in: {host.error}"
        return NodeFailure(Outcome.NOT_BACK, why, hint=host.error.hint)
    return NodeFailure(
        Outcome.NOT_BACK,
        f"not back within --reboot-timeout {timeout}: {last}",
        hint=(
            "Check its console: is it stuck in firmware, the boot loader, or waiting for a disk or"
            " the network?"
        ),
    )
