"""Which boot the host behind a node is in now, and whether it is still that node's machine."""

from rollout.errors import HostKeyError, SshError
from rollout.execution.base.deadline import Deadline
from rollout.execution.node.failures import NodeFailure
from rollout.execution.node.host import NodeHost
from rollout.gather.hosts.boot import BOOT_COMMAND, BootFacts, parse_boot
from rollout.model.progress import Outcome
from rollout.model.quantity import Duration

SSH_SECONDS = 20.0


def look_once(host: NodeHost) -> BootFacts | None:
    """Facts of the boot that the host is in now, or None where it does not answer, or not as itself."""
    try:
        facts, _waiting = look(host, Deadline(host.clock, SSH_SECONDS))
    except NodeFailure:
        return None
    return facts


def look(host: NodeHost, deadline: Deadline) -> tuple[BootFacts | None, str]:
    """Facts of the boot that the host is in now, None where it gives none; and what is being waited for.

    Raises `NodeFailure` where whoever answers is not the node's machine: no amount of waiting mends that, and nothing
    that such a host says may be believed.
    """
    seconds = min(SSH_SECONDS, max(1.0, deadline.remaining))
    try:
        result = host.run(BOOT_COMMAND, timeout=seconds)
    except HostKeyError as error:
        raise NodeFailure(Outcome.NOT_BACK, f"the host cannot be trusted: {error}", hint=error.hint) from error
    except SshError as error:
        return None, f"waiting for the host: {error}"
    facts = parse_boot(result)
    if facts is None:
        return None, "waiting for the host: no boot id in its answer"
    if not facts.machine_id:
        return None, "waiting for the host: no machine id in its answer"
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
    """A host that still answers with its old boot id works as before; one that is away does not."""
    facts, _waiting = look(host, Deadline(host.clock, SSH_SECONDS))
    if facts is not None and in_boot_before(host, facts):
        return NodeFailure(
            Outcome.NOT_REBOOTED,
            f"the host did not reboot within --reboot-timeout {timeout}: same boot id as before",
            hint="See `systemd-inhibit --list` and `systemctl list-jobs` on the host.",
        )
    if host.shell.is_refused:
        # it answers: what keeps us out is told with its fix, and the version is not to blame
        return NodeFailure(Outcome.NOT_BACK, f"the host answers, and lets nobody in: {host.shell.error}")
    return NodeFailure(
        Outcome.NOT_BACK,
        f"the host is not back within --reboot-timeout {timeout} ({last})",
        hint="Look at its console: firmware, boot loader, a disk or a network that it waits for.",
    )
