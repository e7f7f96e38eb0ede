"""HTTP requests with one deadline and a limit on the answer.

Libraries' timeouts start anew with each byte. Redirects are not followed: the request may hold a
secret.
"""

import re
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import Any, cast

import urllib3
from msgspec import Struct

from rollout.threads import in_background

_URL = re.compile(r"https?://[!-~]+", re.IGNORECASE)
_SUCCESS = range(200, 300)
_MOST_SHOWN_BYTES = 200


class ExchangeError(Exception):
    """A failed request. `text`, unlike the message, may hold secrets."""

    def __init__(self, message: str, *, status: int = 0, text: str = "") -> None:
        super().__init__(message)
        # 0 without an answer.
        self.status = status
        self.text = text


class Bounds(Struct, frozen=True):
    """Limits of an exchange."""

    seconds: float
    # In bytes; 0: do not read the body.
    largest: int = 0


def exchange(
    url: str,
    bounds: Bounds,
    headers: Mapping[str, str] | None = None,
    *,
    body: bytes | None = None,
    method: str = "GET",
    by_proxy: bool = False,
) -> bytes:
    """Return a successful answer's body, or raise `ExchangeError`.

    `by_proxy`: through the environment's proxies.
    """
    request = urllib.request.Request(  # noqa: S310 - http or https
        url, body, dict(headers or {}), method=method
    )
    handler = _AbortableHandler(bounds.seconds)
    opener = urllib.request.OpenerDirector()
    opener.add_handler(urllib.request.ProxyHandler(None if by_proxy else {}))
    opener.add_handler(handler)
    future = in_background(lambda: _send(opener, request, bounds), "exchange")
    try:
        status, answer = future.result(bounds.seconds)
    except (OSError, HTTPException, ValueError) as error:
        raise ExchangeError(_describe_failure(error)) from error
    finally:
        # Also ends the thread.
        handler.abort()
    if status not in _SUCCESS:
        text = answer[:_MOST_SHOWN_BYTES].decode(errors="replace").strip()
        raise ExchangeError(f"responds with status {status}", status=status, text=text)
    if len(answer) > bounds.largest:
        megabytes = bounds.largest / 1_000_000
        raise ExchangeError(f"responds with more than {megabytes:.2g} MB", status=status)
    return answer


def _send(
    opener: urllib.request.OpenerDirector, request: urllib.request.Request, bounds: Bounds
) -> tuple[int, bytes]:
    """Return status and body, cut one byte beyond `bounds.largest`."""
    with opener.open(request, timeout=bounds.seconds) as response:
        if not bounds.largest:
            return response.status, b""
        body = response.read(bounds.largest + 1)
        has_more = bool(response.length)
        is_too_large = len(body) > bounds.largest
        if has_more and not is_too_large:
            raise IncompleteRead(b"", response.length)
        return response.status, body


class _AbortableHandler(urllib.request.AbstractHTTPHandler):
    """Opens connections that `abort` can end, even in a TLS handshake."""

    def __init__(self, timeout: float) -> None:
        super().__init__()
        self._timeout = timeout
        self._socket: socket.socket | None = None
        self._is_aborted = False

    def http_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self._open(HTTPConnection, request)

    def https_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self._open(HTTPSConnection, request)

    http_request = urllib.request.AbstractHTTPHandler.do_request_
    https_request = urllib.request.AbstractHTTPHandler.do_request_

    def abort(self) -> None:
        self._is_aborted = True
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()

    def _open(
        self, connection_type: type[HTTPConnection], request: urllib.request.Request
    ) -> HTTPResponse:
        def make_connection(host: str, timeout: float) -> HTTPConnection:
            connection: Any = connection_type(host, timeout=timeout)
            connection._create_connection = self._connect  # noqa: SLF001
            return cast("HTTPConnection", connection)

        return self.do_open(make_connection, request)  # type: ignore[arg-type]

    def _connect(self, address: tuple[str, int], *_defaults: object) -> socket.socket:
        connection = socket.create_connection(address, self._timeout)
        # TLS takes over the first descriptor.
        self._socket = connection.dup()
        if self._is_aborted:
            self.abort()
        return connection


def _describe_failure(error: BaseException) -> str:
    """Return a predicate for the server."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    match reason:
        case TimeoutError():
            return "does not respond in time"
        case ssl.SSLCertVerificationError():
            return f"has no valid certificate: {reason.verify_message}"
        case OSError() if reason.strerror:
            return f"cannot be reached: {reason.strerror}"
        case _:
            return f"does not respond like a web server ({type(reason).__name__})"


def parse_url(url: str) -> urllib3.util.Url | None:
    """Parse as the HTTP client does; None if invalid."""
    if not _URL.fullmatch(url) or "\\" in url:
        return None
    try:
        return urllib3.util.parse_url(url)
    except urllib3.exceptions.LocationParseError:
        return None
