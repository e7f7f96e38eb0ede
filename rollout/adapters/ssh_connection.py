"""One SSH connection of paramiko with one deadline over everything that happens on it.

paramiko has a time-out for most waits, but not for all (the answer to an exec request is waited for without
end), and measures each on its own. Here the deadline sits in the socket: once it has passed, the
transport's thread sees the end of the connection, closes down and wakes whoever waits for it.
"""

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Sequence

import paramiko
from paramiko.packet import Packetizer
from paramiko.transport import ServiceRequestingTransport
from typing_extensions import Buffer, override

from rollout.errors import SshError
from rollout.model.host import Host
from rollout.ports import CommandResult

_CHUNK = 65536
_NO_STATUS = -1
_JOIN_SECONDS = 5.0
_INSTANT = 0.001
# Longer than any deadline: the socket's is to be the one that counts.
_NEVER = 24 * 3600.0

# Cheap where the server has them; what follows in paramiko's own order stays as the fallback.
_FAST_KEX = ("curve25519-sha256@libssh.org",)
_FAST_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
_RSA_SIGNATURES = ("rsa-sha2-512", "rsa-sha2-256")


class OutputLimitError(SshError):
    """A command printed more than anything sane does."""


class DeadlineSocket(socket.socket):
    """A TCP socket that ends when its deadline (of `time.monotonic`) has passed."""

    deadline: float

    @property
    def seconds_left(self) -> float:
        """Until the deadline, at least 0."""
        return max(0.0, self.deadline - time.monotonic())

    @override
    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """As usual; the end of the stream after the deadline."""
        return super().recv(size, flags) if self.seconds_left else b""

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


class _TimerlessPacketizer(Packetizer):
    """Without the timer thread that paramiko starts a handshake with: the socket has the deadline."""

    def start_handshake(self, timeout: float) -> None:
        """Start nothing."""


class _ManyKeysTransport(ServiceRequestingTransport):
    """For more than one login attempt a connection: the plain transport asks for the login service each time.

    Servers other than OpenSSH's hang up at the second request. The parent waits for the first one's answer
    without end, so the end of the thread has to count as one.
    """

    _service_userauth_accepted: bool

    @override
    def run(self) -> None:
        try:
            super().run()
        finally:
            self._service_userauth_accepted = True


