"""The byte streams under SSH, TCP or a local command, limited in time and bytes.

At a limit the stream ends, so that paramiko's thread ends and wakes all waiters.
"""

import contextlib
import errno
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from typing_extensions import Buffer, override

from rollout.adapters.secrets import child_environment

_INSTANT = 0.001
# Seconds until another attempt to connect begins, and is replaced.
_REPEAT = 1.0
# In bytes. Before a login there are a few kilobytes.
HANDSHAKE_ALLOWANCE = 1 << 18
_GREETING = 256
_COMPLAINT = 4096
# What getaddrinfo returns.
_Place = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]


class DeadlineSocket(socket.socket):
    """A stream with a `deadline` (`time.monotonic`) and an `allowance` in bytes.

    `greeting` are the first received bytes.
    """

    deadline: float
    allowance: int
    greeting: bytes

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline, at least 0."""
        return max(0.0, self.deadline - time.monotonic())

    @property
    def is_flooded(self) -> bool:
        """Whether more bytes arrived than allowed."""
        return self.allowance < 0

    def limit(self, deadline: float, allowance: int) -> None:
        """Set the deadline and the allowance."""
        self.deadline = deadline
        self.allowance = allowance
        self.greeting = b""

    @override
    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """Receive bytes; none beyond the limits."""
        if not self.seconds_left or self.is_flooded:
            return b""
        data = super().recv(size, flags)
        if len(self.greeting) < _GREETING:
            self.greeting += data[:_GREETING]
        self.allowance -= len(data)
        return data if self.allowance >= 0 else b""

    @override
    def send(self, data: Buffer, flags: int = 0, /) -> int:
        """Raise `EOFError` at the deadline, because paramiko would repeat a timeout."""
        if not self.seconds_left:
            raise EOFError("deadline")
        return super().send(data, flags)

    @override
    def close(self) -> None:
        """Close the socket, and wake its reader."""
        with contextlib.suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)
        super().close()


class Relay:
    """A local command whose input and output are a connection. `complaint` is its stderr.

    Its own session keeps it from the terminal's interrupts.
    """

    def __init__(self, command: Sequence[str], stream: socket.socket) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - the operator's own configuration says it
            command,
            env=child_environment(),
            stdin=stream.fileno(),
            stdout=stream.fileno(),
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.complaint = ""

    def end(self) -> None:
        """Kill the command with everything it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        pipe = self._process.stderr
        if pipe is not None and not pipe.closed:
            os.set_blocking(pipe.fileno(), False)
            with contextlib.suppress(BlockingIOError):
                self.complaint = os.read(pipe.fileno(), _COMPLAINT).decode(errors="replace").strip()
            pipe.close()


def through(command: Sequence[str], deadline: float) -> tuple[DeadlineSocket, Relay]:
    """Return a connection to a local command, and the command."""
    near, far = socket.socketpair()
    with far:
        ours = DeadlineSocket(near.family, near.type, near.proto, fileno=near.detach())
        ours.limit(deadline, HANDSHAKE_ALLOWANCE)
        ours.settimeout(ours.seconds_left or _INSTANT)
        try:
            return ours, Relay(command, far)
        except OSError:
            ours.close()
            raise


def connect(address: str, port: int, deadline: float) -> DeadlineSocket:
    """Return a TCP connection to the name's first address that answers.

    Each address gets its share of the time, because one may drop packets.
    """
    failure: OSError = TimeoutError("deadline")
    try:
        # The system's resolver has its own timeouts.
        places = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise socket.gaierror(socket.EAI_NONAME, str(error)) from error
    for index, place in enumerate(places):
        now = time.monotonic()
        seconds = max(0.0, deadline - now) / (len(places) - index)
        try:
            connected = _connect_to(place, now + seconds)
        except OSError as error:
            failure = error
        else:
            connected.limit(deadline, HANDSHAKE_ALLOWANCE)
            # A timeout of 0 would mean not to block.
            connected.settimeout(connected.seconds_left or _INSTANT)
            # SSH exchanges small packets, which must not wait for each other.
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connected
    raise failure


def _connect_to(place: _Place, end: float) -> DeadlineSocket:
    """Connect to one address until `end` (`time.monotonic`).

    The kernel repeats a lost packet after 1, 3 and 7 s, so other attempts find a booted host
    sooner. Firewalls that drop packets often count attempts, so there are few.
    """
    attempts = [_begin_to_connect(place)]
    try:
        while (left := end - time.monotonic()) > 0:
            if _await_any(attempts, min(left, _REPEAT)):
                return _take_connected(attempts)
            # The first one stays: it alone may reach a distant host.
            for late in attempts[1:]:
                late.close()
            attempts[1:] = [_begin_to_connect(place)]
        raise TimeoutError("timed out")
    finally:
        for attempt in attempts:
            attempt.close()


def _begin_to_connect(place: _Place) -> DeadlineSocket:
    family, kind, protocol, _, target = place
    attempt = DeadlineSocket(family, kind, protocol)
    attempt.setblocking(False)
    number = attempt.connect_ex(target)
    if number not in (0, errno.EINPROGRESS):
        attempt.close()
        raise OSError(number, os.strerror(number))
    return attempt


def _await_any(attempts: Sequence[DeadlineSocket], seconds: float) -> bool:
    poll = select.poll()
    for attempt in attempts:
        poll.register(attempt, select.POLLOUT)
    return bool(poll.poll(seconds * 1000))


def _take_connected(attempts: list[DeadlineSocket]) -> DeadlineSocket:
    """Remove and return the attempt that is over; `OSError` if it failed."""
    over = next(attempt for attempt in attempts if _await_any([attempt], 0))
    number = over.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if number:
        raise OSError(number, os.strerror(number))
    attempts.remove(over)
    return over
