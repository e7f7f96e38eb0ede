"""Deadlines, and patience with an API server that is away for a while.

Every wait has a deadline, and every deadline knows what it waits for.
"""

from collections.abc import Callable
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception

from rollout.errors import ApiError, ApiUnavailableError, TooManyRequestsError
from rollout.ports import Clock, Event

T = TypeVar("T")

_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 5.0
BUDGET_CAUSE = "DisruptionBudget"


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


def patiently(
    action: Callable[[], T],
    deadline: Deadline,
    notice: Callable[[BaseException], None] | None = None,
    *,
    passing: Callable[[BaseException], bool] = is_passing,
    sleep: Callable[[float], None] | None = None,
) -> T:
    """Return the result of `action`, repeated with growing pauses while the API server is away or asks for patience.

    `notice` hears of each failure that is waited out; `passing` says which are. At the deadline the last is raised;
    what `sleep` raises ends it before.
    """
    retrying = Retrying(
        retry=retry_if_exception(passing),
        wait=lambda state: min(_pause(state), deadline.remaining),
        stop=lambda _state: deadline.expired,
        before_sleep=(lambda state: notice(_failure(state))) if notice else None,
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
    if isinstance(failure, TooManyRequestsError | ApiUnavailableError) and failure.retry_after is not None:
        return min(failure.retry_after, 30.0)
    return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (state.attempt_number - 1))
