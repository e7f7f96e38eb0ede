"""Deadlines, outages of the API server, and requests to stop."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, wait_exponential

from rollout.errors import ApiError, ApiUnavailableError, TooManyRequestsError
from rollout.model.finding import DeadlineReached, StopRequested
from rollout.ports import Clock, ClusterApi, Event

T = TypeVar("T")

BUDGET_CAUSE = "DisruptionBudget"
STEPS = "steps"
_GROWING = wait_exponential(0.25, max=5.0)
_LONGEST_RETRY_AFTER = 30.0
# In seconds. After so long without a failure the server may be back.
_FAILURE_VALID_SECONDS = 60.0
# The timeout of a request when no patience is left.
_HURRIED_SECONDS = 5.0
# How many seconds to wait for an unavailable server by default.
_PATIENCE = 600.0


class Deadline:
    """A moment of the monotonic clock. Everyone who holds it sees a `restart`."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._end = clock.monotonic() + seconds

    @property
    def remaining(self) -> float:
        """Return the seconds left, never negative."""
        return max(0.0, self._end - self._clock.monotonic())

    def restart(self, seconds: float) -> None:
        self._end = self._clock.monotonic() + seconds

    def pause(self, seconds: float) -> None:
        self._clock.sleep(min(seconds, self.remaining))

    def wait_for(self, event: Event) -> None:
        while not (self.expired or self._clock.wait(event, self.remaining)):
            pass

    @property
    def expired(self) -> bool:
        return self.remaining == 0.0


def is_passing(error: BaseException) -> bool:
    if isinstance(error, TooManyRequestsError):
        return not error.has_cause(BUDGET_CAUSE)
    return isinstance(error, ApiUnavailableError)


def has_answered(error: BaseException) -> bool:
    """Whether a server sent this passing error.

    A server that never responds probably has the wrong address.
    """
    return is_passing(error) and isinstance(error, ApiError) and error.status != 0


def _tell_nobody(_error: BaseException) -> None:
    pass


def patiently(
    action: Callable[[], T],
    deadline: Deadline,
    notice: Callable[[BaseException], None] = _tell_nobody,
    *,
    passing: Callable[[BaseException], bool] = is_passing,
    sleep: Callable[[float], None] | None = None,
) -> T:
    """Repeat `action` with growing pauses while its errors are passing.

    `notice` is called for each. At the deadline the last is raised. `sleep` may raise to end the
    wait.
    """
    retrying = Retrying(
        retry=retry_if_exception(passing),
        wait=lambda state: min(_pause(state), deadline.remaining),
        stop=lambda _state: deadline.expired,
        before_sleep=lambda state: notice(_failure(state)),
        reraise=True,
        sleep=sleep or deadline.pause,
    )
    return retrying(action)


def _failure(state: RetryCallState) -> BaseException:
    failure = state.outcome.exception() if state.outcome else None
    return failure or RuntimeError("a retry without a failure")


def _pause(state: RetryCallState) -> float:
    failure = _failure(state)
    if isinstance(failure, ApiError) and failure.retry_after is not None:
        return min(failure.retry_after, _LONGEST_RETRY_AFTER)
    return _GROWING(state)


@dataclass(frozen=True, slots=True)
class _Outage:
    """A row of failed requests, in seconds of the monotonic clock."""

    first_sent: float
    last_failed: float


@dataclass
class PatientApi:
    """An API server that waits out outages. For many threads.

    `seconds` limits the wait of requests without a deadline in one outage, for all steps together.
    Outages are counted by caller: an answer to one says nothing about another's requests.
    """

    api: ClusterApi
    clock: Clock
    notice: Callable[[BaseException], None] = _tell_nobody
    seconds: float = field(default_factory=lambda: _PATIENCE)
    _outages: dict[str, _Outage] = field(default_factory=dict)

    @property
    def patience(self) -> float:
        """Return the seconds left to wait in this outage."""
        now = self.clock.monotonic()
        # The caller that noticed the outage first counts.
        began = now
        for outage in tuple(self._outages.values()):
            if now - outage.last_failed < _FAILURE_VALID_SECONDS:
                began = min(began, outage.first_sent)
        return max(0.0, self.seconds - (now - began))

    @contextmanager
    def noting_outage(self, caller: str) -> Iterator[None]:
        """Note whether the server answers. An error is an answer, too."""
        sent = self.clock.monotonic()
        try:
            yield
        except ApiUnavailableError:
            self._note_failure(caller, sent)
            raise
        except ApiError:
            self.note_answer(caller)
            raise
        self.note_answer(caller)

    def _note_failure(self, caller: str, sent: float) -> None:
        outage = self._outages.get(caller)
        if outage is not None and sent - outage.last_failed < _FAILURE_VALID_SECONDS:
            sent = outage.first_sent
        self._outages[caller] = _Outage(sent, self.clock.monotonic())

    def note_answer(self, caller: str) -> None:
        self._outages.pop(caller, None)

    def ask(self, request: Callable[[ClusterApi], T], deadline: Deadline | None = None) -> T:
        """Repeat the request while the server is unavailable, until the deadline."""

        def once() -> T:
            with self.noting_outage(STEPS):
                api = self.api if self.patience else self.api.within(_HURRIED_SECONDS)
                return request(api)

        return patiently(once, deadline or self.deadline(), self.notice)

    def deadline(self, seconds: float | None = None) -> Deadline:
        return Deadline(self.clock, self.patience if seconds is None else seconds)

    def deadline_within(self, most: float) -> Deadline:
        return self.deadline(min(most, self.patience))


@dataclass
class StopRequest:
    """A request to start no further node. Nodes in flight finish.

    It is also due at the `deadline`, and with `process_stop`. `revert` returns nodes that are not
    rebooting yet.
    """

    deadline: Deadline | None = None
    process_stop: "StopRequest | None" = None
    revert: bool = False
    _event: threading.Event = field(default_factory=threading.Event)
    _last_acts: list[Callable[[], object]] = field(default_factory=list)

    def before_leaving(self, act: Callable[[], object]) -> None:
        """Register a quick act for when the process ends at once."""
        self._last_acts.append(act)

    def leave(self) -> None:
        """Run the registered acts, which may hang, so call it in its own thread."""
        for act in self._last_acts:
            with suppress(Exception):
                act()

    def request(self) -> None:
        self._event.set()

    @property
    def is_requested(self) -> bool:
        if self._event.is_set():
            return True
        return self.process_stop is not None and self.process_stop.is_due

    @property
    def is_due(self) -> bool:
        is_late = self.deadline is not None and self.deadline.expired
        return is_late or self.is_requested

    @property
    def returns_nodes(self) -> bool:
        return self.revert and self.is_due

    @property
    def why(self) -> StopRequested | DeadlineReached:
        if self.is_requested or self.deadline is None:
            return StopRequested()
        return DeadlineReached()

    def wait(self, seconds: float) -> bool:
        """Wait until the stop is due, at most `seconds`; return whether it is."""
        if self.deadline is not None:
            seconds = min(seconds, self.deadline.remaining)
        self._event.wait(seconds)
        return self.is_due


Guard = Callable[[], None]
"""Returns while this process may act, and raises `FencedError` if it may not."""
