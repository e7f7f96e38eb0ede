"""A `ClusterApi` over HTTP.

Only a broken GET is repeated: other retries need a deadline.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import msgspec
import urllib3
import urllib3.exceptions
from msgspec import Struct
from msgspec.structs import replace

from rollout import __version__
from rollout.adapters.clock import ServerTime, SystemClock
from rollout.adapters.kube.answers import check_answer, exchange_error, is_broken_off
from rollout.adapters.kube.session import ApiSession, Recovery, RenewableSession
from rollout.adapters.kube.watch import WatchStream
from rollout.errors import ApiError, ApiUnavailableError
from rollout.gather.cluster.failure import error_of_answer
from rollout.ports import Query
from rollout.threads import in_background

USER_AGENT = f"rollout/{__version__}"
DEFAULT_PAGE = "500"

_LOG = logging.getLogger("rollout.api")
_JSON = "application/json"
_PATCH = "application/merge-patch+json"
_CHARACTERS_TO_SHOW = "=/,!:"
_UNAUTHORIZED = 401
_SUCCESS = range(200, 300)
_CHUNK = 1 << 16
_WATCH_SLACK_SECONDS = 10.0


class Timeouts(Struct, frozen=True):
    """In seconds."""

    connect: float = 5.0
    # Until the next bytes.
    read: float = 30.0
    # How many times `read` a body may take.
    body_patience: float = 10


class _HttpRequest(Struct, frozen=True):
    method: str
    path: str
    query: Query
    read_timeout: float
    body: object = None
    encoding: str = "gzip"

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def for_log(self) -> str:
        query = dict(self.query)
        if not query:
            return str(self)
        if "continue" in query:
            query["continue"] = "more"
        return f"{self} ?{urlencode(query, safe=_CHARACTERS_TO_SHOW)}"

    def url(self, server: str) -> str:
        query = f"?{urlencode(self.query)}" if self.query else ""
        return f"{server}{self.path}{query}"

    def headers(self) -> dict[str, str]:
        headers = {"Accept": _JSON, "Accept-Encoding": self.encoding, "User-Agent": USER_AGENT}
        if self.body is not None:
            headers["Content-Type"] = _PATCH if self.method == "PATCH" else _JSON
        return headers


def connect(
    kubeconfig: Path | None, context: str | None, *, timeouts: Timeouts | None = None
) -> "KubeApi":
    """Return a client; `KubeconfigError` for an unusable kubeconfig.

    Without a `kubeconfig`: KUBECONFIG, else ~/.kube/config, else the service account. Nothing is
    sent.
    """
    access = RenewableSession(kubeconfig, context)
    return KubeApi(access, timeouts or Timeouts(), Recovery(), ServerTime(SystemClock().monotonic))


class KubeApi(Struct, frozen=True, eq=False):
    """A `ClusterApi` over HTTP."""

    _access: RenewableSession
    _timeouts: Timeouts
    _recovery: Recovery
    _server_time: ServerTime

    @property
    def server(self) -> str:
        """Return the address."""
        return self._access.session.server

    def server_time(self) -> datetime | None:
        """Return the time in UTC, at most two seconds late, or None."""
        return self._server_time.now()

    def within(self, seconds: float) -> "KubeApi":
        """Limit the wait for each answer."""
        timeouts = Timeouts(
            connect=min(self._timeouts.connect, seconds),
            read=min(self._timeouts.read, seconds),
            body_patience=1,
        )
        return replace(self, _timeouts=timeouts)

    def get(self, path: str, query: Query | None = None) -> bytes:
        """GET a body."""
        return self._answer_body("GET", path, query)

    def pages(self, path: str, query: Query | None = None) -> Iterator[bytes]:
        """Yield a list's pages; `ApiGoneError` if the continue token expires."""
        parameters = {"limit": DEFAULT_PAGE, **(query or {})}
        request = _HttpRequest("GET", path, parameters, self._timeouts.read)
        body, continue_token = self._exchange(request)
        while continue_token:
            request = replace(request, query={**parameters, "continue": continue_token})
            next_page = in_background(partial(self._exchange, request), "next page")
            yield body
            body, continue_token = next_page.result()
        yield body

    def create(self, path: str, body: object, query: Query | None = None) -> bytes:
        """POST `body`."""
        return self._answer_body("POST", path, query, body)

    def replace(self, path: str, body: object, query: Query | None = None) -> bytes:
        """PUT `body`."""
        return self._answer_body("PUT", path, query, body)

    def patch(self, path: str, body: object, query: Query | None = None) -> bytes:
        """Send a JSON merge patch."""
        return self._answer_body("PATCH", path, query, body)

    def delete(self, path: str, body: object | None = None) -> bytes:
        """DELETE with DeleteOptions."""
        return self._answer_body("DELETE", path, None, body)

    def watch(
        self, path: str, query: Query, *, seconds: float
    ) -> AbstractContextManager[Iterator[bytes]]:
        """Watch with bookmarks, and yield lines.

        Leaving the context, from any thread, ends the watch. A lost connection raises
        `ApiUnavailableError`.
        """
        parameters = {
            "allowWatchBookmarks": "true",
            **query,
            "watch": "true",
            "timeoutSeconds": str(max(1, round(seconds))),
        }
        read_timeout = seconds + _WATCH_SLACK_SECONDS
        request = _HttpRequest("GET", path, parameters, read_timeout, encoding="identity")
        return WatchStream(
            lambda: self._require_success(request),
            lambda error: self._note_failed_exchange(error, request),
        )

    def _answer_body(
        self, method: str, path: str, query: Query | None, body: object = None
    ) -> bytes:
        request = _HttpRequest(
            method=method,
            path=path,
            query=query or {},
            read_timeout=self._timeouts.read,
            body=body,
        )
        answer, _ = self._exchange(request)
        return answer

    def _exchange(self, request: _HttpRequest) -> tuple[bytes, str]:
        """Return the body and the next page's token, or empty."""
        response = self._require_success(request)
        arrived_at = self._server_time.monotonic()
        try:
            body = self._read_body(response)
            token = check_answer(body, request.method, request.path)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._note_failed_exchange(error, request, status=response.status) from error
        except ApiUnavailableError:
            self._recovery.note_outage()
            raise
        self._server_time.note_answer(response.headers, arrived_at)
        return body, token

    def _note_failed_exchange(
        self, error: Exception, request: _HttpRequest, *, status: int = 0
    ) -> ApiError:
        """Note an outage; return the error to raise.

        `status` is 0 without an answer.
        """
        self._recovery.note_outage()
        api_error = exchange_error(error, self.server, str(request))
        api_error.status = status
        return api_error

    def _read_body(self, response: urllib3.BaseHTTPResponse) -> bytes:
        """Read by a deadline: a server may send single bytes for ever."""
        deadline = time.monotonic() + self._timeouts.read * self._timeouts.body_patience
        try:
            body = b"".join(_chunks(response, deadline))
        except BaseException:
            response.close()
            raise
        response.release_conn()
        return body

    def _require_success(self, request: _HttpRequest) -> urllib3.BaseHTTPResponse:
        """Return a successful response, unread.

        Refused credentials are renewed once.
        """
        session = self._access.session
        response = self._send_with_retry(session, request)
        if response.status == _UNAUTHORIZED:
            response.close()
            renewed_session = self._access.log_in_again(session)
            response = self._send_with_retry(renewed_session, request)
        if response.status in _SUCCESS:
            self._recovery.note_acceptance()
            return response
        raise self._refusal_error(response, request)

    def _send_with_retry(
        self, session: ApiSession, request: _HttpRequest, *, may_repeat: bool = True
    ) -> urllib3.BaseHTTPResponse:
        try:
            return self._send_once(session, request)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            api_error = self._note_failed_exchange(error, request)
            # Other methods might take effect twice.
            is_repeatable = request.method == "GET" and is_broken_off(error)
            if may_repeat and is_repeatable:
                return self._send_with_retry(session, request, may_repeat=False)
            raise api_error from error

    def _send_once(self, session: ApiSession, request: _HttpRequest) -> urllib3.BaseHTTPResponse:
        headers = session.with_credentials(request.headers())
        body = None if request.body is None else msgspec.json.encode(request.body)
        timeout = urllib3.Timeout(connect=self._timeouts.connect, read=request.read_timeout)
        started = time.monotonic()
        outcome = "interrupted"
        try:
            response = session.pool.request(
                request.method,
                request.url(session.server),
                body=body,
                headers=headers,
                timeout=timeout,
                retries=False,
                redirect=False,
                preload_content=False,
            )
            outcome = str(response.status)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            outcome = type(error).__name__
            raise
        finally:
            milliseconds = (time.monotonic() - started) * 1000
            _LOG.debug("%s: %s, %.0f ms", request.for_log(), outcome, milliseconds)
        return response

    def _refusal_error(self, response: urllib3.BaseHTTPResponse, request: _HttpRequest) -> ApiError:
        try:
            body = self._access.session.without_credentials(self._read_body(response))
        except (urllib3.exceptions.HTTPError, OSError):
            body = b""
        retry_after = response.headers.get("Retry-After", "")
        error = error_of_answer(
            response.status, body, request=str(request), retry_after=retry_after
        )
        return self._recovery.classify(error)


def _chunks(response: urllib3.BaseHTTPResponse, deadline: float) -> Iterator[bytes]:
    """Yield parts as they arrive; `TimeoutError` after the deadline."""
    while chunk := response.read1(_CHUNK):
        if time.monotonic() > deadline:
            raise TimeoutError
        yield chunk
