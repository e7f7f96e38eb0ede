import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace
from tenacity import RetryCallState, Retrying, retry_if_exception, wait_exponential

from rollout.errors import ApiError, ApiUnavailableError, TooManyRequestsError
from rollout.model.finding import DeadlineReached, StopRequested
from rollout.ports import Clock, ClusterApi, Event

T = TypeVar("T")

# The cause in a 429 if a disruption budget refuses the eviction.
BUDGET_CAUSE = "DisruptionBudget"
# The steps of all nodes count as one caller of `PatientApi`.
STEPS = "steps"
_GROWING_PAUSE = wait_exponential(0.25, max=5.0)
_LONGEST_RETRY_AFTER = 30.0
# The API server may have been back since an older failure.
_FAILURE_VALID_SECONDS = 60.0
# A request's timeout when no patience is left.
_HURRIED_SECONDS = 5.0
_PATIENCE = 600.0


class Deadline:
    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._end = clock.monotonic() + seconds

    @property
    def remaining(self) -> float:
        return max(0.0, self._end - self._clock.monotonic())

    def restart(self, seconds: float) -> None:
        self._end = self._clock.monotonic() + seconds

    def pause(self, seconds: float) -> None:
        self._clock.sleep(min(seconds, self.remaining))

    def sleep_unless(self, event: Event) -> None:
        while not (self.expired or self._clock.wait(event, self.remaining)):
            pass

    @property
    def expired(self) -> bool:
        return self.remaining == 0.0


def is_transient(error: BaseException) -> bool:
    """Whether the request may succeed if it is repeated.

    The refusal by a disruption budget is an answer, although its status is 429.
    """
    if isinstance(error, TooManyRequestsError):
        return not error.has_cause(BUDGET_CAUSE)
    return isinstance(error, ApiUnavailableError)


def is_transient_answer(error: BaseException) -> bool:
    """Like `is_transient`, but the API server must have responded.

    Without a response, its address is probably wrong.
    """
    has_http_status = isinstance(error, ApiError) and error.status != 0
    return has_http_status and is_transient(error)


def _tell_nobody(_error: BaseException) -> None:
    pass


def retry_until(
    deadline: Deadline,
    action: Callable[[], T],
    notice: Callable[[BaseException], None] = _tell_nobody,
    *,
    retriable: Callable[[BaseException], bool] = is_transient,
    sleep: Callable[[float], None] | None = None,
) -> T:
    """Repeat `action` with growing pauses while its errors are retriable.

    `notice` gets each error before its pause. The deadline raises the last error. `sleep` replaces
    the pause, and may raise an error to stop.
    """
    retrying = Retrying(
        retry=retry_if_exception(retriable),
        wait=lambda state: min(_seconds_until_retry(state), deadline.remaining),
        stop=lambda _state: deadline.expired,
        before_sleep=lambda state: notice(_last_error(state)),
        reraise=True,
        sleep=sleep or deadline.pause,
    )
    return retrying(action)


def _last_error(state: RetryCallState) -> BaseException:
    error = state.outcome.exception() if state.outcome else None
    return error or RuntimeError("a retry without a failure")


def _seconds_until_retry(state: RetryCallState) -> float:
    error = _last_error(state)
    if isinstance(error, ApiError) and error.retry_after is not None:
        return min(error.retry_after, _LONGEST_RETRY_AFTER)
    return _GROWING_PAUSE(state)


class _Outage(Struct, frozen=True):
    """Times are monotonic seconds."""

    first_sent: float
    last_failed: float


class PatientApi(Struct):
    """An API server whose outages are waited out.

    Requests without a deadline share the patience: seconds since an outage's first failure.
    """

    api: ClusterApi
    clock: Clock
    notice: Callable[[BaseException], None] = _tell_nobody
    seconds: float = field(default_factory=lambda: _PATIENCE)
    # By caller: an answer to one says nothing about another's requests.
    _outages: dict[str, _Outage] = field(default_factory=dict)

    @property
    def patience_left(self) -> float:
        now = self.clock.monotonic()
        outage_began = now
        # Copied, because other threads note outages.
        for outage in tuple(self._outages.values()):
            if now - outage.last_failed < _FAILURE_VALID_SECONDS:
                outage_began = min(outage_began, outage.first_sent)
        return max(0.0, self.seconds - (now - outage_began))

    @contextmanager
    def noting_outage(self, caller: str) -> Iterator[None]:
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
        first_sent = sent
        last_outage = self._outages.get(caller)
        if last_outage is not None:
            is_same_outage = sent - last_outage.last_failed < _FAILURE_VALID_SECONDS
            first_sent = last_outage.first_sent if is_same_outage else sent
        self._outages[caller] = _Outage(first_sent, last_failed=self.clock.monotonic())

    def note_answer(self, caller: str) -> None:
        self._outages.pop(caller, None)

    def ask(self, request: Callable[[ClusterApi], T], deadline: Deadline | None = None) -> T:
        def ask_once() -> T:
            with self.noting_outage(STEPS):
                api = self.api if self.patience_left else self.api.within(_HURRIED_SECONDS)
                return request(api)

        return retry_until(deadline or self.deadline(), ask_once, self.notice)

    def deadline(self, seconds: float | None = None) -> Deadline:
        return Deadline(self.clock, self.patience_left if seconds is None else seconds)

    def deadline_within(self, most: float) -> Deadline:
        return self.deadline(min(most, self.patience_left))


class GracefulStop(Struct):
    """Whether to start no more nodes.

    A stop is due after `request`, from any thread or signal handler, or at its deadline. Nodes in
    flight are finished; with `revert` (waves.stop), those that are not rebooting yet are returned.
    """

    deadline: Deadline | None = None
    process_stop: "GracefulStop | None" = None
    revert: bool = False
    _event: threading.Event = field(default_factory=threading.Event)
    _process_exit_actions: list[Callable[[], object]] = field(default_factory=list)

    def with_process_stop(self, process_stop: "GracefulStop") -> "GracefulStop":
        # Both share `_event`: a request to one counts for both.
        return replace(self, process_stop=process_stop)

    def add_process_exit_action(self, action: Callable[[], object]) -> None:
        self._process_exit_actions.append(action)

    def run_process_exit_actions(self) -> None:
        """The actions may hang: call this in its own thread."""
        for action in self._process_exit_actions:
            with suppress(Exception):
                action()

    def request(self) -> None:
        self._event.set()

    @property
    def is_requested(self) -> bool:
        """Whether the stop is due for another reason than its own deadline."""
        if self._event.is_set():
            return True
        return self.process_stop is not None and self.process_stop.is_due

    @property
    def is_past_deadline(self) -> bool:
        return self.deadline is not None and self.deadline.expired

    @property
    def is_due(self) -> bool:
        return self.is_past_deadline or self.is_requested

    @property
    def is_reverting(self) -> bool:
        return self.revert and self.is_due

    @property
    def reason(self) -> StopRequested | DeadlineReached:
        if self.is_requested or self.deadline is None:
            return StopRequested()
        return DeadlineReached()

    def wait(self, seconds: float) -> bool:
        if self.deadline is not None:
            seconds = min(seconds, self.deadline.remaining)
        self._event.wait(seconds)
        return self.is_due


Guard = Callable[[], None]
"""Returns while this process may act, and raises `FencedError` if it may not."""
