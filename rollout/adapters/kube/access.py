"""The way in, kept open: credentials that expire, and refusals by a server that has just come back.

A session is made anew, once for all threads, when its credentials have expired.

An API server that starts refuses everybody for a moment: it listens before it has read who may do what, so that users
whose rights stand in the cluster are told 403 (and service accounts 401) which they are granted right after.

Credentials that a server has accepted are no mistake of whoever runs this: refused later, they have expired or were
replaced, or what the server asks about them is away. They may be accepted again, once an operator has seen to that.
"""

import threading
import time
from collections.abc import Callable

from rollout.adapters.kube.session import Session
from rollout.errors import ApiError, ApiUnavailableError, KubeconfigError

_UNAUTHORIZED = 401
_LOGIN_PAUSE = 5.0
_SECONDS = 60.0
_REFUSALS = (_UNAUTHORIZED, 403)


class Access:
    """The session in use.

    `login` gives a new one: called at once, and again when the server no longer accepts the credentials, which a
    rollout of many hours may well outlive. Where it fails by then it may succeed later, when the network of its program
    is back or somebody has logged in anew: that is told as a server that is away, for whoever asks to wait out.
    """

    def __init__(self, login: Callable[[], Session]) -> None:
        self._login = login
        self._session = login()
        self._renewing = threading.Lock()
        self._lockout: ApiUnavailableError | None = None
        self._locked_out_until = 0.0

    @property
    def session(self) -> Session:
        """The latest."""
        return self._session

    def renewed(self, refused: Session) -> Session:
        """Return a session with fresh credentials, made once however many threads were refused."""
        with self._renewing:
            if self._session is refused:
                self._session = self._login_anew()
            return self._session

    def _login_anew(self) -> Session:
        """Return a new session; a login that has just failed is not repeated for every thread that waits for it."""
        if self._lockout is not None and time.monotonic() < self._locked_out_until:
            raise ApiUnavailableError(self._lockout.message, status=_UNAUTHORIZED, hint=self._lockout.hint)
        try:
            return self._login()
        except KubeconfigError as error:
            message = f"the credentials have expired and cannot be renewed: {error.message}"
            self._lockout = ApiUnavailableError(message, status=_UNAUTHORIZED, hint=error.hint)
            self._locked_out_until = time.monotonic() + _LOGIN_PAUSE
            raise self._lockout from error


class Recovery:
    """Hears of exchanges that failed; judges refusals by how long ago the last one did. For many threads."""

    def __init__(self) -> None:
        self._away_at = float("-inf")
        self._is_known = False

    def was_accepted(self) -> None:
        """Hear that the server knows the caller."""
        self._is_known = True

    def was_away(self) -> None:
        """Hear that the server did not answer, or broke off, or said that it cannot."""
        self._away_at = time.monotonic()

    def judge(self, error: ApiError) -> ApiError:
        """Return the refusal, or that the server is not to be relied on yet; one with a cause is about the object."""
        if isinstance(error, ApiUnavailableError):
            self.was_away()
            return error
        if error.status == _UNAUTHORIZED and self._is_known:
            return _passing(error, "what the API server has accepted before, it does not accept now")
        if error.status not in _REFUSALS or error.causes:
            return error
        if time.monotonic() - self._away_at <= _SECONDS:
            return _passing(error, "the API server was unavailable, and still refuses")
        return error


def _passing(error: ApiError, why: str) -> ApiUnavailableError:
    return ApiUnavailableError(f"{why}: {error.message}", status=error.status, reason=error.reason, hint=error.hint)
