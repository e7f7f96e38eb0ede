"""Whether whoever holds the lock is alive: the Lease says how long that takes to see, and no clock but ours."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto

from rollout.execution.lock import StandingLease
from rollout.model.quantity import Duration
from rollout.ports import Clock

# A renewal takes a moment to arrive, on a busy machine more than one.
_ON_ITS_WAY = 2.0
_PAUSE = 0.5


@dataclass(frozen=True, slots=True)
class Glance:
    """What one look at the Lease tells, before anybody watches it: enough to be shown, not to decide by.

    `age` is how many seconds ago the holder renewed it, the holder's clock held against the API server's; None where
    either is not known.
    """

    holder: str
    age: float | None
    duration: float

    @property
    def seems_alive(self) -> bool:
        """Whether somebody holds it, who has not let its whole duration pass as far as clocks tell."""
        return bool(self.holder) and (self.age is None or self.age <= self.duration)


def glance(lease: StandingLease, now: datetime | None) -> Glance:
    """What the Lease tells at the API server's time `now`; None before it has told it."""
    age = max(0.0, (now - lease.renewed).total_seconds()) if now and lease.renewed else None
    return Glance(lease.holder, age, lease.duration)


def is_holder_alive(
    read: Callable[[], StandingLease],
    clock: Clock,
    notice: Callable[[str], None],
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Whether a holder renews the Lease while we look on, for as long as it may take to.

    `read` gives the Lease as it stands; `notice` hears of the look before it begins.
    """
    first = read()
    seconds = first.renewal + _ON_ITS_WAY
    if first.holder:
        notice(f"watching up to {Duration(round(seconds))} for {first.holder} to renew the lock")
    current, end = first, clock.monotonic() + seconds
    while current.holder and clock.monotonic() < end:
        sleep(_PAUSE)
        current = read()
        if current.holder and current.version != first.version:
            return True
    return False


class Holder(Enum):
    """What a watch knows of whoever holds the lock."""

    NOBODY = auto()
    UNKNOWN = auto()
    ALIVE = auto()
    GONE = auto()


class LeaseWatch:
    """Watches a Lease from look to look: a holder renews it, or lets its whole duration pass and is gone."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen = StandingLease("", "", 0.0)
        self._since = 0.0
        self._renewed = False

    @property
    def holder(self) -> str:
        """Who held it at the last look; empty for nobody."""
        return self._seen.holder

    @property
    def stale(self) -> str:
        """The version that went unrenewed for so long that the lock may be taken; empty where it may not."""
        return self._seen.version if self.state is Holder.GONE else ""

    def look(self, lease: StandingLease) -> Holder:
        """Take the Lease as it stands now, and say what that tells of its holder."""
        if (lease.holder, lease.version) != (self._seen.holder, self._seen.version):
            self._renewed = bool(lease.holder) and lease.holder == self._seen.holder
            self._seen, self._since = lease, self._clock.monotonic()
        return self.state

    @property
    def state(self) -> Holder:
        """What is known by now."""
        if not self._seen.holder:
            return Holder.NOBODY
        if self._clock.monotonic() - self._since >= self._seen.duration:
            return Holder.GONE
        return Holder.ALIVE if self._renewed else Holder.UNKNOWN
