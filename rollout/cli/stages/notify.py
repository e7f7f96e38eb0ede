"""Notifications of a run: an observer beside those who watch it, which nothing waits for and nothing fails by."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime

from rollout.adapters.notify import Outbox
from rollout.cli import wiring
from rollout.cli.settings.schema import Settings
from rollout.cli.terminal import say
from rollout.errors import RolloutError
from rollout.execution.base.reporting import Observers
from rollout.model.notification import Note, NotifyEvent, written
from rollout.model.plan import RolloutPlan
from rollout.model.progress import StepEvent
from rollout.model.text import timestamp
from rollout.ports import Observer
from rollout.report.notifications import Noteworthy, ended_by


@dataclass(slots=True)
class News:
    """What a process that makes pass after pass has told of the pass before: the same trouble again is no news."""

    before: object = None
    now: object = None

    def turn(self) -> None:
        """Begin a pass."""
        self.before, self.now = self.now, None

    def is_new(self, note: Note) -> bool:
        """Whether the pass before did not end so, too."""
        self.now = replace(note, at="", run="")
        return self.now != self.before


@dataclass(slots=True)
class _Notifier:
    """Posts what is worth it. Safe to call from many threads; `is_stopped`: whether the run's end was asked for.

    A defect of this program costs the notifications, of which it warns once, and never the rollout.
    """

    noteworthy: Noteworthy
    outbox: Outbox
    events: frozenset[NotifyEvent]
    is_stopped: Callable[[], bool]
    news: News
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_broken: bool = False

    def notify(self, event: StepEvent) -> None:
        with self.lock:
            self._post(self.noteworthy.take(event, stopped=self.is_stopped()))

    def broken_off(self, error: BaseException, at: datetime) -> None:
        with self.lock:
            self._post(self.noteworthy.broken_off(error, at))

    def _post(self, notes: Iterable[Note]) -> None:
        if self.is_broken:
            return
        try:
            for note in notes:
                is_news = self.news.is_new(note) or self.noteworthy.has_begun
                if is_news and NotifyEvent(note.event) in self.events:
                    self.outbox.post(written(note))
        except Exception as error:  # noqa: BLE001 - whatever it is, the nodes come first
            self.is_broken = True
            say(f"warning: no further notifications: internal error, please report it: {type(error).__name__}")


@contextmanager
def notified(
    observer: Observer,
    settings: Settings,
    plan: RolloutPlan,
    *,
    is_stopped: Callable[[], bool] = lambda: False,
    resumed: bool = False,
    unattended: bool = False,
    news: News | None = None,
) -> Iterator[Observer]:
    """Yield the observer, with notifications of what it is told of this plan's run.

    `is_stopped`: whether its end was asked for. Leaving it waits a few seconds for those under way.
    """
    options = settings.notify
    places = wiring.notify_destinations(options)
    if not places:
        yield observer
        return
    held_after = float(options.held_after)
    noteworthy = Noteworthy(plan, settings.cluster.name, held_after, resumed=resumed, unattended=unattended)
    outbox = Outbox(places, say)
    notifier = _Notifier(noteworthy, outbox, frozenset(options.on), is_stopped, news or News())
    try:
        yield Observers((observer, notifier))
    except BaseException as error:
        notifier.broken_off(error, wiring.system_clock().now())
        raise
    finally:
        outbox.close()


def tell_failed_pass(error: RolloutError, settings: Settings, news: News) -> None:
    """Tell that a pass which nobody watches ended before there was a plan; unless the last one did so, too."""
    note = replace(ended_by(error), next="rollout doctor")
    if news.is_new(note):
        tell(note, settings)


def tell(note: Note, settings: Settings) -> None:
    """Send one notification that is of no run, where notifications of its kind are wanted."""
    options, cluster = settings.notify, settings.cluster.name or settings.cluster.context
    places = wiring.notify_destinations(options)
    if NotifyEvent(note.event) not in options.on or not places:
        return
    outbox = Outbox(places, say)
    outbox.post(written(replace(note, cluster=cluster, at=timestamp(wiring.system_clock().now()))))
    outbox.close()