class Connection:
    """A connection from TCP to the last byte. Every method may raise paramiko's and the socket's exceptions."""

    def __init__(self, host: Host, *, deadline: float, many_keys: bool) -> None:
        self._proxy: subprocess.Popen[bytes] | None = None
        if host.proxy:
            self._socket, self._proxy = through(host.proxy, deadline)
        else:
            self._socket = connect(host.address, host.port, deadline)
        kind = _ManyKeysTransport if many_keys else paramiko.Transport
        self._transport = kind(self._socket, packetizer_class=_TimerlessPacketizer)
        self._transport.banner_timeout = self._transport.auth_timeout = _NEVER

    def handshake(self, known_types: tuple[str, ...]) -> paramiko.PKey:
        """Agree on keys, preferring host keys of these types; the key that the host proved to have."""
        options = self._transport.get_security_options()
        options.kex = _first(_FAST_KEX, tuple(options.kex))
        options.ciphers = _first(_FAST_CIPHERS, tuple(options.ciphers))
        options.key_types = _first(_signatures(known_types), tuple(options.key_types))
        self._transport.start_client()
        return self._transport.get_remote_server_key()

    def authenticate(self, user: str, key: paramiko.PKey) -> Sequence[str]:
        """Log in with this key; the methods that the host wants besides, as a rule none."""
        return self._transport.auth_publickey(user, key)

    @property
    def is_open(self) -> bool:
        """Whether the host is still there."""
        return self._transport.is_active()

    def extend(self, deadline: float) -> None:
        """Set another deadline."""
        self._socket.deadline = deadline

    def run(self, command: str, *, limit: int) -> CommandResult:
        """Run a command; `TimeoutError` at the deadline, `OutputLimitError` above `limit` bytes of output."""
        channel = self._transport.open_session(timeout=_NEVER)
        try:
            channel.exec_command(command)
            return self._result(channel, limit)
        finally:
            # Gives back the pipe that it is polled by. The host may be gone: that spoils no answer it has given.
            with contextlib.suppress(EOFError, OSError, paramiko.SSHException):
                channel.close()

    def _result(self, channel: paramiko.Channel, limit: int) -> CommandResult:
        stdout, stderr = self._output(channel, limit)
        channel.status_event.wait(self._socket.seconds_left)
        if not self._socket.seconds_left:
            raise TimeoutError("deadline")
        status = None if channel.exit_status == _NO_STATUS else channel.exit_status
        return CommandResult(status, stdout.decode(errors="replace"), stderr.decode(errors="replace"))

    def close(self) -> None:
        """End it, and wait for its thread."""
        self._socket.close()
        self._transport.close()
        if self._transport.ident is not None:
            self._transport.join(_JOIN_SECONDS)
        if self._proxy is not None:
            # With whatever it has started: a shell, or further jumps.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._proxy.pid, signal.SIGKILL)
            self._proxy.wait()

    def _output(self, channel: paramiko.Channel, limit: int) -> tuple[bytes, bytes]:
        """Both streams until their end: read together, since a full one would stop the other."""
        poller = select.poll()
        poller.register(channel.fileno(), select.POLLIN)
        stdout, stderr = bytearray(), bytearray()
        while True:
            # Before the reading: what arrives between the two is read in the next round.
            ended = channel.eof_received or channel.closed
            if channel.recv_ready():
                stdout += channel.recv(_CHUNK)
            elif channel.recv_stderr_ready():
                stderr += channel.recv_stderr(_CHUNK)
            elif ended:
                return bytes(stdout), bytes(stderr)
            elif not poller.poll(self._socket.seconds_left * 1000):
                raise TimeoutError("deadline")
            if len(stdout) + len(stderr) > limit:
                raise OutputLimitError(f"the host printed more than {limit} bytes")


def through(command: Sequence[str], deadline: float) -> tuple[DeadlineSocket, "subprocess.Popen[bytes]"]:
    """A connection to the input and output of a local command, and the command.

    In a session of its own: it can ask nothing on the operator's terminal, and does not hear an interrupt before we do.
    """
    near, far = socket.socketpair()
    with far:
        ours = DeadlineSocket(near.family, near.type, near.proto, fileno=near.detach())
        ours.deadline = deadline
        ours.settimeout(ours.seconds_left or _INSTANT)
        try:
            process = subprocess.Popen(  # noqa: S603 - the operator's own configuration says it
                command, stdin=far.fileno(), stdout=far.fileno(), stderr=subprocess.DEVNULL, start_new_session=True
            )
        except OSError:
            ours.close()
            raise
    return ours, process


def connect(address: str, port: int, deadline: float) -> DeadlineSocket:
    """A TCP connection to the first of the name's addresses that answers, all within the deadline."""
    failure: OSError = TimeoutError("deadline")
    for family, kind, protocol, _, target in socket.getaddrinfo(address, port, type=socket.SOCK_STREAM):
        candidate = DeadlineSocket(family, kind, protocol)
        candidate.deadline = deadline
        try:
            # Never 0, which would mean not to block.
            candidate.settimeout(candidate.seconds_left or _INSTANT)
            candidate.connect(target)
        except OSError as error:
            candidate.close()
            failure = error
        else:
            # Small packets back and forth are all there is.
            candidate.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return candidate
    raise failure


def _first(wanted: tuple[str, ...], available: tuple[str, ...]) -> tuple[str, ...]:
    """The available ones, the wanted among them in front."""
    front = tuple(name for name in wanted if name in available)
    return front + tuple(name for name in available if name not in front)


def _signatures(key_types: tuple[str, ...]) -> tuple[str, ...]:
    """Signature algorithms of key types: known_hosts names an RSA key by its type, the handshake by its hash."""
    return tuple(name for key_type in key_types for name in (_RSA_SIGNATURES if key_type == "ssh-rsa" else (key_type,)))
