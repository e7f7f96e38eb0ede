"""The lines of a watch.

Closing a socket does not wake its reader, but shutting down the reading side does.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator

import urllib3
import urllib3.exceptions

from rollout.errors import ApiError

_CHUNK = 1 << 16
_LEAVING_SECONDS = 1.0


class WatchStream:
    """Entering sends the request. Leaving, from any thread, ends the watch."""

    def __init__(
        self,
        connect: Callable[[], urllib3.BaseHTTPResponse],
        translate: Callable[[Exception], ApiError],
    ) -> None:
        self._connect = connect
        self._translate = translate
        self._response: urllib3.BaseHTTPResponse | None = None
        self._reading = threading.Lock()
        self._closed = False

    def __enter__(self) -> Iterator[bytes]:
        response = self._connect()
        self._response = response
        if self._closed:
            self._disconnect(response)
        return self._lines()

    def __exit__(self, *_error: object) -> None:
        self._closed = True
        if self._response is not None:
            self._disconnect(self._response)

    def _lines(self) -> Iterator[bytes]:
        pending = b""
        while chunk := self._next_chunk():
            *lines, pending = (pending + chunk).split(b"\n")
            for line in filter(bytes.strip, lines):
                if self._closed:
                    return
                yield line

    def _next_chunk(self) -> bytes:
        try:
            with self._reading:
                if self._closed or self._response is None:
                    return b""
                return self._response.read1(_CHUNK)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            # Another thread has ended the watch and shut the socket down.
            if self._closed:
                return b""
            raise self._translate(error) from error

    def _disconnect(self, response: urllib3.BaseHTTPResponse) -> None:
        """Wake the reader, wait until it has left, then close the response."""
        # RuntimeError and ValueError: the stream has ended, and its connection is reused.
        with contextlib.suppress(RuntimeError, ValueError, OSError):
            response.shutdown()
        if self._reading.acquire(timeout=_LEAVING_SECONDS):
            try:
                response.close()
            finally:
                self._reading.release()
