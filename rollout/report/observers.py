"""What stands between the engine and whoever watches: a broken terminal or pipe never stops a rollout half-way."""

from rollout.model.progress import StepEvent
from rollout.ports import Observer


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
