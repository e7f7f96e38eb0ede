"""What the world has to do: work that is due now, and one heap of timers for work that is due later.

Controllers never act inside a change notification: they note a key here, as real ones do with their
work queues. That keeps every step small, folds bursts of changes into one reconciliation, and lets
a scenario be settled at once by running the timers without waiting for them.
"""

import asyncio
import heapq
import logging
from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

from rollout.lab.clock import LabClock

# How much may be done before other tasks of the loop (API requests, SSH sessions) get their turn.
_SLICE_SECONDS = 0.01
_FOREVER = 3600.0

_LOG = logging.getLogger(__name__)

Work = tuple[Callable[..., None], tuple[Any, ...]]


class _Timer(NamedTuple):
    """No two have the same number, so that the rest is never compared."""

    due: float
    number: int
    work: Work
    settles: bool


class Agenda:
    """Deduplicated work due now, and timers in simulated seconds; in order of due time, then of arrival.

    `time` is the due time of the timer that ran last. When the process was held up, the agenda
    catches up in order, and whoever measures silence by `time` does not take the delay for it.
    """

    def __init__(self, clock: LabClock) -> None:
        self.clock = clock
        self._ready: OrderedDict[Work, None] = OrderedDict()
        self._timers: list[_Timer] = []
        self._waiting: set[Work] = set()
        self._numbers = count()
        self.time = clock.monotonic()
        self._wake: asyncio.Event | None = None
        self._stopped = False
        self.running = False

    def soon(self, work: Callable[..., None], *args: Any) -> None:
        """Do it once what happens now has happened; the same work asked for twice is done once."""
        self._ready[(work, args)] = None
        self._rouse()

    def after(
        self, seconds: float, work: Callable[..., None], *args: Any, settles: bool = True
    ) -> None:
        """Do it in that many simulated seconds.

        `settles` says that `settle` runs it without waiting: right for delays of a cluster's own
        movement, wrong for heartbeats and deadlines.
        """
        self._at(self.clock.monotonic() + seconds, work, *args, settles=settles)

    def repeat(self, seconds: float, work: Callable[..., None]) -> None:
        """Do it every so many simulated seconds, the first time so many after `time`; never part of settling.

        Not after what the clock says: whoever is held up between two such requests would have their
        turns apart.
        """
        due = self.time + seconds
        self._at(due, self._again, due, seconds, work, settles=False)

    def later(self, seconds: float, work: Callable[..., None], *args: Any) -> None:
        """Do the same, but asked for again while it waits it is not done twice."""
        if (work, args) not in self._waiting:
            self._waiting.add((work, args))
            self.after(seconds, self._once, work, args)

    def settle(self) -> None:
        """Run everything that is due and every settling timer, at once, until nothing is left to do."""
        self._run_all_ready()
        while settling := sorted(timer for timer in self._timers if timer.settles):
            self._timers = [timer for timer in self._timers if not timer.settles]
            heapq.heapify(self._timers)
            for timer in settling:
                self._do(timer.work)
            self._run_all_ready()

    async def run(self) -> None:
        """Do everything at its time, until `stop`."""
        self._wake = asyncio.Event()
        self.running = True
        while not self._stopped:
            self._wake.clear()
            self._run_slice()
            if self._ready or self._seconds_to_next() <= 0:
                await asyncio.sleep(0)
                continue
            await self._sleep(self._wake)
        self.running = False

    def stop(self) -> None:
        """End `run`."""
        self._stopped = True
        self._rouse()

    def do(self, work: Callable[..., None], *args: Any) -> None:
        """Do it now.

        While time passes by itself, a failure is logged and the rest goes on: clients can store
        objects that no controller understands. Otherwise it is raised.
        """
        try:
            work(*args)
        except Exception:
            if not self.running:
                raise
            _LOG.exception(
                "the simulated cluster failed at %s", getattr(work, "__qualname__", work)
            )

    async def _sleep(self, wake: asyncio.Event) -> None:
        """Until the next timer, or until it is woken: not by a time-out of the waiting, which costs a task's ending."""
        alarm = asyncio.get_running_loop().call_later(
            self.clock.scaled(self._seconds_to_next()), wake.set
        )
        try:
            await wake.wait()
        finally:
            alarm.cancel()

    def _seconds_to_next(self) -> float:
        return (
            self._timers[0].due - self.clock.monotonic()
            if self._timers
            else _FOREVER * self.clock.speed
        )

    def _run_slice(self) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + _SLICE_SECONDS
        while loop.time() < end:
            if self._ready:
                self._run_ready()
            elif self._seconds_to_next() <= 0:
                self._run_timer()
            else:
                return

    def _run_all_ready(self) -> None:
        while self._ready:
            self._run_ready()

    def _run_ready(self) -> None:
        """Do the oldest piece of work; one taken out may be asked for again while it runs."""
        work, _ = self._ready.popitem(last=False)
        self._do(work)

    def _run_timer(self) -> None:
        timer = heapq.heappop(self._timers)
        self.time = max(self.time, timer.due)
        self._do(timer.work)

    def _at(self, due: float, work: Callable[..., None], *args: Any, settles: bool) -> None:
        heapq.heappush(self._timers, _Timer(due, next(self._numbers), (work, args), settles))
        self._rouse()

    def _again(self, due: float, seconds: float, work: Callable[..., None]) -> None:
        self.do(work)
        # From when it was due: reckoned from the clock, a process that is held up here would take a
        # heartbeat for lost.
        following = due + seconds
        self._at(following, self._again, following, seconds, work, settles=False)

    def _do(self, work: Work) -> None:
        function, args = work
        self.do(function, *args)

    def _once(self, work: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._waiting.discard((work, args))
        work(*args)

    def _rouse(self) -> None:
        if self._wake is not None:
            self._wake.set()
