"""A run as plain lines, one an event, with the time of day: for CI logs, pipes and dumb terminals."""

import threading
from typing import IO

from rollout.model.progress import StepEvent
from rollout.report.sentences import sentence


class PlainLines:
    """Writes every event as one line, at once. Safe to call from many threads."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def notify(self, event: StepEvent) -> None:
        """One line for one event."""
        text = f"{event.at.astimezone():%H:%M:%S} {sentence(event)}\n"
        with self._lock:
            self._stream.write(text)
            self._stream.flush()
