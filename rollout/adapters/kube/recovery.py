"""What a server that has just come back is not believed.

An API server that starts refuses everybody for a moment: it listens before it has read who may do what, so that users
whose rights stand in the cluster are told 403 (and service accounts 401) which they are granted right after.

Credentials that a server has accepted are no mistake of whoever runs this: refused later, they have expired or were
replaced, or what the server asks about them is away. They may be accepted again, once somebody has seen to that.
"""

import time

from rollout.errors import ApiError, ApiUnavailableError

_SECONDS = 60.0
_UNAUTHORIZED = 401
_REFUSALS = (_UNAUTHORIZED, 403)


class Recovery:
    """Hears of exchanges that failed; judges refusals by how long ago the last one did. For many threads."""

    def __init__(self) -> None:
        self._away_at = float("-inf")
        self._has_accepted = False

    def was_accepted(self) -> None:
        """Hear that the server has answered as to somebody whom it knows."""
        self._has_accepted = True

    def was_away(self) -> None:
        """Hear that the server did not answer, or broke off, or said that it cannot."""
        self._away_at = time.monotonic()

    def judge(self, error: ApiError) -> ApiError:
        """The refusal, or that the server is not to be relied on yet. A refusal with a cause is about the object."""
        if isinstance(error, ApiUnavailableError):
            self.was_away()
            return error
        if error.status == _UNAUTHORIZED and self._has_accepted:
            return _passing(error, "what the API server has accepted before, it does not accept now")
        if error.status not in _REFUSALS or error.causes or time.monotonic() - self._away_at > _SECONDS:
            return error
        return _passing(error, "the API server was unavailable, and still refuses")


def _passing(error: ApiError, why: str) -> ApiUnavailableError:
    return ApiUnavailableError(f"{why}: {error.message}", status=error.status, reason=error.reason, hint=error.hint)
