"""Reads a watch's lines until another thread ends it.

Closing a socket does not wake its reader; shutting its reading side down does.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator

import urllib3
import urllib3.exceptions

from rollout.errors import ApiError

_CHUNK = 1 << 16
_READER_SECONDS = 1.0


class WatchStream:
    """A watch: entering sends the request; leaving, from any thread, ends it."""

    def __init__(
        self,
        connect: Callable[[], urllib3.BaseHTTPResponse],
        translate: Callable[[Exception], ApiError],
    ) -> None:
        self._connect = connect
        self._translate = translate
        self._response: urllib3.BaseHTTPResponse | None = None
        self._read_lock = threading.Lock()
        self._is_left = False

    def __enter__(self) -> Iterator[bytes]:
        response = self._connect()
        self._response = response
        # Another thread has left the watch before it had a response to disconnect.
        if self._is_left:
            self._disconnect(response)
        return self._read_lines()

    def __exit__(self, *_error: object) -> None:
        self._is_left = True
        if self._response is not None:
            self._disconnect(self._response)

    def _read_lines(self) -> Iterator[bytes]:
        incomplete_line = b""
        while chunk := self._read_chunk():
            *lines, incomplete_line = (incomplete_line + chunk).split(b"\n")
            for line in lines:
                if self._is_left:
                    return
                if line.strip():
                    yield line

    def _read_chunk(self) -> bytes:
        """Return the next bytes; none at the end, or once the watch is left."""
        try:
            with self._read_lock:
                if self._is_left or self._response is None:
                    return b""
                return self._response.read1(_CHUNK)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            # Another thread has left, and shut the socket down.
            if self._is_left:
                return b""
            raise self._translate(error) from error

    def _disconnect(self, response: urllib3.BaseHTTPResponse) -> None:
        """Wake the reader, wait until it has returned, then close the response."""
        # RuntimeError and ValueError: the stream has ended, and its connection may be in use again.
        with contextlib.suppress(RuntimeError, ValueError, OSError):
            response.shutdown()
        if self._read_lock.acquire(timeout=_READER_SECONDS):
            try:
                response.close()
            finally:
                self._read_lock.release()
