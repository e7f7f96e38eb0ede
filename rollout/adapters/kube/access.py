"""The way in, kept open: credentials that expire, and refusals by a server that has just come back.

A session is made anew, once for all threads, when its credentials have expired.

An API server that starts refuses everybody for a moment: it listens before it has read who may do what, so that users
whose rights stand in the cluster are told 403 (and service accounts 401) which they are granted right after.

Credentials that a server has accepted are no mistake of whoever runs this: refused later, they have expired or were
replaced, or what the server asks about them is away. They may be accepted again, once an operator has seen to that.
"""

import threading
import time
from functools import partial
from pathlib import Path

from rollout.adapters.kube.session import Session, open_session
from rollout.errors import ApiError, ApiUnavailableError, KubeconfigError

_UNAUTHORIZED = 401
_LOGIN_PAUSE = 5.0
_SECONDS = 60.0
_REFUSALS = (_UNAUTHORIZED, 403)


class Access:
    """The session in use, for many threads.

    A new one is made where the server no longer accepts the credentials, or they have expired, which a rollout of many
    hours may well outlive. Where that fails by then it may succeed later, when the network of its program is back or
    somebody has logged in anew: that is told as a server that is away, for whoever asks to wait out.
    """

    def __init__(self, kubeconfig: Path | None, context: str | None, connections: int) -> None:
        self._open = partial(open_session, kubeconfig, context, connections=connections)
        self._session = self._open(may_ask=True)
        self._renewing = threading.Lock()
        self._lockout: KubeconfigError | None = None
        self._locked_out_until = 0.0

    @property
    def session(self) -> Session:
        """The latest."""
        return self.renewed(self._session) if self._session.has_expired else self._session

    @property
    def server(self) -> str:
        """Address of the API server."""
        return self._session.server

    def renewed(self, refused: Session) -> Session:
        """Return a session with fresh credentials, made once however many threads were refused."""
        with self._renewing:
            if self._session is refused:
                self._session = self._opened_anew()
            return self._session

    def _opened_anew(self) -> Session:
        """Return a new session; a login that has just failed is not repeated for every thread that waits for it."""
        begun = time.monotonic()
        if self._lockout is None or begun >= self._locked_out_until:
            try:
                return self._open(may_ask=False)
            except KubeconfigError as error:
                self._lockout, ended = error, time.monotonic()
                # one that hangs is to hold up no more than half of the time
                self._locked_out_until = ended + max(_LOGIN_PAUSE, ended - begun)
        message = f"the credentials have expired and cannot be renewed: {self._lockout.message}"
        raise ApiUnavailableError(message, status=_UNAUTHORIZED, hint=self._lockout.hint)


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
