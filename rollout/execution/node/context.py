"""What the steps of one node's run have at hand, its host among it, and where that run stands."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol, TypeVar

from rollout.errors import (
    HostKeyError,
    SshAuthError,
    SshError,
    SshRefusedError,
    SshTimeoutError,
)
from rollout.execution.base.deadline import StopRequest
from rollout.execution.drain.task import NodeTask
from rollout.execution.node.transitions import (
    BEFORE_REBOOT,
    GivenUpError,
    NodeFailure,
    NodeRemovedError,
    follow,
)
from rollout.execution.node.watched import WatchedNode
from rollout.gather.hosts.probe import BOOT_COMMAND, BootFacts, parse_boot
from rollout.gather.hosts.probe_command import REBOOT_COMMAND, USUAL_PROBE, Probe
from rollout.model.cluster import Node
from rollout.model.detection import Source
from rollout.model.host import Host
from rollout.model.own_node import OwnNode
from rollout.model.plan import ExclusionReason, PlannedNode
from rollout.model.progress import Edge, Outcome, Phase
from rollout.model.quantity import Duration
from rollout.planning.eligibility.away import AwayLimit
from rollout.planning.eligibility.memory import NodeEnd
from rollout.ports import CommandResult, HostShell

T = TypeVar("T")
SSH_SECONDS = 20.0
_UNSEEN = BootFacts("", "", "")


@dataclass
class RememberingShell:
    """Passes everything on; `error` is why the host did not answer when it was last asked, None where it did."""

    shell: HostShell
    error: SshError | None = None

    @property
    def is_silent(self) -> bool:
        """Whether the host did not answer at all, as while it reboots."""
        return isinstance(self.error, SshRefusedError | SshTimeoutError)

    @property
    def is_refused(self) -> bool:
        """Whether keys or credentials are why, the host's or ours; that tells nothing of how the host is."""
        return isinstance(self.error, HostKeyError | SshAuthError)

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


def other_machine(host: NodeHost, facts: BootFacts) -> str:
    """Why these facts are not of the machine that the node was planned for; empty where they are."""
    expected = host.planned.machine_id
    if facts.machine_id == expected:
        return ""
    difference = (
        f"machine id {facts.machine_id or 'unreadable'} instead of {expected or 'an unknown one'}"
    )
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
    if host.shell.error and host.shell.is_refused:
        # it answers: what keeps us out is told with its fix, and the version is not to blame
        why = f"the host answers, but one cannot log in: {host.shell.error}"
        return NodeFailure(Outcome.NOT_BACK, why, hint=host.shell.error.hint)
    return NodeFailure(
        Outcome.NOT_BACK,
        f"not back within --reboot-timeout {timeout}: {last}",
        hint=(
            "Check its console: is it stuck in firmware, the boot loader, or waiting for a disk or"
            " the network?"
        ),
    )


class Occasion(StrEnum):
    """When a playbook runs; the words are those of `rollout_occasion`."""

    PRE_REBOOT = "pre-reboot"
    POST_REBOOT = "post-reboot"


@dataclass(frozen=True, slots=True)
class Withheld:
    """Why a node may not be booted into its staged version; `reason` is None if no exclusion matches."""

    why: str
    reason: ExclusionReason | None = None


class NodePlaybooks(Protocol):
    """Runs a playbook on one host."""

    def run(
        self,
        occasion: Occasion,
        host: Host,
        variables: Mapping[str, object],
        *,
        seconds: float,
        check: Callable[[], None],
        notice: Callable[[str], None],
    ) -> str:
        """Why it failed, empty where it passed, or there is none for this occasion; `notice` hears of each task.

        `check` is called again and again while it runs: what it raises ends the playbook, and is
        raised.
        """
        ...


class NodeGates(Protocol):
    """Everything that can hold one node up between its steps."""

    def before_node(self, context: "NodeContext") -> None:
        """Return where an untouched node may be begun; `NodeFailure` where not."""
        ...

    def is_shut(self, planned: PlannedNode) -> bool:
        """Whether its windows are closed now: people, or checks, may have been waited for until the next day."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext(NodeTask):
    """One node's way through a rollout: its turn, its host, and what may hold it up or stop it.

    An untouched node is admitted once more before its cordon: `refusal` says why it may not be
    begun now, empty where it may, the slow questions first, and may raise `ApiError`; `limit` says
    how many of all nodes may be away.

    `objection` says why it may not be booted into a staged version, which is None if its host does
    not tell it.

    `is_taken_up`: an earlier process has begun this node. `remember` is told of its end, of a
    failure before its marks go; `own` is set if this process runs on the node; `watched` is the
    watch of its Node once the node is begun.
    """

    host: NodeHost
    gates: NodeGates
    refusal: Callable[[PlannedNode], str]
    limit: Callable[[Collection[Node]], AwayLimit]
    stop: StopRequest
    is_taken_up: bool = False
    own: OwnNode | None = None
    watched: WatchedNode | None = None
    playbooks: NodePlaybooks | None = None
    remember: Callable[[PlannedNode, NodeEnd], None] = field(default=lambda *_end: None)
    objection: Callable[[PlannedNode, str | None], Withheld | None] = field(
        default=lambda *_staged: None
    )


@dataclass(frozen=True, slots=True)
class Progress:
    """The phase of a node, and what its run has learned so far.

    staged_version: the version that the node was last admitted for.
    boot: the boot after the reboot; unknown before it was seen.
    marked: rollout's marks are on the Node.
    in_doubt: an earlier process may have requested the reboot.
    drains: how often new pods have sent the node back to draining.
    restagings: how often its host has staged another version.
    targets: what each source that asked for the reboot must show after it.
    note: what to report of a node that succeeds.
    unmoved: how many reboots in a row, including this one, have changed nothing.
    endings: seconds that pods took to end in the last drain, by owner.
    edge: the move by which the node entered the phase, None if it was reported before.
    """

    phase: Phase = Phase.PENDING
    staged_version: str = ""
    boot: BootFacts = _UNSEEN
    marked: bool = False
    in_doubt: bool = False
    drains: int = 0
    restagings: int = 0
    targets: Mapping[Source, str] = field(default_factory=dict)
    note: str = ""
    unmoved: int = 0
    endings: tuple[tuple[str, float], ...] = ()
    edge: Edge | None = None

    def move(self, edge: Edge) -> "Progress":
        """Return the progress after this move; a move that is not in the table is a defect."""
        return replace(self, phase=follow(self.phase, edge), edge=edge)

    @property
    def version(self) -> str:
        """The version that the host is known to run, as far as this run has seen."""
        return self.boot.version


def at_version(context: NodeContext, version: str) -> NodeContext:
    """Return the context with this staged version in place of the planned one."""
    planned = context.planned
    if version == planned.staged_version:
        return context
    return replace(
        context,
        planned=replace(planned, staged_version=version, staged=planned.staged or bool(version)),
    )


def until_given_back(context: NodeContext, phase: Phase) -> NodeContext:
    """Return the context for a step that begins in this phase: what is not rebooting yet may be wished back."""

    def check() -> None:
        context.check()
        if context.stop.reverting:
            raise GivenUpError
        if context.watched and (why := context.watched.why_removed):
            raise NodeRemovedError(f"not rebooted: {why} while it was {phase}")

    return replace(context, check=check) if phase in BEFORE_REBOOT else context
