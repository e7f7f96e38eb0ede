"""An SSH connection through paramiko, with one deadline.

paramiko's timeouts count each wait by itself, and none covers the answer to an exec request.
"""

import contextlib
import logging
import re
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import paramiko
from paramiko.auth_handler import AuthOnlyHandler
from paramiko.common import cMSG_SERVICE_REQUEST
from paramiko.packet import Packetizer
from paramiko.transport import ServiceRequestingTransport
from typing_extensions import override

from rollout.adapters.ssh.failures import (
    Offer,
    OutputLimitError,
    Stage,
    TurnedAwayError,
    ssh_error,
)
from rollout.adapters.ssh.keys import UnsignedError, describe
from rollout.adapters.ssh.known_hosts import HostKey
from rollout.adapters.ssh.sockets import (
    HANDSHAKE_ALLOWANCE,
    DeadlineSocket,
    ProxyCommand,
    connect,
    connect_through,
)
from rollout.errors import SshAuthError, SshError
from rollout.model.host import Host
from rollout.model.text import excerpt
from rollout.ports import CommandResult

# Of sshd, or ssh to a jump host, while too many log in.
_BUSY_GREETINGS = (b"Exceeded MaxStartups", b"Not allowed at this time")
_BUSY_JUMP_HOST = ("kex_exchange_identification", "Connection closed by", "Connection reset by")
_CHUNK = 65536
# sshd's, at MaxAuthTries.
_TOO_MANY_KEYS = "Too many authentication failures"
# paramiko's, without a status.
_NO_STATUS = -1
_JOIN_SECONDS = 5.0
# In bytes.
_OUTPUT_LIMIT = 1 << 20
_TOO_MUCH_OUTPUT = f"the host printed more than {_OUTPUT_LIMIT} bytes"
# Only the socket's deadline counts.
_NEVER = 24 * 3600.0
# Between attempts at a second session.
_SESSION_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)

_FAST_KEX = ("curve25519-sha256@libssh.org",)
_FAST_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
# Not key exchanges, though listed.
_EXTENSION = re.compile(r"^ext-info-|^kex-strict-")
_RSA_SIGNATURES = ("rsa-sha2-512", "rsa-sha2-256")


class _TimerlessPacketizer(Packetizer):
    """The socket has the deadline instead of a timer thread."""

    def start_handshake(self, timeout: float) -> None:
        """Start no timer."""


class _EarlyEventHandler(AuthOnlyHandler):
    """Creates the event before the request: its parent would miss an early answer."""

    _answer_event: threading.Event | None = None

    @property
    def auth_event(self) -> threading.Event | None:
        return self._answer_event

    @auth_event.setter
    def auth_event(self, _late: threading.Event | None) -> None:
        """Ignore the parent's event."""

    @override
    def send_auth_request(
        self,
        username: str,
        method: str,
        finish_message: Callable[[paramiko.Message], None] | None = None,
    ) -> list[str]:
        self._answer_event = threading.Event()
        return super().send_auth_request(username, method, finish_message)


class _LoginTransport(ServiceRequestingTransport):
    """Requests the login service once, without polling.

    paramiko's plain transport requests it for each key, so some servers hang up.
    """

    def __init__(self, stream: DeadlineSocket) -> None:
        self._service_answered = threading.Event()
        self._offered = dict[str, list[str]]()
        self.disconnect_reason = ""
        super().__init__(stream, packetizer_class=_TimerlessPacketizer)

    def _really_parse_kex_init(
        self, message: paramiko.Message, *, ignore_first_byte: bool = False
    ) -> Any:
        """Keep the host's offer, which the exception lacks."""
        parsed = super()._really_parse_kex_init(  # type: ignore[misc]
            message, ignore_first_byte=ignore_first_byte
        )
        # paramiko sets this for its own offer.
        is_own_offer = ignore_first_byte
        if not is_own_offer:
            self._offered = parsed
        return parsed

    def _parse_disconnect(self, message: paramiko.Message) -> None:
        """Keep the host's reason, which paramiko only logs."""
        message.get_int()
        self.disconnect_reason = message.get_text()

    @property
    def unsupported_offer(self) -> Offer | None:
        options = self.get_security_options()
        for kind, key, supported in (
            ("key exchange", "kex_algo_list", options.kex),
            ("host key algorithm", "server_key_algo_list", options.key_types),
            ("cipher", "server_encrypt_algo_list", options.ciphers),
            ("MAC", "server_mac_algo_list", options.digests),
        ):
            names = [name for name in self._offered.get(key, ()) if not _EXTENSION.search(name)]
            has_common = not set(names).isdisjoint(supported)
            if names and not has_common:
                return Offer(kind, tuple(names))
        return None

    @override
    def get_auth_handler(self) -> AuthOnlyHandler:
        return _EarlyEventHandler(self)

    @override
    def ensure_session(self) -> None:
        if self.auth_handler is None:
            request = paramiko.Message()
            request.add_byte(cMSG_SERVICE_REQUEST)
            request.add_string("ssh-userauth")
            self._send_message(request)  # type: ignore[attr-defined]
            # paramiko's thread sets this at the answer, or `run` at the deadline.
            self._service_answered.wait()
            self.auth_handler = self.get_auth_handler()

    @property
    def _service_userauth_accepted(self) -> bool:
        return self._service_answered.is_set()

    @_service_userauth_accepted.setter
    def _service_userauth_accepted(self, is_accepted: bool) -> None:
        if is_accepted:
            self._service_answered.set()

    @override
    def run(self) -> None:
        try:
            super().run()
        finally:
            self._service_answered.set()


