"""The way in, kept open: a session that is made anew, once for all threads, when its credentials have expired."""

import threading
import time
from collections.abc import Callable

from rollout.adapters.kube.session import Session
from rollout.errors import ApiUnavailableError, KubeconfigError

_UNAUTHORIZED = 401
_LOGIN_PAUSE = 5.0


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
        """A session with fresh credentials, made once however many threads were refused."""
        with self._renewing:
            if self._session is refused:
                self._session = self._login_anew()
            return self._session

    def _login_anew(self) -> Session:
        """A new session; a login that has just failed is not repeated for every thread that waits for it."""
        if self._lockout is not None and time.monotonic() < self._locked_out_until:
            raise ApiUnavailableError(self._lockout.message, status=_UNAUTHORIZED, hint=self._lockout.hint)
        try:
            return self._login()
        except KubeconfigError as error:
            message = f"the credentials have expired and cannot be renewed: {error.message}"
            self._lockout = ApiUnavailableError(message, status=_UNAUTHORIZED, hint=error.hint)
            self._locked_out_until = time.monotonic() + _LOGIN_PAUSE
            raise self._lockout from error
