"""The events of a run in the program's own log, each as the sentence that people read."""

import logging

from rollout.model.progress import StepEvent
from rollout.report.sentences import sentence

EVENTS = "rollout.run"
_LOG = logging.getLogger(EVENTS)


class EventLog:
    """Logs every event."""

    def notify(self, event: StepEvent) -> None:
        """One line for one event."""
        if _LOG.isEnabledFor(logging.INFO):
            _LOG.info("%s", sentence(event))
