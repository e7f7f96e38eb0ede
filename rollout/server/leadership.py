"""Which process holds the Lease: one of the servers, or a rollout of somebody else's."""

import threading
import time

from rollout.errors import FencedError
from rollout.execution.lease import StandingLease, read_lease
from rollout.execution.lock import LeaseLock
from rollout.execution.lock_holder import Holder, LeaseWatch
from rollout.model.fleetlock import is_fleetlock_run
from rollout.ports import Clock, ClusterApi

_FRESH = 2.0
_ON_ITS_WAY = 2.0
_PAUSE = 0.25
# An answer takes milliseconds from its last look to the wire; more than this many seconds is no delay of a network.
_SOON = 5.0


class Leadership:
    """What is known of the Lease, and by which `watch`; for many threads at once.

    `lock` is this server's own while it holds it.
    """

    def __init__(self, api: ClusterApi, clock: Clock, namespace: str, holder: str) -> None:
        self._api = api
        self._holder = holder
        self._clock = clock
        self._namespace = namespace
        self.watch = LeaseWatch(clock)
        self._turn = threading.Lock()
        self._seen = StandingLease("", "", 0.0)
        self._seen_at = float("-inf")
        self.lock: LeaseLock | None = None

    def look(self, age: float = _FRESH) -> Holder:
        """What is known of its holder, from a look at most `age` seconds old; `ApiError` where it cannot be read.

        Whoever has waited for another's look, which began after this was called, needs none of their own.
        """
        oldest = self._clock.monotonic() - age
        with self._turn:
            if self._seen_at < oldest:
                began = self._clock.monotonic()
                self._seen = read_lease(self._api, self._namespace)
                self._seen_at = began
            return self.watch.look(self._seen)

    @property
    def other(self) -> str:
        """Who holds it that is no server, and may be alive; empty where none is."""
        state = self.look()
        if state in (Holder.NOBODY, Holder.GONE) or is_fleetlock_run(self._seen.run):
            return ""
        return f"{self._seen.holder}, for the rollout {self._seen.run or 'unknown'}"

    @property
    def safe_until(self) -> float:
        """Until when what is about to be checked holds: before another can take the Lease and free what was held by it.

        Seconds of the clock. A Lease whose holder is stopped now is not taken for two renewals, and another may have
        been under way.
        """
        return self._clock.monotonic() + min(_SOON, self._seen.renewal)

    def check(self) -> None:
        """Return while a server, this one or another that was seen to renew it, holds the Lease; else `FencedError`.

        It is read anew: what was taken by force a moment ago is still ours by the clock.
        """
        state, lock = self.look(age=0.0), self.lock
        is_own = lock is not None and self._seen.holder == self._holder
        if lock is not None and is_own:
            lock.check()
        if not is_fleetlock_run(self._seen.run) or not (is_own or self._sees_it_renewed(state)):
            raise FencedError("no FleetLock server is known to hold the Lease")

    def _sees_it_renewed(self, state: Holder) -> bool:
        """Whether its holder lives; who has just begun to watch waits for the next renewal."""
        end = self._clock.monotonic() + self._seen.renewal + _ON_ITS_WAY
        while state is Holder.UNKNOWN and self._clock.monotonic() < end:
            time.sleep(_PAUSE)
            state = self.look(age=0.0)
        return state is Holder.ALIVE
