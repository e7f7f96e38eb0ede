"""What is told while the API server is away."""

import threading

from rollout.execution.base.reporting import Reporter


class OutageNotice:
    """Tells of an API server that is away: once when it goes, not at every attempt."""

    def __init__(self, report: Reporter, *, quiet_seconds: float = 30.0) -> None:
        self._report = report
        self._quiet_seconds = quiet_seconds
        self._turn = threading.Lock()
        self._noticed_at = float("-inf")

    def __call__(self, error: BaseException) -> None:
        """Hear of one failed attempt."""
        now = self._report.now.timestamp()
        with self._turn:
            if now - self._noticed_at < self._quiet_seconds:
                return
            self._noticed_at = now
        self._report.notice(f"waiting for the API server: {error}")
