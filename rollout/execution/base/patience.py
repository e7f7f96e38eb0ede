"""The API server as the engine asks it: an outage is waited out, and told of, up to a deadline."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rollout.execution.base.deadline import Deadline, patiently
from rollout.ports import Clock, ClusterApi

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PatientApi:
    """An API server with patience for its outages.

    `outage` hears of each failure that is waited out; `seconds` is how long a request is repeated where its caller
    sets no deadline.
    """

    api: ClusterApi
    clock: Clock
    outage: Callable[[BaseException], None] | None = None
    seconds: float = 600.0

    def ask(self, request: Callable[[ClusterApi], T], deadline: Deadline | None = None) -> T:
        """Result of the request, repeated while the server is away; its last `ApiError` at the deadline."""
        return patiently(lambda: request(self.api), deadline or self.deadline(), self.outage)

    def deadline(self, seconds: float | None = None) -> Deadline:
        """A deadline that many seconds from now; for several requests that share their patience."""
        return Deadline(self.clock, self.seconds if seconds is None else seconds)

    def notice(self, error: BaseException) -> None:
        """Tell of a failure that somebody else waits out."""
        if self.outage is not None:
            self.outage(error)
