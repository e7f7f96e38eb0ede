"""One host's check for an update: where it stands after each answer, and when it is over. Pure.

Everything is decided on what one host says at two moments; no clocks of two machines are compared. update_engine
changes the time of its last check only where the update server has answered. So an engine that is idle again has found
nothing if that time is another, and has not reached its server if it is the same.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from rollout.model.host import HostFacts, HostObservation, UpdateOperation, UpdateStatus
from rollout.model.quantity import Duration

# An engine that has just started marks its partition as good first, which can keep it from beginning for 45 s.
BEGINNING_SECONDS = 90.0
_LOOK = "See journalctl -u update-engine there"
_RESTING = frozenset({UpdateOperation.IDLE, UpdateOperation.UNKNOWN})
_PAST_CHECKING = frozenset(
    {
        UpdateOperation.AVAILABLE,
        UpdateOperation.DOWNLOADING,
        UpdateOperation.VERIFYING,
        UpdateOperation.FINALIZING,
    }
)


class CheckOutcome(StrEnum):
    """What became of a host's check; fixed words."""

    ASKED = "asked"
    STAGED = "staged"
    UP_TO_DATE = "up-to-date"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    FAILED = "failed"
    STALLED = "stalled"
    TIMED_OUT = "timed-out"


SETTLED = frozenset({CheckOutcome.ASKED, CheckOutcome.STAGED, CheckOutcome.UP_TO_DATE})


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
        return self.outcome in SETTLED


@dataclass(frozen=True, slots=True)
class Limits:
    """How long things may take, in seconds: all of it, and the time in which nothing changes."""

    timeout: Duration
    stall: Duration

    @property
    def beginning(self) -> float:
        """In which an engine that took the question must be seen at it."""
        return min(BEGINNING_SECONDS, self.stall)


@dataclass(frozen=True, slots=True)
class Watched:
    """A host under way; times are in seconds since the following began.

    `before` is what it said at first, `last` what it said last. `asked`: it was asked, or was at it already. `begun`:
    it was seen at it. `past_checking`: an update was found. `problem` is why it does not answer now.
    """

    node: str
    before: HostFacts
    last: UpdateStatus
    asked: bool = True
    asked_at: float = 0.0
    changed_at: float = 0.0
    begun: bool = False
    past_checking: bool = False
    problem: str = ""

    def result(self, outcome: CheckOutcome, message: str = "") -> CheckResult:
        """Its end."""
        version = self.last.new_version if outcome is CheckOutcome.STAGED else ""
        return CheckResult(self.node, outcome, version, message, self.last.last_checked)


def watched(node: str, facts: HostFacts) -> Watched:
    """A host at the beginning. One that is reporting a failure takes no question before that is over."""
    operation = facts.update.operation
    at_it = operation not in _RESTING and operation is not UpdateOperation.REPORTING_ERROR
    return Watched(node, facts, facts.update, asked=at_it, begun=at_it, past_checking=operation in _PAST_CHECKING)


def may_be_asked(item: Watched) -> bool:
    """Whether it is to be asked now: its engine listens only while it is idle."""
    return not item.asked and item.last.operation in _RESTING and not item.problem


def asked(item: Watched, at: float) -> Watched:
    """A host that has just taken the question."""
    return replace(item, asked=True, asked_at=at, changed_at=at)


def seen(item: Watched, answer: HostObservation, at: float) -> Watched:
    """A host with its newest answer taken in."""
    if not isinstance(answer, HostFacts):
        return replace(item, problem=answer.message)
    operation = answer.update.operation
    return replace(
        item,
        last=answer.update,
        changed_at=at if _moved(item.last, answer.update) else item.changed_at,
        begun=item.begun or (item.asked and operation not in _RESTING),
        past_checking=item.past_checking or operation in _PAST_CHECKING,
        problem=answer.update.message,
    )


def _moved(before: UpdateStatus, now: UpdateStatus) -> bool:
    """Whether it is further with the update; when its server last answered is no progress."""
    return (now.operation, now.progress, now.new_version) != (before.operation, before.progress, before.new_version)


def concluded(item: Watched, answer: HostObservation, at: float, limits: Limits) -> CheckResult | None:
    """How it ended, or None while it goes on."""
    if isinstance(answer, HostFacts):
        if answer.boot_id != item.before.boot_id:
            return item.result(CheckOutcome.FAILED, "the host rebooted meanwhile: check again")
        if item.last.needs_reboot:
            return item.result(CheckOutcome.STAGED)
        ended = _failure(item) or _idle(item, at, limits)
        if ended is not None:
            return ended
    return _overdue(item, at, limits)


def _failure(item: Watched) -> CheckResult | None:
    if not item.asked or item.last.operation is not UpdateOperation.REPORTING_ERROR:
        return None
    what = "the update failed" if item.past_checking else "the update server was not reached, or deferred the host"
    return item.result(CheckOutcome.FAILED, f"{what}. {_LOOK}")


def _idle(item: Watched, at: float, limits: Limits) -> CheckResult | None:
    """An engine that is idle after the question."""
    if not item.asked or item.last.operation is not UpdateOperation.IDLE:
        return None
    if item.past_checking:
        return item.result(CheckOutcome.FAILED, f"an update was started, and given up. {_LOOK}")
    # an engine that was restarted meanwhile has forgotten the time
    if item.last.last_checked not in (0, item.before.update.last_checked):
        return item.result(CheckOutcome.UP_TO_DATE)
    if item.begun:
        return item.result(CheckOutcome.FAILED, f"the update server was not reached, or deferred the host. {_LOOK}")
    if at - item.asked_at >= limits.beginning:
        message = (
            f"update_engine accepted the request, and its update server did not answer in {limits.beginning:.0f} s"
        )
        message = f"{message}. {_LOOK}"
        return item.result(CheckOutcome.FAILED, message)
    return None


def _overdue(item: Watched, at: float, limits: Limits) -> CheckResult | None:
    doing = item.problem or f"it is at {item.last.operation}"
    if at >= limits.timeout:
        return item.result(CheckOutcome.TIMED_OUT, f"not done within --timeout {limits.timeout}: {doing}")
    if at - item.changed_at >= limits.stall:
        outcome = CheckOutcome.UNREACHABLE if item.problem else CheckOutcome.STALLED
        return item.result(outcome, f"nothing has changed for --stall-timeout {limits.stall}: {doing}")
    return None
