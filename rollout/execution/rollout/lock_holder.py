"""Whether whoever holds the lock is alive: the Lease says how long that takes to see, and no clock but ours."""

import time
from collections.abc import Callable

from rollout.execution.lock import StandingLease
from rollout.model.quantity import Duration
from rollout.ports import Clock

# A renewal takes a moment to arrive, on a busy machine more than one.
_ON_ITS_WAY = 2.0
_PAUSE = 0.5


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
