"""Metrics on their way to a place that may fail or hang: beside the work, which never waits for it."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

EVERY_SECONDS = 2.0
# How long the end of the process waits for the last delivery.
LAST_SECONDS = 5.0
# Metrics of thousands of nodes take a while to write: so many times as long is left to the work.
_REST = 20.0


class Delivery:
    """Delivers whenever something is new, and at the end. Enter it to begin; the first failure is warned of.

    `place` names it in warnings, without any secret. `generation` says whether something is new, 0 that nothing is.
    """

    def __init__(
        self,
        place: str,
        deliver: Callable[[], None],
        generation: Callable[[], int],
        warn: Callable[[str], None],
        *,
        every: float = EVERY_SECONDS,
        last: float = LAST_SECONDS,
    ) -> None:
        self._place = place
        self._deliver_now = deliver
        self._generation = generation
        self._warn = warn
        self._every = every
        self._last = last
        self._delivered = 0
        self._has_warned = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(self._last)
        if self._thread.is_alive():
            self._warn_once(f"no answer within {self._last:g}s")

    def _run(self) -> None:
        is_last, took = False, 0.0
        while not is_last:
            is_last = self._ended.wait(max(self._every, took * _REST))
            began = time.monotonic()
            self._deliver()
            took = time.monotonic() - began

    def _deliver(self) -> None:
        generation = self._generation()
        if generation == self._delivered:
            return
        try:
            self._deliver_now()
            self._delivered = generation
        except Exception as error:  # noqa: BLE001 - whatever it is, the nodes come first
            self._warn_once(str(error))

    def _warn_once(self, why: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._warn(f"the metrics do not reach {self._place}: {why}")
