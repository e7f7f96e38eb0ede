"""Notifications of a run: an observer beside those who watch it, which nothing waits for and nothing fails by."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from rollout.adapters.notify.outbox import Outbox
from rollout.cli import wiring
from rollout.cli.options.notify import NotifyOptions
from rollout.cli.terminal import say
from rollout.execution.base.reporting import Observers
from rollout.model.notification import AnyNote, NotifyEvent
from rollout.model.plan import RolloutPlan
from rollout.model.progress import StepEvent
from rollout.ports import Observer
from rollout.report.notification_texts import Templates
from rollout.report.notifications import Noteworthy


@dataclass(slots=True)
class _Notifier:
    """Posts what is worth it. Safe to call from many threads; `is_stopped`: whether the run's end was asked for.

    A defect of this program costs the notifications, of which it warns once, and never the rollout.
    """

    noteworthy: Noteworthy
    outbox: Outbox
    events: frozenset[NotifyEvent]
    templates: Templates
    is_stopped: Callable[[], bool]
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_broken: bool = False

    def notify(self, event: StepEvent) -> None:
        with self.lock:
            self._post(self.noteworthy.take(event, stopped=self.is_stopped()))

    def broken_off(self, error: BaseException, at: datetime) -> None:
        with self.lock:
            self._post(self.noteworthy.broken_off(error, at))

    def _post(self, notes: Iterable[AnyNote]) -> None:
        if self.is_broken:
            return
        try:
            for note in notes:
                if NotifyEvent(note.event) in self.events:
                    self.outbox.post(self.templates.worded(note))
        except Exception as error:  # noqa: BLE001 - whatever it is, the nodes come first
            self.is_broken = True
            say(f"warning: no further notifications: internal error, please report it: {type(error).__name__}")


@contextmanager
def notified(
    observer: Observer, plan: RolloutPlan, options: NotifyOptions, is_stopped: Callable[[], bool], *, resumed: bool
) -> Iterator[Observer]:
    """The observer, with notifications of what it is told; leaving it waits a few seconds for those under way."""
    places = wiring.notify_destinations(options)
    if not places:
        yield observer
        return
    noteworthy = Noteworthy(plan, options.notify_cluster, float(options.notify_held_after), resumed=resumed)
    outbox = Outbox(places, say)
    notifier = _Notifier(noteworthy, outbox, options.events, options.templates, is_stopped)
    try:
        yield Observers((observer, notifier))
    except BaseException as error:
        notifier.broken_off(error, wiring.system_clock().now())
        raise
    finally:
        outbox.close()