@contextmanager
def _as_ssh_exception() -> Iterator[None]:
    """Raise `SSHException` for what garbled bytes cause in paramiko."""
    try:
        yield
    except (OSError, EOFError, paramiko.SSHException, SshError):
        raise
    except Exception as error:
        raise paramiko.SSHException(excerpt(repr(error))) from error


@contextmanager
def connected(host: Host, deadline: float) -> Iterator["Connection"]:
    """Connect; close at the end.

    Errors of sockets and paramiko, also in the block, become `SshError`. The deadline, by
    `time.monotonic`, is for connecting and logging in.
    """
    started = time.monotonic()
    try:
        connection = Connection(host, deadline)
    except OSError as error:
        is_late = isinstance(error, TimeoutError) or time.monotonic() >= deadline
        exceeded_timeout = deadline - started if is_late else None
        raise ssh_error(error, host, Stage.CONNECTING, exceeded_timeout=exceeded_timeout) from error
    try:
        yield connection
    except (OSError, EOFError, paramiko.SSHException) as error:
        connection.close()
        raise connection.error_for(error, started) from error
    finally:
        connection.close()


class Connection:
    """An SSH connection, made by `connected`."""

    def __init__(self, host: Host, deadline: float) -> None:
        self._host = host
        self._stage = Stage.AGREEING_ON_KEYS
        self._had_session = False
        self._proxy: ProxyCommand | None = None
        if host.proxy:
            self._socket, self._proxy = connect_through(host.proxy, deadline)
        else:
            self._socket = connect(host.address, host.port, deadline)
        # paramiko would also log tracebacks.
        logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)
        self._transport = _LoginTransport(self._socket)
        self._transport.banner_timeout = _NEVER
        self._transport.auth_timeout = _NEVER

    def handshake(self, known_types: tuple[str, ...]) -> HostKey:
        """Return the host's key, not verified, preferably of a known type."""
        options = self._transport.get_security_options()
        options.kex = _with_first(_FAST_KEX, tuple(options.kex))
        options.ciphers = _with_first(_FAST_CIPHERS, tuple(options.ciphers))
        known_algorithms = _signature_algorithms(known_types)
        options.key_types = _with_first(known_algorithms, tuple(options.key_types))
        with _as_ssh_exception():
            self._transport.start_client()
        key = self._transport.get_remote_server_key()
        return HostKey(key.get_name(), key.asbytes())

    def log_in(self, user: str, keys: tuple[paramiko.PKey, ...]) -> None:
        """Use the first key that the host accepts."""
        self._stage = Stage.LOGGING_IN
        if not keys:
            raise SshAuthError(
                "there is no key to log in with",
                hint="Specify a key with --ssh-key, or add a key to ssh-agent.",
            )
        tried = list[str]()
        for key in keys:
            try:
                with _as_ssh_exception():
                    further_methods = self._transport.auth_publickey(user, key)
            except paramiko.AuthenticationException as error:
                is_unsigned = isinstance(error, UnsignedError)
                note = " (the agent did not sign with it)" if is_unsigned else ""
                tried.append(f"{describe(key)}{note}")
                may_try_next_key = self._transport.is_active()
                if may_try_next_key:
                    continue
                if self._transport.disconnect_reason.startswith(_TOO_MANY_KEYS):
                    raise SshAuthError(
                        f"the host accepts no more keys from user {user} after {', '.join(tried)}",
                        hint="Specify the right key with --ssh-key FILE.",
                    ) from error
                raise
            if further_methods:
                message = f"the host requires more than a key: {', '.join(further_methods)}"
                raise SshAuthError(message, hint="Exempt this user in the host's sshd_config.")
            return
        raise SshAuthError(
            f"the host refuses user {user} with key {', '.join(tried)}",
            hint=f"Is that key in ~{user}/.ssh/authorized_keys on the host? To log in as another"
            " user, use --ssh-user.",
        )

    def run(self, command: str, deadline: float) -> CommandResult:
        """`TimeoutError` at the deadline, `OutputLimitError` above 1 MiB."""
        self._stage = Stage.RUNNING_COMMAND
        # As much again may come before the output is read.
        self._socket.limit(deadline, 2 * _OUTPUT_LIMIT + HANDSHAKE_ALLOWANCE)
        with _as_ssh_exception():
            channel = self._open_session()
            try:
                channel.exec_command(command)
                return self._read_result(channel)
            finally:
                # Frees a pipe. Fails if the host is gone.
                with contextlib.suppress(EOFError, OSError, paramiko.SSHException):
                    channel.close()

    def _open_session(self) -> paramiko.Channel:
        """Open a session; retry if there was one before.

        With `MaxSessions 1` sshd refuses another until the previous is closed.
        """
        pauses_between_attempts = _SESSION_PAUSES if self._had_session else ()
        self._had_session = True
        for pause in pauses_between_attempts:
            try:
                return self._transport.open_session(_OUTPUT_LIMIT, timeout=_NEVER)
            except paramiko.ChannelException:
                time.sleep(min(pause, self._socket.seconds_left))
        return self._transport.open_session(_OUTPUT_LIMIT, timeout=_NEVER)

    def _read_result(self, channel: paramiko.Channel) -> CommandResult:
        stdout, stderr = self._read_output(channel)
        has_status = channel.status_event.wait(self._socket.seconds_left)
        if self._socket.is_flooded:
            raise OutputLimitError(_TOO_MUCH_OUTPUT)
        # At the deadline, paramiko also sets the event.
        is_overdue = not self._socket.seconds_left
        if is_overdue or not has_status:
            raise TimeoutError("deadline")
        return CommandResult(
            exit_status=None if channel.exit_status == _NO_STATUS else channel.exit_status,
            stdout=stdout.decode(errors="replace"),
            stderr=stderr.decode(errors="replace"),
        )

    def close(self) -> None:
        """Close it, and wait for the thread."""
        self._socket.close()
        self._transport.close()
        if self._transport.ident is not None:
            self._transport.join(_JOIN_SECONDS)
        if self._proxy is not None:
            self._proxy.end()

    def error_for(self, exception: Exception, started: float) -> SshError:
        """Translate an exception of this closed connection."""
        if self._socket.is_flooded:
            return OutputLimitError(f"the host sent too much data while {self._stage}")
        is_late = isinstance(exception, TimeoutError) or not self._socket.seconds_left
        proxy_stderr = self._proxy.stderr if self._proxy is not None else ""
        error = ssh_error(
            exception,
            self._host,
            self._stage,
            greeting=self._socket.greeting,
            proxy_stderr=proxy_stderr,
            exceeded_timeout=self._socket.deadline - started if is_late else None,
            offer=self._transport.unsupported_offer,
        )
        ended_early = self._stage is Stage.AGREEING_ON_KEYS and not is_late
        if ended_early and self._may_be_busy(proxy_stderr):
            return TurnedAwayError(error.message, hint=error.hint)
        return error

    def _may_be_busy(self, proxy_stderr: str) -> bool:
        if self._host.proxy:
            return any(sign in proxy_stderr for sign in _BUSY_JUMP_HOST)
        # sshd usually says nothing.
        return not self._socket.greeting or self._socket.greeting.startswith(_BUSY_GREETINGS)

    def _read_output(self, channel: paramiko.Channel) -> tuple[bytes, bytes]:
        """Read both streams: a full one blocks the other."""
        poller = select.poll()
        poller.register(channel.fileno(), select.POLLIN)
        stdout = bytearray()
        stderr = bytearray()
        while True:
            # Data may arrive between this and reading.
            has_ended = channel.eof_received or channel.closed
            if channel.recv_ready():
                stdout += channel.recv(_CHUNK)
            elif channel.recv_stderr_ready():
                stderr += channel.recv_stderr(_CHUNK)
            elif has_ended:
                return bytes(stdout), bytes(stderr)
            elif not poller.poll(self._socket.seconds_left * 1000):
                raise TimeoutError("deadline")
            if len(stdout) + len(stderr) > _OUTPUT_LIMIT:
                raise OutputLimitError(_TOO_MUCH_OUTPUT)


def _with_first(preferred: tuple[str, ...], available: tuple[str, ...]) -> tuple[str, ...]:
    first = tuple(name for name in preferred if name in available)
    rest = tuple(name for name in available if name not in first)
    return first + rest


def _signature_algorithms(key_types: tuple[str, ...]) -> tuple[str, ...]:
    names: list[str] = []
    for key_type in key_types:
        if key_type == "ssh-rsa":
            # As an algorithm, ssh-rsa means unsafe SHA-1 signatures.
            names.extend(_RSA_SIGNATURES)
        else:
            names.append(key_type)
    return tuple(names)
