"""The byte streams under SSH: TCP or a local command, with one deadline and one allowance over all of it.

paramiko reads for as long as, and as much as, a host sends. Here the limits sit in the socket: past
them the transport's thread sees the end of the connection, closes down and wakes whoever waits for
it.
"""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence

from typing_extensions import Buffer, override

from rollout.adapters.secrets import child_environment

_INSTANT = 0.001
# What comes before a login is a few kilobytes of keys and a banner.
HANDSHAKE_ALLOWANCE = 1 << 18
_GREETING = 256
_COMPLAINT = 4096


class DeadlineSocket(socket.socket):
    """A stream that ends when its deadline (of `time.monotonic`) has passed or its allowance (bytes) is used up.

    `greeting` is the first that was received: what a host that speaks no SSH says instead.
    """

    deadline: float
    allowance: int
    greeting: bytes

    @property
    def seconds_left(self) -> float:
        """Until the deadline, at least 0."""
        return max(0.0, self.deadline - time.monotonic())

    @property
    def is_flooded(self) -> bool:
        """Whether more came than was allowed."""
        return self.allowance < 0

    def limit(self, deadline: float, allowance: int) -> None:
        """Set what is left of time and bytes."""
        self.deadline = deadline
        self.allowance = allowance
        self.greeting = b""

    @override
    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """As usual; the end of the stream after the deadline or beyond the allowance."""
        if not self.seconds_left or self.is_flooded:
            return b""
        data = super().recv(size, flags)
        if len(self.greeting) < _GREETING:
            self.greeting += data[:_GREETING]
        self.allowance -= len(data)
        return data if self.allowance >= 0 else b""

    @override
    def send(self, data: Buffer, flags: int = 0, /) -> int:
        """As usual; an error after the deadline, and not a time-out, which would be tried again."""
        if not self.seconds_left:
            raise EOFError("deadline")
        return super().send(data, flags)

    @override
    def close(self) -> None:
        """Close it, and wake a thread that reads from it at once rather than at its next look."""
        with contextlib.suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)
        super().close()


class Relay:
    """A local command whose input and output are a connection, and what it complained of.

    In a session of its own: it can ask nothing on the operator's terminal, and does not hear an
    interrupt before we do.
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
        """End it with whatever it has started: a shell, or further jumps."""
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
    """Return a connection to the input and output of a local command, and the command."""
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
    """Return a TCP connection to the first of the name's addresses that answers, within the deadline.

    Each address has its share of the time that is left, so that one that swallows packets does not
    use up the time of the next.
    """
    failure: OSError = TimeoutError("deadline")
    try:
        # the system's resolver has time-outs of its own
        places = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise socket.gaierror(socket.EAI_NONAME, str(error)) from error
    for left, (family, kind, protocol, _, target) in zip(
        range(len(places), 0, -1), places, strict=True
    ):
        candidate = DeadlineSocket(family, kind, protocol)
        candidate.limit(deadline, HANDSHAKE_ALLOWANCE)
        try:
            # Never 0, which would mean not to block.
            candidate.settimeout(candidate.seconds_left / left or _INSTANT)
            candidate.connect(target)
        except OSError as error:
            candidate.close()
            failure = error
        else:
            # Small packets back and forth are all there is.
            candidate.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return candidate
    raise failure
