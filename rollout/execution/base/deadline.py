"""What ends a wait: a deadline, the end of patience with an API server that is away, and the wish to stop.

Every wait has a deadline, and every deadline knows what it waits for. An outage is waited out, and
told of. All steps of a run have one patience with one outage: a server that has not answered for so
long is not waited for anew by each step that follows. After a wish to stop no further node is
started, and those not rebooting yet may have to go back.
"""

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
# In seconds: whoever waits tries again sooner. After longer without a failure nobody has asked, and
# nothing is known.
_KNOWN = 60.0
# How long an answer is awaited once patience is at its end: a server that is back needs no more.
_HURRIED_SECONDS = 5.0
# In seconds: how long a server that is away is waited for, where nothing else is said.
_PATIENCE = 600.0


class Deadline:
    """A moment of the monotonic clock by which something must have happened."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._end = clock.monotonic() + seconds

    @property
    def remaining(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._end - self._clock.monotonic())

    def pause(self, seconds: float) -> None:
        """Sleep that long, but not past the deadline."""
        self._clock.sleep(min(seconds, self.remaining))

    def wait_for(self, event: Event) -> None:
        """Return at the deadline, or once the event has happened."""
        while not (self.expired or self._clock.wait(event, self.remaining)):
            pass

    @property
    def expired(self) -> bool:
        """Whether nothing is left."""
        return self.remaining == 0.0


def is_passing(error: BaseException) -> bool:
    """Whether the same request may succeed a little later, without anything having to change."""
    if isinstance(error, TooManyRequestsError):
        return not error.has_cause(BUDGET_CAUSE)
    return isinstance(error, ApiUnavailableError)


def has_answered(error: BaseException) -> bool:
    """Whether a server is there and only asks for patience: at the start, one that is not there is likely misnamed."""
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
    """Return the result of `action`, repeated with growing pauses while the API server is away or asks for patience.

    `notice` hears of each failure that is waited out; `passing` says which are. At the deadline the
    last is raised; what `sleep` raises ends it before.
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
    """Doubling pauses, unless the server named one."""
    failure = _failure(state)
    named = failure.retry_after if isinstance(failure, ApiError) else None
    return _GROWING(state) if named is None else min(named, 30.0)


@dataclass
class PatientApi:
    """An API server with patience for its outages. For many threads.

    `notice` hears of each failure that is waited out. `seconds` is how long those who wait for a
    usable answer do so together, counted from the first request in a row that failed, where they
    set no deadline of their own. Askers, such as `STEPS` and the lock, are told apart: what one is
    answered says nothing about the requests of another.
    """

    api: ClusterApi
    clock: Clock
    notice: Callable[[BaseException], None] = _tell_nobody
    seconds: float = field(default_factory=lambda: _PATIENCE)
    # moments of the monotonic clock, by asker: when the first of a row was sent, and when the last
    # failed
    _failures: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def patience(self) -> float:
        """Seconds of it that are left; all of them while the server answers."""
        now = self.clock.monotonic()
        first = min(
            (first for first, last in tuple(self._failures.values()) if now - last < _KNOWN),
            default=now,
        )
        return max(0.0, self.seconds - (now - first))

    @contextmanager
    def heard(self, asker: str) -> Iterator[None]:
        """Hear whether what is asked within is answered; an error that it answers with is an answer, too."""
        sent = self.clock.monotonic()
        try:
            yield
        except ApiUnavailableError:
            first, last = self._failures.get(asker, (sent, sent))
            self._failures[asker] = first if sent - last < _KNOWN else sent, self.clock.monotonic()
            raise
        except ApiError:
            self.over(asker)
            raise
        self.over(asker)

    def over(self, asker: str) -> None:
        """Note that it has answered this asker."""
        self._failures.pop(asker, None)

    def ask(self, request: Callable[[ClusterApi], T], deadline: Deadline | None = None) -> T:
        """Return the result of the request, repeated while the server is away; its last `ApiError` at the deadline.

        It is asked in a hurry once patience is at its end.
        """

        def once() -> T:
            with self.heard(STEPS):
                return request(self.api if self.patience else self.api.within(_HURRIED_SECONDS))

        return patiently(once, deadline or self.deadline(), self.notice)

    def deadline(self, seconds: float | None = None) -> Deadline:
        """Return a deadline that many seconds from now; for several requests that share their patience."""
        return Deadline(self.clock, self.patience if seconds is None else seconds)

    def deadline_within(self, most: float) -> Deadline:
        """Return the deadline of minor requests: `most` seconds from now, or when patience is at its end."""
        return self.deadline(min(most, self.patience))


@dataclass
class StopRequest:
    """A wish that no further node be started. Those in flight finish; `revert`: those not rebooting go back.

    It is wished by whoever asks, or has asked for `ending`, and by itself at the `end`.
    """

    end: Deadline | None = None
    ending: "StopRequest | None" = None
    revert: bool = False
    _event: threading.Event = field(default_factory=threading.Event)
    _last_acts: list[Callable[[], object]] = field(default_factory=list)

    def before_leaving(self, act: Callable[[], object]) -> None:
        """Have this done where the process is to end at once; it has a few seconds."""
        self._last_acts.append(act)

    def leave(self) -> None:
        """Do what has to be done before the process ends at once; in a thread of its own, for it may hang."""
        for act in self._last_acts:
            with suppress(Exception):
                act()

    def request(self) -> None:
        """Wish it; more than once is the same as once."""
        self._event.set()

    @property
    def asked(self) -> bool:
        """Whether somebody wished it."""
        return self._event.is_set() or (self.ending is not None and self.ending.requested)

    @property
    def requested(self) -> bool:
        """Whether somebody wished it, or time is up."""
        return self.asked or (self.end is not None and self.end.expired)

    @property
    def reverting(self) -> bool:
        """Whether nodes that are not rebooting yet are to be given back."""
        return self.revert and self.requested

    @property
    def why(self) -> StopRequested | DeadlineReached:
        """Return why further nodes are not started, once it is wished."""
        return StopRequested() if self.asked or not self.end else DeadlineReached()

    def wait(self, seconds: float) -> bool:
        """Sleep for `seconds`, or until it is wished; whether it was."""
        self._event.wait(seconds if self.end is None else min(seconds, self.end.remaining))
        return self.requested


Guard = Callable[[], None]
"""Return while this process may act; `FencedError` where it may not."""
