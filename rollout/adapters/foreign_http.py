"""HTTP exchanges with servers that are none of ours: one deadline for the whole exchange, and one largest answer.

A time-out of the library's counts from one byte to the next: whoever sends a byte now and then
holds it for ever. So the connection is cut at the deadline, whatever goes on there: connecting,
TLS, headers or body. No redirect is followed: what is meant for one address goes to no other. Not
by urllib3, which logs whole URLs where an answer is garbled.
"""

import re
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import Any, cast

import urllib3

from rollout.threads import in_background

_URL = re.compile(r"https?://[!-~]+", re.IGNORECASE)
_SUCCESS = range(200, 300)
_SHOWN = 200


class ExchangeError(Exception):
    """There was no answer, or none of success; the message is what a server does ("answers 503"), and holds no secret.

    `status` is the answer's, 0 where there was none, and `text` its beginning: a server may send
    back what it was sent.
    """

    def __init__(self, message: str, *, status: int = 0, text: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.text = text


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds for the whole exchange, and bytes of its answer; with 0 the answer's body is not waited for."""

    seconds: float
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
    """Return the body of an answer with success, else `ExchangeError`; the URL's scheme is http or https.

    `by_proxy`: through those of the environment.
    """
    request = urllib.request.Request(url, body, dict(headers or {}), method=method)  # noqa: S310 - see above
    line = _AbortableHandler(bounds.seconds)
    opener = urllib.request.OpenerDirector()
    for handler in (urllib.request.ProxyHandler(None if by_proxy else {}), line):
        opener.add_handler(handler)
    asked = in_background(lambda: _request(opener, request, bounds), "exchange")
    try:
        status, answer = asked.result(bounds.seconds)
    except (OSError, HTTPException, ValueError) as error:
        raise ExchangeError(_why(error)) from error
    finally:
        line.cut()
    if status not in _SUCCESS:
        text = answer[:_SHOWN].decode(errors="replace").strip()
        raise ExchangeError(f"answers {status}", status=status, text=text)
    if len(answer) > bounds.largest:
        raise ExchangeError(
            f"answers with more than {bounds.largest / 1_000_000:.2g} MB", status=status
        )
    return answer


def _request(
    opener: urllib.request.OpenerDirector, request: urllib.request.Request, bounds: Bounds
) -> tuple[int, bytes]:
    """Return the status, and the body, or one byte more than the largest of one that is larger."""
    with opener.open(request, timeout=bounds.seconds) as response:
        body = response.read(bounds.largest + 1) if bounds.largest else b""
        if len(body) <= bounds.largest and bounds.largest and response.length:
            raise IncompleteRead(b"", response.length)
        return response.status, body


class _AbortableHandler(urllib.request.AbstractHTTPHandler):
    """Opens a URL over a connection that can be cut from another thread, also in the middle of a handshake.

    Nothing but http and https is known to it.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self._end: socket.socket | None = None
        self._is_over = False

    def http_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self._open(HTTPConnection, request)

    def https_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self._open(HTTPSConnection, request)

    http_request = urllib.request.AbstractHTTPHandler.do_request_
    https_request = urllib.request.AbstractHTTPHandler.do_request_

    def cut(self) -> None:
        """Have nobody wait on it any longer."""
        self._is_over = True
        if self._end is not None:
            with suppress(OSError):
                self._end.shutdown(socket.SHUT_RDWR)
            self._end.close()

    def _open(self, kind: type[HTTPConnection], request: urllib.request.Request) -> HTTPResponse:
        def over_line(host: str, timeout: float) -> HTTPConnection:
            connection: Any = kind(host, timeout=timeout)
            connection._create_connection = self._connect  # noqa: SLF001 - the library's seam has no public name
            return cast("HTTPConnection", connection)

        return self.do_open(over_line, request)  # type: ignore[arg-type]

    def _connect(self, address: tuple[str, int], *_defaults: object) -> socket.socket:
        """As `socket.create_connection` does; one that comes too late is cut at once."""
        connection = socket.create_connection(address, self._seconds)
        # a further descriptor: TLS takes the first one over
        self._end = connection.dup()
        if self._is_over:
            self.cut()
        return connection


def _why(error: BaseException) -> str:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    match reason:
        case TimeoutError():
            return "does not answer in time"
        case ssl.SSLCertVerificationError():
            return f"has no valid certificate: {reason.verify_message}"
        case OSError() if reason.strerror:
            return f"cannot be reached: {reason.strerror}"
        case _:
            return f"does not answer like a web server ({type(reason).__name__})"


def parse_url(url: str) -> urllib3.util.Url | None:
    """Return the URL as the client reads it that asks there; None for what is none."""
    try:
        return urllib3.util.parse_url(url) if _URL.fullmatch(url) and "\\" not in url else None
    except urllib3.exceptions.LocationParseError:
        return None
