"""Controllers queue keys here, so that many changes cause one reconciliation."""

import asyncio
import heapq
import logging
from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

from rollout.lab.clock import LabClock

# Other tasks of the loop (API, SSH) wait at most this long.
_SLICE_SECONDS = 0.01
_FOREVER = 3600.0

_LOG = logging.getLogger(__name__)

Work = tuple[Callable[..., None], tuple[Any, ...]]


class _Timer(NamedTuple):
    """Numbers are unique, so that `work` is never compared."""

    due: float
    number: int
    work: Work
    is_skippable: bool


class Agenda:
    """Timers, in simulated seconds.

    `time` is when the last one was due: controllers that measure silence by it do not mistake a
    delay of the process for silence.
    """

    def __init__(self, clock: LabClock) -> None:
        self.clock = clock
        self.time = clock.monotonic()
        self.running = False
        self._ready: OrderedDict[Work, None] = OrderedDict()
        self._timers: list[_Timer] = []
        self._waiting: set[Work] = set()
        self._numbers = count()
        self._wake: asyncio.Event | None = None
        self._stopped = False

    def soon(self, work: Callable[..., None], *args: Any) -> None:
        """The same work that is queued twice is done once."""
        self._ready[(work, args)] = None
        self._wake_up()

    def after(
        self, seconds: float, work: Callable[..., None], *args: Any, is_skippable: bool = True
    ) -> None:
        """`is_skippable` lets `fast_forward` do it at once: wrong for heartbeats and deadlines."""
        self._at(self.clock.monotonic() + seconds, work, *args, is_skippable=is_skippable)

    def later(self, seconds: float, work: Callable[..., None], *args: Any) -> None:
        """Do the work later, unless the same work is waiting."""
        if (work, args) not in self._waiting:
            self._waiting.add((work, args))
            self.after(seconds, self._once, work, args)

    def repeat(self, seconds: float, work: Callable[..., None]) -> None:
        """Repeat from `time` on, in simulated seconds; `fast_forward` leaves it out."""
        due = self.time + seconds
        self._at(due, self._again, due, seconds, work, is_skippable=False)

    def fast_forward(self) -> None:
        self._run_all_ready()
        while skipped := sorted(timer for timer in self._timers if timer.is_skippable):
            self._timers = [timer for timer in self._timers if not timer.is_skippable]
            heapq.heapify(self._timers)
            for timer in skipped:
                self._do(timer.work)
            self._run_all_ready()

    async def run(self) -> None:
        self._wake = asyncio.Event()
        self.running = True
        while not self._stopped:
            self._wake.clear()
            self._run_slice()
            if self._ready or self._seconds_to_next() <= 0:
                await asyncio.sleep(0)
            else:
                await self._sleep(self._wake)
        self.running = False

    def stop(self) -> None:
        self._stopped = True
        self._wake_up()

    def do(self, work: Callable[..., None], *args: Any) -> None:
        """Do the work; `run` only logs failures, as clients can store odd objects."""
        try:
            work(*args)
        except Exception:
            if not self.running:
                raise
            name = getattr(work, "__qualname__", work)
            _LOG.exception("the simulated cluster failed at %s", name)

    async def _sleep(self, wake: asyncio.Event) -> None:
        # A timeout of the wait would cost a task's end each time.
        seconds = self.clock.scaled(self._seconds_to_next())
        alarm = asyncio.get_running_loop().call_later(seconds, wake.set)
        try:
            await wake.wait()
        finally:
            alarm.cancel()

    def _seconds_to_next(self) -> float:
        if not self._timers:
            return _FOREVER * self.clock.speed
        return self._timers[0].due - self.clock.monotonic()

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
        """The work may be queued again while it runs."""
        work, _ = self._ready.popitem(last=False)
        self._do(work)

    def _run_timer(self) -> None:
        timer = heapq.heappop(self._timers)
        self.time = max(self.time, timer.due)
        self._do(timer.work)

    def _at(self, due: float, work: Callable[..., None], *args: Any, is_skippable: bool) -> None:
        heapq.heappush(self._timers, _Timer(due, next(self._numbers), (work, args), is_skippable))
        self._wake_up()

    def _again(self, due: float, seconds: float, work: Callable[..., None]) -> None:
        self.do(work)
        # Counted from the clock, a delay of the process would look like a lost heartbeat.
        next_due = due + seconds
        self._at(next_due, self._again, next_due, seconds, work, is_skippable=False)

    def _do(self, work: Work) -> None:
        function, args = work
        self.do(function, *args)

    def _once(self, work: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._waiting.discard((work, args))
        work(*args)

    def _wake_up(self) -> None:
        if self._wake is not None:
            self._wake.set()
