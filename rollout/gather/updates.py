"""Hosts asked to look for an update now, and followed in rounds until each has come to an end.

Everything is decided on what one host says at two moments; no clocks of two machines are compared. update_engine
changes the time of its last check only where the update server has answered. So an engine that is idle again has found
nothing if that time is another, and has not reached its server if it is the same.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum

from rollout.errors import SshError
from rollout.gather.hosts.answer import CUT_OFF, complaint, sections
from rollout.gather.hosts.polling import poll
from rollout.gather.hosts.probe_command import MARKER
from rollout.gather.hosts.sudo import refusal
from rollout.model.host import HostFacts, HostObservation, ProbeFailure, UpdateOperation
from rollout.model.quantity import Duration
from rollout.model.text import excerpt
from rollout.ports import Clock, CommandResult, HostExecutor

_BUS_CALL = "busctl --system call com.coreos.update1 /com/coreos/update1 com.coreos.update1.Manager AttemptUpdate"
_CLIENT_CALL = "update_engine_client -check_for_update"

# The operator's own command first, the bus where that is missing, and root where both are refused. Each question begins
# with a marker on stderr, so that what one tool complained about is not taken for another's. Status 124 is that of a
# command that was cut off: there is nobody to answer root either.
CHECK_COMMAND = rf"""
ask() {{
  printf '\n{MARKER} %s\n' "$1" >&2; seconds=$2; shift 2
  if command -v timeout >/dev/null 2>&1; then timeout "$seconds" "$@" </dev/null >/dev/null
  else "$@" </dev/null >/dev/null; fi
}}
ask client 12 {_CLIENT_CALL} && exit 0; client=$?
ask bus 5 {_BUS_CALL} && exit 0; code=$?
if [ "$client" = {CUT_OFF} ] || [ "$code" = {CUT_OFF} ]; then exit {CUT_OFF}; fi
ask sudo-bus 5 sudo -n {_BUS_CALL} && exit 0
ask sudo-client 12 sudo -n {_CLIENT_CALL}
""".strip()

# What the questions may take in all where nobody answers, and the connection before them.
_CHECK_SECONDS = 60.0
_ANSWER_SECONDS = 20.0
_PAUSE_SECONDS = 2.0
_PAUSE_A_HOST = 0.02
# An engine that has just started marks its partition as good first, which can keep it from beginning for 45 s.
_BEGINNING_SECONDS = 90.0
_LOOK = "See journalctl -u update-engine there"
_AT_REST = (UpdateOperation.IDLE, UpdateOperation.UNKNOWN)
_WITH_UPDATE = (
    UpdateOperation.AVAILABLE,
    UpdateOperation.DOWNLOADING,
    UpdateOperation.VERIFYING,
    UpdateOperation.FINALIZING,
)


class CheckOutcome(StrEnum):
    """What became of a host's check; fixed words."""

    ASKED = "asked"
    STAGED = "staged"
    UP_TO_DATE = "up-to-date"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    FAILED = "failed"
    TIMED_OUT = "timed-out"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The end of one host's check.

    `version` is the staged one, where the engine says; `last_checked` when its server last answered, in seconds since
    the epoch by the host's own clock, 0 where it does not say.
    """

    node: str
    outcome: CheckOutcome
    version: str = ""
    message: str = ""
    last_checked: int = 0

    @property
    def settled(self) -> bool:
        """Whether all is well with it."""
        return self.outcome in (CheckOutcome.ASKED, CheckOutcome.STAGED, CheckOutcome.UP_TO_DATE)


@dataclass(frozen=True, slots=True)
class Patience:
    """How the hosts are followed: `concurrency` at a time, each given `probe` seconds, all of them `timeout`."""

    clock: Clock
    timeout: Duration
    probe: float
    concurrency: int


@dataclass(frozen=True, slots=True)
class Check:
    """A host that is checked. `asked_at` is in seconds since the checks began, None where it is still to be asked.

    `now` is what it said last; `begun`: it was seen at it; `has_update`: it has found one; `problem`: why it is silent.
    """

    node: str
    before: HostFacts
    now: HostFacts
    asked_at: float | None = None
    begun: bool = False
    has_update: bool = False
    problem: str = ""

    @property
    def may_be_asked(self) -> bool:
        """Whether it is to be asked now: its engine listens only while it is idle."""
        return self.asked_at is None and self.now.update.operation in _AT_REST and not self.problem

    def result(self, outcome: CheckOutcome, message: str = "") -> CheckResult:
        """Its end."""
        version = self.now.update.new_version if outcome is CheckOutcome.STAGED else ""
        return CheckResult(self.node, outcome, version, message, self.now.update.last_checked)


def begun_check(node: str, facts: HostFacts) -> Check:
    """Return a host at the beginning. One that is reporting a failure takes no question before that is over."""
    operation = facts.update.operation
    at_it = operation not in (*_AT_REST, UpdateOperation.REPORTING_ERROR)
    return Check(node, facts, facts, asked_at=0.0 if at_it else None, begun=at_it, has_update=operation in _WITH_UPDATE)


def heard(check: Check, answer: HostObservation) -> Check:
    """Return a host with its newest answer taken in."""
    if not isinstance(answer, HostFacts):
        return replace(check, problem=answer.message)
    operation = answer.update.operation
    return replace(
        check,
        now=answer,
        begun=check.begun or (check.asked_at is not None and operation not in _AT_REST),
        has_update=check.has_update or operation in _WITH_UPDATE,
        problem=answer.update.message,
    )


def concluded(check: Check, at: float, timeout: Duration) -> CheckResult | None:
    """How it has ended, or None while it goes on."""
    if check.now.boot_id != check.before.boot_id:
        return check.result(CheckOutcome.FAILED, "the host rebooted meanwhile: check again")
    if check.now.update.needs_reboot:
        return check.result(CheckOutcome.STAGED)
    ended = None if check.problem else _at_rest(check, at, timeout)
    if ended is None and at >= timeout:
        doing = check.problem or f"it is at {check.now.update.operation}"
        return check.result(CheckOutcome.TIMED_OUT, f"not done within --timeout {timeout}: {doing}")
    return ended


def _at_rest(check: Check, at: float, timeout: Duration) -> CheckResult | None:
    """How an engine has ended that is idle after the question, or reports a failure."""
    update = check.now.update
    if check.asked_at is None or update.operation not in (UpdateOperation.IDLE, UpdateOperation.REPORTING_ERROR):
        return None
    if check.has_update:
        return check.result(CheckOutcome.FAILED, f"the update failed, or was given up. {_LOOK}")
    is_idle = update.operation is UpdateOperation.IDLE
    # an engine that was restarted meanwhile has forgotten the time
    if is_idle and update.last_checked not in (0, check.before.update.last_checked):
        return check.result(CheckOutcome.UP_TO_DATE)
    if check.begun or not is_idle or at - check.asked_at >= min(_BEGINNING_SECONDS, timeout):
        return check.result(CheckOutcome.FAILED, f"the update server was not reached, or deferred the host. {_LOOK}")
    return None


def check_refusal(result: CommandResult) -> str:
    """Why the host does not look for an update; empty where it does."""
    if result.exit_status == 0:
        return ""
    if result.exit_status is None:
        return "the connection ended before the host answered"
    answers = sections(result.stderr)
    if not answers:
        return f"the host did not run the command; it said: {excerpt(result.stderr) or 'nothing'}"
    if result.exit_status == CUT_OFF:
        return "update_engine did not answer in time: the system bus or the engine is down"
    cause = complaint(answers.get("bus", "")) or complaint(answers.get("client", ""))
    why = f"update_engine refuses the request: {cause or f'exit status {result.exit_status}'}"
    root = refusal(answers.get("sudo-bus", ""))
    return f"{why}; and {root.sentence}" if root else why


def check_hosts(
    selected: tuple[str, ...],
    observations: Mapping[str, HostObservation],
    shell: HostExecutor,
    patience: Patience,
    *,
    wait: bool,
) -> Iterator[CheckResult]:
    """Results as hosts come to an end: of the question alone, or with `wait` of the check."""
    checks = dict[str, Check]()
    for node in selected:
        observation = observations.get(node)
        if isinstance(observation, HostFacts) and not observation.update.needs_reboot:
            checks[node] = begun_check(node, observation)
        else:
            yield _at_once(node, observation)
    began = patience.clock.monotonic()
    with shell.attending([check.before.host for check in checks.values()]):
        yield from _ask(checks, shell, patience, 0.0)
        while wait and checks:
            patience.clock.sleep(max(_PAUSE_SECONDS, _PAUSE_A_HOST * len(checks)))
            yield from _look(checks, shell, patience, began)
            yield from _ask(checks, shell, patience, patience.clock.monotonic() - began)
    yield from map(_unfollowed, checks.values())


def _at_once(node: str, observation: HostObservation | None) -> CheckResult:
    """Return the end of a host that needs no question."""
    if observation is None:
        return CheckResult(node, CheckOutcome.UNREACHABLE, message="no host in the inventory matches this Node")
    if isinstance(observation, ProbeFailure):
        return CheckResult(node, CheckOutcome.UNREACHABLE, message=observation.message)
    return begun_check(node, observation).result(CheckOutcome.STAGED, "it was before")


def _unfollowed(check: Check) -> CheckResult:
    """Return the end of a host that is not followed."""
    if check.asked_at is None:
        message = "update_engine is reporting a failed update, and accepts no request: try again soon"
        return check.result(CheckOutcome.REFUSED, message)
    message = f"it was at it already: {check.now.update.operation}" if check.begun else ""
    return check.result(CheckOutcome.ASKED, message)


def _ask(checks: dict[str, Check], shell: HostExecutor, patience: Patience, at: float) -> Iterator[CheckResult]:
    """Have those that listen now look for an update; the ends of those that refuse."""
    hosts = {node: check.before.host for node, check in checks.items() if check.may_be_asked}
    if not hosts:
        return
    with closing(
        shell.run_on_all(hosts, CHECK_COMMAND, timeout=_CHECK_SECONDS, concurrency=patience.concurrency)
    ) as answers:
        for node, answer in answers:
            if isinstance(answer, SshError):
                yield checks.pop(node).result(CheckOutcome.UNREACHABLE, answer.message)
            elif why := check_refusal(answer):
                yield checks.pop(node).result(CheckOutcome.REFUSED, why)
            else:
                checks[node] = replace(checks[node], asked_at=at)


def _look(checks: dict[str, Check], shell: HostExecutor, patience: Patience, began: float) -> Iterator[CheckResult]:
    """Take in what all of them are up to; the ends of those that have come to one."""
    answers = poll(
        {node: check.before.host for node, check in checks.items()},
        shell,
        timeout=min(patience.probe, _ANSWER_SECONDS),
        concurrency=patience.concurrency,
    )
    at = patience.clock.monotonic() - began
    for node, answer in answers.items():
        checks[node] = heard(checks[node], answer)
        if ended := concluded(checks[node], at, patience.timeout):
            del checks[node]
            yield ended
