"""What a server that has just come back is not believed.

An API server that starts refuses everybody for a moment: it listens before it has read who may do what, so that users
whose rights stand in the cluster are told 403 (and service accounts 401) which they are granted right after.

Credentials that a server has accepted are no mistake of whoever runs this: refused later, they have expired or were
replaced, or what the server asks about them is away. They may be accepted again, once an operator has seen to that. So
may be a right that was there: roles and their bindings that are replaced are gone for a moment.
"""

import time

from rollout.errors import ApiError, ApiUnavailableError

_SECONDS = 60.0
_UNAUTHORIZED = 401
_REFUSALS = (_UNAUTHORIZED, 403)
# How a refusal for want of a right is worded, whoever decides on rights; quotas and webhooks have other words.
_OF_ROLES = '" cannot '


class Recovery:
    """Hears of exchanges that failed; judges refusals by how long ago the last one did. For many threads."""

    def __init__(self) -> None:
        self._away_at = float("-inf")
        self._granted: set[str] = set()
        self._withdrawn_at: dict[str, float] = {}

    def was_accepted(self, right: str) -> None:
        """Hear that the server knows the caller, and has granted this right."""
        self._granted.add(right)
        self._withdrawn_at.pop(right, None)

    def was_away(self) -> None:
        """Hear that the server did not answer, or broke off, or said that it cannot."""
        self._away_at = time.monotonic()

    def judge(self, error: ApiError, right: str) -> ApiError:
        """The refusal, or that the server is not to be relied on yet. A refusal with a cause is about the object."""
        if isinstance(error, ApiUnavailableError):
            self.was_away()
            return error
        if error.status == _UNAUTHORIZED and self._granted:
            return _passing(error, "what the API server has accepted before, it does not accept now")
        if error.status not in _REFUSALS or error.causes:
            return error
        if time.monotonic() - self._away_at <= _SECONDS:
            return _passing(error, "the API server was unavailable, and still refuses")
        if _OF_ROLES in error.message and self._was_just_withdrawn(right):
            return _passing(error, "what the API server has allowed before, it does not allow now")
        return error

    def _was_just_withdrawn(self, right: str) -> bool:
        """This one, or others: one that nothing was asked by yet goes and comes back with them."""
        now = time.monotonic()
        if right in self._granted:
            self._withdrawn_at.setdefault(right, now)
        return any(now - at <= _SECONDS for at in self._withdrawn_at.values())


def _passing(error: ApiError, why: str) -> ApiUnavailableError:
    return ApiUnavailableError(f"{why}: {error.message}", status=error.status, reason=error.reason, hint=error.hint)
