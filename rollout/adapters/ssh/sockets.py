"""The streams below SSH: TCP or a local command, with limits.

At a limit the stream ends, which ends paramiko's thread and wakes all waiters.
"""

import contextlib
import errno
import os
import select
import socket
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from typing_extensions import Buffer, override

from rollout.adapters.programs import signal_group
from rollout.adapters.secrets import child_environment

# 0 would mean not to block.
_SHORTEST_TIMEOUT = 0.001
# Until another attempt.
_REPEAT_SECONDS = 1.0
# Bytes: before a login, hosts send a few kilobytes.
HANDSHAKE_ALLOWANCE = 1 << 18
_GREETING_LIMIT = 256
_STDERR_LIMIT = 4096
_ResolvedAddress = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]


class DeadlineSocket(socket.socket):
    """A stream with a deadline and a limit of bytes."""

    # By `time.monotonic`.
    deadline: float
    # How many more bytes may come.
    allowance: int
    greeting: bytes = b""

    @property
    def seconds_left(self) -> float:
        """At least 0."""
        return max(0.0, self.deadline - time.monotonic())

    @property
    def is_flooded(self) -> bool:
        """Whether more bytes came than allowed."""
        return self.allowance < 0

    def limit(self, deadline: float, allowance: int) -> None:
        """Set the deadline, and how many more bytes may come."""
        self.deadline = deadline
        self.allowance = allowance

    def begin_handshake(self, deadline: float) -> None:
        """Limit the handshake in time and bytes."""
        self.limit(deadline, HANDSHAKE_ALLOWANCE)
        self.settimeout(self.seconds_left or _SHORTEST_TIMEOUT)

    @override
    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """Return none beyond the limits."""
        if not self.seconds_left or self.is_flooded:
            return b""
        data = super().recv(size, flags)
        if len(self.greeting) < _GREETING_LIMIT:
            self.greeting += data[:_GREETING_LIMIT]
        self.allowance -= len(data)
        return data if self.allowance >= 0 else b""

    @override
    def send(self, data: Buffer, flags: int = 0, /) -> int:
        """Raise `EOFError` at the deadline: paramiko would repeat a timeout."""
        if not self.seconds_left:
            raise EOFError("deadline")
        return super().send(data, flags)

    @override
    def close(self) -> None:
        """Also wake the reader."""
        with contextlib.suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)
        super().close()


class ProxyCommand:
    """A local command that is a connection to a host."""

    def __init__(self, command: Sequence[str], stream: socket.socket) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - the operator's own configuration says it
            command,
            env=child_environment(),
            stdin=stream.fileno(),
            stdout=stream.fileno(),
            stderr=subprocess.PIPE,
            # The terminal's interrupts must not end it.
            start_new_session=True,
        )
        self.stderr = ""

    def end(self) -> None:
        """Kill the command and all that it started."""
        signal_group(self._process.pid)
        self._process.wait()
        pipe = self._process.stderr
        if pipe is not None and not pipe.closed:
            os.set_blocking(pipe.fileno(), False)
            with contextlib.suppress(BlockingIOError):
                printed = os.read(pipe.fileno(), _STDERR_LIMIT)
                self.stderr = printed.decode(errors="replace").strip()
            pipe.close()


def connect_through(command: Sequence[str], deadline: float) -> tuple[DeadlineSocket, ProxyCommand]:
    """Start a command; return the connection to it."""
    own_end, command_end = socket.socketpair()
    # The command has a copy.
    with command_end:
        descriptor = own_end.detach()
        stream = DeadlineSocket(own_end.family, own_end.type, own_end.proto, fileno=descriptor)
        stream.begin_handshake(deadline)
        try:
            return stream, ProxyCommand(command, command_end)
        except OSError:
            stream.close()
            raise


def connect(address: str, port: int, deadline: float) -> DeadlineSocket:
    """Connect to the name's first address that answers.

    Each address gets a share of the time: one may drop packets.
    """
    failure: OSError = TimeoutError("deadline")
    try:
        # Here, the resolver's own timeouts count.
        addresses = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise socket.gaierror(socket.EAI_NONAME, str(error)) from error
    for index, address_info in enumerate(addresses):
        now = time.monotonic()
        untried_addresses = len(addresses) - index
        share_of_time = max(0.0, deadline - now) / untried_addresses
        try:
            connected = _connect_to(address_info, now + share_of_time)
        except OSError as error:
            failure = error
        else:
            connected.begin_handshake(deadline)
            # SSH's small packets must not wait.
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connected
    raise failure


def _connect_to(address_info: _ResolvedAddress, deadline: float) -> DeadlineSocket:
    """The deadline is by `time.monotonic`. Raises `OSError`.

    The kernel repeats a lost packet after 1, 3 and 7 s, so further attempts find a booting host
    sooner. They are few, because firewalls may count them.
    """
    attempts = [_begin_to_connect(address_info)]
    try:
        while True:
            seconds_left = deadline - time.monotonic()
            if seconds_left <= 0:
                raise TimeoutError("timed out")
            if _await_any(attempts, min(seconds_left, _REPEAT_SECONDS)):
                return _take_finished(attempts)
            # The first stays: a distant host may need longer.
            first, *others = attempts
            for attempt in others:
                attempt.close()
            attempts = [first, _begin_to_connect(address_info)]
    finally:
        for attempt in attempts:
            attempt.close()


def _begin_to_connect(address_info: _ResolvedAddress) -> DeadlineSocket:
    family, kind, protocol, _, target = address_info
    attempt = DeadlineSocket(family, kind, protocol)
    attempt.setblocking(False)
    error_number = attempt.connect_ex(target)
    if error_number not in (0, errno.EINPROGRESS):
        attempt.close()
        raise OSError(error_number, os.strerror(error_number))
    return attempt


def _await_any(attempts: Sequence[DeadlineSocket], seconds: float) -> bool:
    """Return False if none has connected or failed in time."""
    poll = select.poll()
    for attempt in attempts:
        poll.register(attempt, select.POLLOUT)
    return bool(poll.poll(seconds * 1000))


def _take_finished(attempts: list[DeadlineSocket]) -> DeadlineSocket:
    """Remove and return the finished one; `OSError` if it failed."""
    finished = next(attempt for attempt in attempts if _is_finished(attempt))
    error_number = finished.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error_number:
        raise OSError(error_number, os.strerror(error_number))
    attempts.remove(finished)
    return finished


def _is_finished(attempt: DeadlineSocket) -> bool:
    return _await_any([attempt], 0)
