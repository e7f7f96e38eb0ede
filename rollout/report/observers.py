"""What stands between the engine and whoever watches, and the events of a run in the program's own log."""

import logging

from rollout.model.progress import StepEvent
from rollout.ports import Observer
from rollout.report.sentences import sentence


class Unfailing:
    """Passes events on until the observer fails; from then on the run goes unwatched, and `failure` says why."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.failure: Exception | None = None

    def notify(self, event: StepEvent) -> None:
        """Take one event."""
        if self.failure is not None:
            return
        try:
            self._observer.notify(event)
        except Exception as error:  # noqa: BLE001 - whatever it is, the nodes come first
            self.failure = error


EVENTS = "rollout.run"
_LOG = logging.getLogger(EVENTS)


class EventLog:
    """Logs every event."""

    def notify(self, event: StepEvent) -> None:
        """One line for one event."""
        if _LOG.isEnabledFor(logging.INFO):
            _LOG.info("%s", sentence(event))
