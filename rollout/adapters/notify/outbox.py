"""Sends notifications beside the work: whoever posts one never waits, and nobody waits long at the end.

A thread a destination, so that one that hangs holds up no other. Threads are daemons: one that hangs in a call ends
with the process, and where that stands for long, a few that hang are the most that one destination costs.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from queue import SimpleQueue

from rollout.adapters.notify.destination import DeliveryError, Destination, deliver
from rollout.model.notification import Note
from rollout.model.text import counted

_LOG = logging.getLogger("rollout.notify")
# What a destination that hangs leaves waiting; the rest is dropped, and counted.
_MOST_WAITING = 100
# Threads of earlier outboxes, by destination, that may hang while another is begun.
_MOST_HANGING = 3
# Seconds before each attempt.
_PAUSES = (0.0, 1.0, 4.0)
_AT_THE_END = 5.0


class Outbox:
    """Everything on its way to every destination; `warn` hears of each destination's trouble once."""

    def __init__(self, destinations: Iterable[Destination], warn: Callable[[str], None]) -> None:
        self._lanes = tuple(_Lane(destination, warn) for destination in destinations)

    def post(self, note: Note) -> None:
        """Send it to every destination, some time."""
        for lane in self._lanes:
            lane.put(note)

    def close(self, seconds: float = _AT_THE_END) -> None:
        """Send what waits, for so long at most; what is left then is lost, and told."""
        deadline = time.monotonic() + seconds
        for lane in self._lanes:
            lane.finish()
        for lane in self._lanes:
            lane.end(deadline)


class _Lane:
    """One destination: what waits for it, and the thread that sends it."""

    def __init__(self, destination: Destination, warn: Callable[[str], None]) -> None:
        self._destination = destination
        self._warn = warn
        self._waiting: SimpleQueue[Note | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._pending = 0
        self._has_warned = False
        self._over = threading.Event()
        name = f"notify {destination.name}"
        self._hangs = sum(thread.name == name for thread in threading.enumerate()) >= _MOST_HANGING
        self._thread = threading.Thread(target=self._send_all, name=name, daemon=True)
        if not self._hangs:
            self._thread.start()

    def put(self, note: Note) -> None:
        with self._lock:
            self._pending += 1
            is_full = self._pending > _MOST_WAITING
        if self._hangs:
            self._ended()
            self._complain("earlier ones have not been answered yet")
        elif is_full:
            self._ended()
            self._complain("too many are waiting, as it is slow")
        else:
            self._waiting.put(note)

    def finish(self) -> None:
        """Nothing more will be put."""
        self._waiting.put(None)

    def end(self, deadline: float) -> None:
        """Wait for the thread; from then on it is not heard of any more."""
        if not self._hangs:
            self._thread.join(max(0.0, deadline - time.monotonic()))
        self._over.set()
        with self._lock:
            pending = self._pending
        if pending:
            self._complain(f"{counted(pending, 'notification')} not sent, as it did not answer in time", last=True)

    def _send_all(self) -> None:
        while (note := self._waiting.get()) is not None and not self._over.is_set():
            self._send(note)
            self._ended()

    def _send(self, note: Note) -> None:
        """In a few attempts."""
        trouble = ""
        for pause in _PAUSES:
            if self._over.wait(pause):
                return
            try:
                deliver(self._destination, note)
            except DeliveryError as error:
                trouble = str(error)
                _LOG.debug("%s to %s: %s", note.event, self._destination.name, trouble)
                if error.final:
                    break
            else:
                _LOG.debug("%s was sent to %s", note.event, self._destination.name)
                return
        self._complain(trouble)

    def _ended(self) -> None:
        with self._lock:
            self._pending -= 1

    def _complain(self, trouble: str, *, last: bool = False) -> None:
        with self._lock:
            if self._has_warned or (self._over.is_set() and not last):
                return
            self._has_warned = True
        self._warn(f"warning: notifications to {self._destination.name}: {trouble}")
