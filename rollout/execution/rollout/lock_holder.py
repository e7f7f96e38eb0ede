"""Whether whoever holds the lock is alive: the Lease says how long that takes to see, and no clock but ours."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto

from rollout.execution.lock import NO_LEASE, StandingLease
from rollout.model.quantity import Duration
from rollout.ports import Clock

# A renewal takes a moment to arrive, on a busy machine more than one.
_ON_ITS_WAY = 2.0
_PAUSE = 0.5


@dataclass(frozen=True, slots=True)
class Glance:
    """What one look at the Lease tells, before anybody watches it: enough to be shown, not to decide by.

    `age` is how many seconds ago the holder renewed it, None where that is not known; `one_clock`: by the API server's
    clock alone, else the holder's is held against that. `has_ended`: its process was on this machine, and is gone.
    """

    holder: str
    age: float | None = None
    lease: StandingLease = NO_LEASE
    one_clock: bool = False
    has_ended: bool = False

    @property
    def alive(self) -> bool | None:
        """Whether a process holds it; None where one look does not tell. False is sure, True is as of its last sign."""
        if not self.holder or self.has_ended:
            return False
        if self.age is not None and self.age <= self.lease.renewal + _ON_ITS_WAY:
            return True
        return False if self.is_out_of_date else None

    @property
    def is_out_of_date(self) -> bool:
        """Whether its whole duration has passed without a sign, by one clock; whole seconds are what that tells."""
        return self.one_clock and self.age is not None and self.age > self.lease.duration + _ON_ITS_WAY


def glance(lease: StandingLease, now: datetime | None, *, has_ended: bool = False) -> Glance:
    """What the Lease tells at the API server's time `now`; None before it has told it."""
    seen = lease.written or lease.renewed
    age = max(0.0, (now - seen).total_seconds()) if now and seen else None
    return Glance(lease.holder, age, lease, one_clock=lease.written is not None, has_ended=has_ended)


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
        self._seen = NO_LEASE
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
