"""The API server as the engine asks it: an outage is waited out, and told of, up to a deadline.

All steps of a run have one patience with one outage: a server that has not answered for so long is not waited for anew
by each step that follows.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from rollout.errors import ApiError, ApiUnavailableError
from rollout.execution.base.deadline import Deadline, patiently
from rollout.ports import Clock, ClusterApi

T = TypeVar("T")

# In seconds: whoever waits tries again sooner. After longer without a failure nobody has asked, and nothing is known.
_KNOWN = 60.0

STEPS = "steps"
# How long an answer is awaited once patience is at its end: a server that is back needs no more.
_HURRIED_SECONDS = 5.0


class _Failures(NamedTuple):
    """Moments of the monotonic clock: when the first of a row of failed requests was sent, when the last failed."""

    first: float
    last: float


class Silence:
    """For how long an API server has given those who wait for it no usable answer. For many threads.

    `seconds` is the patience that they share, counted from the first request in a row that failed. Askers, such as
    `steps` and `lock`, are told apart: what one is answered says nothing about the requests of another.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._failures: dict[str, _Failures] = {}

    @property
    def remaining(self) -> float:
        """Seconds of patience that are left; all of them while it answers."""
        now = self._clock.monotonic()
        first = min((row.first for row in tuple(self._failures.values()) if now - row.last < _KNOWN), default=now)
        return max(0.0, self._seconds - (now - first))

    @contextmanager
    def heard(self, asker: str) -> Iterator[None]:
        """Hear whether what is asked within is answered; an error that it answers with is an answer, too."""
        sent = self._clock.monotonic()
        try:
            yield
        except ApiUnavailableError:
            row = self._failures.get(asker)
            first = row.first if row and sent - row.last < _KNOWN else sent
            self._failures[asker] = _Failures(first, self._clock.monotonic())
            raise
        except ApiError:
            self.over(asker)
            raise
        self.over(asker)

    def over(self, asker: str) -> None:
        """Note that it has answered this asker."""
        self._failures.pop(asker, None)


@dataclass(frozen=True, slots=True)
class PatientApi:
    """An API server with patience for its outages.

    `outage` hears of each failure that is waited out; `seconds` is how long a request is repeated where its caller
    sets no deadline, and `silence` what is left of it in an outage that others have met before.
    """

    api: ClusterApi
    clock: Clock
    outage: Callable[[BaseException], None] | None = None
    seconds: float = 600.0
    silence: Silence | None = None

    def ask(self, request: Callable[[ClusterApi], T], deadline: Deadline | None = None) -> T:
        """Return the result of the request, repeated while the server is away; its last `ApiError` at the deadline."""
        return patiently(lambda: self._heard(request), deadline or self.deadline(), self.outage)

    def _heard(self, request: Callable[[ClusterApi], T]) -> T:
        """Ask once, in a hurry once patience is at its end, and hear whether it is answered."""
        if self.silence is None:
            return request(self.api)
        with self.silence.heard(STEPS):
            return request(self.api if self.silence.remaining else self.api.within(_HURRIED_SECONDS))

    def deadline(self, seconds: float | None = None) -> Deadline:
        """Return a deadline that many seconds from now; for several requests that share their patience."""
        return Deadline(self.clock, self._patience if seconds is None else seconds)

    def deadline_within(self, most: float) -> Deadline:
        """Return the deadline of minor requests: `most` seconds from now, or when patience is at its end."""
        return Deadline(self.clock, min(most, self._patience))

    @property
    def _patience(self) -> float:
        return self.seconds if self.silence is None else min(self.seconds, self.silence.remaining)

    def notice(self, error: BaseException) -> None:
        """Tell of a failure that somebody else waits out."""
        if self.outage is not None:
            self.outage(error)


def patient_api(api: ClusterApi, clock: Clock, outage: Callable[[BaseException], None], seconds: float) -> PatientApi:
    """Return an API server for the steps of one run, with one patience of so many seconds for all of them."""
    silence = Silence(clock, seconds)
    return PatientApi(api, clock, outage, seconds, silence)
