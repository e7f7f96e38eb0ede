"""What a server that has just come back is not believed.

An API server that starts refuses everybody for a moment: it listens before it has read who may do what, so that users
whose rights stand in the cluster are told 403 (and service accounts 401) which they are granted right after.
"""

import time

from rollout.errors import ApiError, ApiUnavailableError

_SECONDS = 60.0
_REFUSALS = (401, 403)


class Recovery:
    """Hears of exchanges that failed; judges refusals by how long ago the last one did. For many threads."""

    def __init__(self) -> None:
        self._away_at = float("-inf")

    def was_away(self) -> None:
        """Hear that the server did not answer, or broke off, or said that it cannot."""
        self._away_at = time.monotonic()

    def judge(self, error: ApiError) -> ApiError:
        """The refusal, or that the server is not to be relied on yet. A refusal with a cause is about the object."""
        if isinstance(error, ApiUnavailableError):
            self.was_away()
            return error
        if error.status not in _REFUSALS or error.causes or time.monotonic() - self._away_at > _SECONDS:
            return error
        return ApiUnavailableError(
            f"the API server was unavailable, and still refuses: {error.message}",
            status=error.status,
            reason=error.reason,
            hint=error.hint,
        )
