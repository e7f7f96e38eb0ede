"""Reads a watch's lines until another thread ends it.

Closing a socket does not wake its reader; shutting it down does.
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
    """A watch. Leaving it, from any thread, ends it."""

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
        # The watch was left before it had a response.
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
        try:
            with self._read_lock:
                if self._is_left or self._response is None:
                    return b""
                return self._response.read1(_CHUNK)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            if self._is_left:
                return b""
            raise self._translate(error) from error

    def _disconnect(self, response: urllib3.BaseHTTPResponse) -> None:
        """Wake the reader, await its return, then close the response."""
        # The stream has ended; its connection may be in use again.
        with contextlib.suppress(RuntimeError, ValueError, OSError):
            response.shutdown()
        if self._read_lock.acquire(timeout=_READER_SECONDS):
            try:
                response.close()
            finally:
                self._read_lock.release()
