"""Whether a node's drain could end at all: a host whose drain cannot takes no slot, and its node is left untouched.

The forecast is the plan's own. What a plan only warns of is waited out by the drain.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rollout.gather.cluster.snapshot import read_snapshot
from rollout.model.cluster import ClusterSnapshot
from rollout.model.host import HostFacts
from rollout.model.policy import Policy
from rollout.planning.drainable import DrainForecaster
from rollout.planning.eligibility import Candidate
from rollout.ports import Clock, ClusterApi
from rollout.server.answers import Denied, Kind

_FRESH = 2.0
# Of a core, what reading the cluster may take: 30,000 pods take 4 s.
_SHARE = 0.1

T = TypeVar("T")


@dataclass(slots=True)
class Kept(Generic[T]):
    """Read by `read`, and again once it is older than `seconds`; reading it takes at most that `share` of the time.

    For many threads at once: one reads, the others wait for it.
    """

    read: Callable[[], T]
    seconds: float
    clock: Clock
    share: float = 1.0
    turn: threading.Lock = field(default_factory=threading.Lock)
    value: T | None = None
    until: float = float("-inf")

    def forget(self) -> None:
        """Have it read again, by whoever is next."""
        with self.turn:
            self.until = float("-inf")

    def now(self) -> T:
        """The value, read again where it is too old."""
        with self.turn:
            began = self.clock.monotonic()
            if self.value is None or began > self.until:
                self.value = self.read()
                took = self.clock.monotonic() - began
                self.until = began + max(self.seconds, took / self.share)
            return self.value


class Forecasts:
    """Forecasts by one reading of the cluster for all hosts that ask within some seconds. For many threads at once."""

    def __init__(self, api: ClusterApi, policy: Policy, clock: Clock) -> None:
        self._api = api
        self._policy = policy
        self._cluster: Kept[tuple[ClusterSnapshot, DrainForecaster]] = Kept(self._read, _FRESH, clock, _SHARE)
        # a forecast moves pods to and fro in the rooms of the one reading
        self._turn = threading.Lock()

    def check(self, candidate: Candidate, facts: HostFacts) -> None:
        """`Denied` where the node's drain can never end; `ApiError` where that cannot be told."""
        snapshot, forecaster = self._cluster.now()
        timeout = candidate.policy.drain.timeout
        if timeout != self._policy.drain.timeout:
            forecaster = forecaster.waiting(snapshot, timeout)
        with self._turn:
            blockers = forecaster.forecast(candidate, facts).blockers
        if blockers:
            first, more = blockers[0], f", and {len(blockers) - 1} more" if len(blockers) > 1 else ""
            why = f"{first.kind}: {first.object} {first.message}{more}"
            raise Denied(Kind.DRAIN_BLOCKED, f"the drain of {candidate.node.name} would fail: {why}")

    def _read(self) -> tuple[ClusterSnapshot, DrainForecaster]:
        snapshot = read_snapshot(self._api)
        return snapshot, DrainForecaster.of(snapshot, self._policy)
