"""The host behind a node: how it is asked, which machine it has to be, and which boot it is in now."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rollout.errors import HostKeyError, SshAuthError, SshError
from rollout.execution.node.transitions import NodeFailure
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
    """Passes everything on.

    `error` says why the host did not answer when it was last asked, empty where it did; `hint` what to do about it.
    `is_refused`: keys or credentials are why, the host's or ours; that tells nothing of how the host is.
    """

    shell: HostShell
    error: str = ""
    hint: str = ""
    is_refused: bool = False

    def run(self, host: Host, command: str, *, timeout: float) -> CommandResult:
        """As the shell does."""
        return self._remembering(lambda: self.shell.run(host, command, timeout=timeout))

    def run_if(
        self, host: Host, question: str, agreed: Callable[[CommandResult], bool], command: str, *, timeout: float
    ) -> CommandResult | None:
        """As the shell does."""
        return self._remembering(lambda: self.shell.run_if(host, question, agreed, command, timeout=timeout))

    def _remembering(self, ask: Callable[[], T]) -> T:
        try:
            answer = ask()
        except SshError as error:
            self.error, self.hint = str(error), error.hint
            self.is_refused = isinstance(error, HostKeyError | SshAuthError)
            raise
        self.error, self.hint, self.is_refused = "", "", False
        return answer


@dataclass(frozen=True, slots=True)
class NodeHost:
    """A host, and the node that it has to be. `probe_timeout` in seconds; `probe` is what it is asked."""

    host: Host
    planned: PlannedNode
    shell: RememberingShell
    probe_timeout: float = 60.0
    reboot_command: str = REBOOT_COMMAND
    probe: Probe = USUAL_PROBE


def look_once(host: NodeHost) -> BootFacts | None:
    """Facts of the boot that the host is in now, or None where it does not answer, or not as itself."""
    try:
        facts, _waiting = look(host)
    except NodeFailure:
        return None
    return facts


def look(host: NodeHost, left: float = SSH_SECONDS) -> tuple[BootFacts | None, str]:
    """Facts of the boot that the host is in now, None where it gives none; and what is being waited for.

    `left` are the seconds until a deadline. Raises `NodeFailure` where whoever answers is not the node's machine: no
    amount of waiting mends that, and nothing that such a host says may be believed.
    """
    try:
        result = host.shell.run(host.host, BOOT_COMMAND, timeout=min(SSH_SECONDS, max(1.0, left)))
    except HostKeyError as error:
        raise NodeFailure(Outcome.NOT_BACK, f"the host cannot be trusted: {error}", hint=error.hint) from error
    except SshError as error:
        return None, str(error)
    facts = parse_boot(result)
    if facts is None:
        return None, "no boot id in its answer"
    if not facts.machine_id:
        return None, "no machine id in its answer"
    if why := other_machine(host, facts):
        raise NodeFailure(Outcome.NOT_BACK, why, hint=f"Find out what answers at {host.host.address} now.")
    return facts, "still up with the boot id from before"


def other_machine(host: NodeHost, facts: BootFacts) -> str:
    """Why these facts are not of the machine that the node was planned for; empty where they are."""
    expected = host.planned.machine_id
    if facts.machine_id == expected:
        return ""
    difference = f"machine id {facts.machine_id or 'unreadable'} instead of {expected or 'an unknown one'}"
    return f"another machine answers at {host.host.address}: {difference}"


def in_boot_before(host: NodeHost, facts: BootFacts) -> bool:
    """Whether the host is still in the boot that the node was planned in."""
    return facts.boot_id == host.planned.boot_id


def no_boot(host: NodeHost, last: str, timeout: Duration) -> NodeFailure:
    """Judge a host that has not rebooted: one that still answers works as before, one that is away does not."""
    facts, _waiting = look(host)
    if facts is not None and in_boot_before(host, facts):
        return NodeFailure(
            Outcome.NOT_REBOOTED,
            f"the host did not reboot within --reboot-timeout {timeout}: same boot id as before",
            hint="See `systemd-inhibit --list` and `systemctl list-jobs` on the host.",
        )
    if host.shell.is_refused:
        # it answers: what keeps us out is told with its fix, and the version is not to blame
        why = f"the host answers, and lets nobody in: {host.shell.error}"
        return NodeFailure(Outcome.NOT_BACK, why, hint=host.shell.hint)
    return NodeFailure(
        Outcome.NOT_BACK,
        f"not back within --reboot-timeout {timeout}: {last}",
        hint="See its console: firmware, boot loader, a disk or a network that it waits for.",
    )
