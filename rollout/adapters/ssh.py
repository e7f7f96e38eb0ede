"""`HostShell` over paramiko: one connection and one command a call, and the errors told in the house's words.

The host's key is decided upon before anything of ours is sent to it. Nothing that came from the cluster
becomes part of a command; the caller's constant text is all that is run.
"""

import logging
import shlex
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TypeVar

import paramiko

from rollout.adapters.known_hosts import HostKey, HostKeyChecking, KnownHosts
from rollout.adapters.ssh_connection import Connection
from rollout.adapters.ssh_keys import KeyRing
from rollout.errors import (
    HostKeyError,
    InputError,
    SshAuthError,
    SshError,
    SshTimeoutError,
    SshUnreachableError,
)
from rollout.gather.side_by_side import side_by_side
from rollout.model.host import Host
from rollout.ports import CommandResult

T = TypeVar("T")

OUTPUT_LIMIT = 1 << 20
CONNECT_TIMEOUT = 15.0


class ParamikoShell:
    """Runs commands on hosts; safe to call from many threads.

    `key_file` is for hosts that name none themselves; with neither, the agent and OpenSSH's default keys are
    tried. `known_hosts` None means OpenSSH's own files. `connect_timeout` (seconds) bounds connection and
    login within the deadline of each call. Raises `InputError` where a file named here cannot be used.
    """

    def __init__(
        self,
        *,
        known_hosts: Path | None = None,
        host_key_checking: HostKeyChecking = HostKeyChecking.STRICT,
        key_file: Path | None = None,
        key_passphrase: str | None = None,
        connect_timeout: float = CONNECT_TIMEOUT,
        output_limit: int = OUTPUT_LIMIT,
    ) -> None:
        # What paramiko logs comes back as an exception as well, and its tracebacks are not for the operator.
        logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)
        self._known_hosts = KnownHosts(known_hosts, host_key_checking)
        self._known_hosts_named = known_hosts is not None
        self._others: dict[str, KnownHosts] = {}
        self._lock = threading.Lock()
        self._keys = KeyRing(key_passphrase)
        self._key_file = str(key_file) if key_file is not None else None
        self._connect_timeout = connect_timeout
        self._output_limit = output_limit
        if self._key_file is not None:
            self._check_key(self._key_file)

    def run(self, host: Host, command: str, *, timeout: float) -> CommandResult:
        """Connect, log in, run the command and disconnect, all within `timeout` seconds.

        The exit status is None where the connection ended after the command was begun, as in a reboot.

        Raises:
            SshUnreachableError: refused, no route, not SSH, or broken off.
            SshTimeoutError: the deadline passed.
            SshAuthError: user or key refused, or the key file cannot be used.
            HostKeyError: the host's key is unknown, changed or revoked.
            SshError: the output is beyond all measure.
        """
        return self._connected(host, partial(self._command, command), timeout)

    def run_if(
        self, host: Host, question: str, agreed: Callable[[CommandResult], bool], command: str, *, timeout: float
    ) -> CommandResult | None:
        """Run `command` on the connection that has answered `question`, where `agreed` says so; else None.

        Errors are those of `run`, and whatever `agreed` raises.
        """

        def converse(attempt: "_Attempt", deadline: float) -> CommandResult | None:
            answer = self._command(question, attempt, deadline)
            return self._command(command, attempt, deadline) if agreed(answer) else None

        return self._connected(host, converse, timeout)

    def run_on_all(
        self, hosts: Mapping[str, Host], command: str, *, timeout: float, concurrency: int
    ) -> Generator[tuple[str, CommandResult | SshError]]:
        """Every host by itself, in threads."""
        return side_by_side(hosts, partial(self.run, command=command, timeout=timeout), concurrency=concurrency)

    def attending(self, hosts: Iterable[Host]) -> AbstractContextManager[None]:  # noqa: ARG002 - the protocol's
        """Nothing is kept: a connection is one question's, and must not outlive a boot."""
        return nullcontext()

    def _command(self, command: str, attempt: "_Attempt", deadline: float) -> CommandResult:
        return attempt.run(command, deadline, self._output_limit)

    def _connected(self, host: Host, talk: "Callable[[_Attempt, float], T]", timeout: float) -> T:
        """The result of `talk` with a host that is known and has let us in."""
        started = time.monotonic()
        deadline = started + timeout
        attempt = _Attempt(host, min(deadline, started + (host.connect_timeout or self._connect_timeout)))
        try:
            self._open(attempt)
            return talk(attempt, deadline)
        except SshError as error:
            raise type(error)(_named(host, error.message), hint=error.hint) from error
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise attempt.failure(error, started) from error
        finally:
            attempt.close()

    def _open(self, attempt: "_Attempt") -> None:
        host = attempt.host
        with self._keys.candidates(host.key_file or self._key_file) as keys:
            attempt.connect(many_keys=len(keys) > 1)
            attempt.check_host_key(self._known_hosts_of(host))
            attempt.log_in(keys)

    def _known_hosts_of(self, host: Host) -> KnownHosts:
        """The file named by flag before the one of the host's configuration, as everywhere."""
        if host.known_hosts is None or self._known_hosts_named:
            return self._known_hosts
        with self._lock:
            if host.known_hosts not in self._others:
                self._others[host.known_hosts] = _read_known_hosts(host.known_hosts, self._known_hosts.checking)
            return self._others[host.known_hosts]

    def _check_key(self, file: str) -> None:
        try:
            self._keys.load(file)
        except SshAuthError as error:
            raise InputError(error.message, hint=error.hint) from error


def _read_known_hosts(file: str, checking: HostKeyChecking) -> KnownHosts:
    try:
        return KnownHosts(Path(file), checking)
    except InputError as error:
        raise HostKeyError(error.message, hint=error.hint) from error


class _Attempt:
    """One call's connection, and how far it has come: the sentence of a failure says where it happened."""

    def __init__(self, host: Host, deadline: float) -> None:
        self.host = host
        self._deadline = deadline
        self._doing = "connecting"
        self._connection: Connection | None = None

    @property
    def _open(self) -> Connection:
        if self._connection is None:
            raise EOFError("not connected")
        return self._connection

    def connect(self, *, many_keys: bool) -> None:
        self._connection = Connection(self.host, deadline=self._deadline, many_keys=many_keys)
        self._doing = "agreeing on keys"

    def check_host_key(self, known_hosts: KnownHosts) -> None:
        known_types = tuple(key.type for key in known_hosts.keys(self.host))
        shown = self._open.handshake(known_types)
        known_hosts.verify(self.host, HostKey(shown.get_name(), shown.asbytes()))

    def log_in(self, keys: tuple[paramiko.PKey, ...]) -> None:
        self._doing = "logging in"
        if not keys:
            raise SshAuthError(
                "there is no key to log in with", hint="Name one with --ssh-key, or add one to ssh-agent."
            )
        for key in keys:
            try:
                further = self._open.authenticate(self.host.user, key)
            except paramiko.AuthenticationException:
                if not self._open.is_open:
                    raise
            else:
                return _no_further(further)
        tried = ", ".join(key.fingerprint for key in keys)
        raise SshAuthError(
            f"the host refuses user {self.host.user} with key {tried}",
            hint=f"Is that key in ~{self.host.user}/.ssh/authorized_keys of the host? Other user: --ssh-user",
        )

    def run(self, command: str, deadline: float, output_limit: int) -> CommandResult:
        self._doing = "running the command"
        self._deadline = deadline
        self._open.extend(deadline)
        return self._open.run(command, limit=output_limit)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def failure(self, error: Exception, started: float) -> SshError:
        """What an exception of paramiko or the socket means here."""
        if isinstance(error, TimeoutError) or time.monotonic() >= self._deadline:
            seconds = self._deadline - started
            return SshTimeoutError(
                _named(self.host, f"no answer within {seconds:.3g} s while {self._doing}"),
                hint=f"Is {self.host.address} the host's address, and does a firewall let port {self.host.port} pass?",
            )
        sentence, hint = _cause(error, self._doing, self.host)
        return SshUnreachableError(_named(self.host, sentence), hint=hint)


def _no_further(methods: Sequence[str]) -> None:
    if methods:
        raise SshAuthError(
            f"the host wants more than a key: {', '.join(methods)}", hint="Exempt this user in its sshd_config."
        )


def _cause(error: Exception, doing: str, host: Host) -> tuple[str, str]:
    """A sentence and a hint for an exception that is neither a time-out nor a refusal of the login."""
    port = f"Is sshd running there, on port {host.port}?"
    ended = f"the host ended the connection while {doing}", "It may be going down; try again."
    if host.proxy and doing == "agreeing on keys":
        return "what it is reached through ended the connection", f"Try it by hand: {shlex.join(host.proxy)}"
    causes: tuple[tuple[type[Exception], tuple[str, str]], ...] = (
        (ConnectionRefusedError, ("the connection was refused", port)),
        (socket.gaierror, (f"the name {host.address} does not resolve", "Give its address in an inventory.")),
        (
            paramiko.ssh_exception.IncompatiblePeer,
            (f"no SSH algorithm in common: {error}", "The host's sshd is too old or too strict."),
        ),
        (paramiko.AuthenticationException, ended),
        (EOFError, ended),
        (ConnectionError, ended),
        (paramiko.ChannelException, ("the host opens no session", "Its sshd may forbid commands for this user.")),
        (OSError, (f"{getattr(error, 'strerror', '') or error} while {doing}", "Is there a route to the host?")),
    )
    found = next((told for kind, told in causes if isinstance(error, kind)), None)
    return found or _ssh_cause(str(error), doing, port)


def _ssh_cause(text: str, doing: str, port: str) -> tuple[str, str]:
    """The same for paramiko's one exception for everything else, which only its text tells apart."""
    if "banner" in text or "protocol version" in text:
        return "what answers there does not speak SSH, or closed at once", port
    if text == "Channel closed.":
        return "the host runs no commands over SSH", "Its sshd may forbid commands for this user."
    return f"{text or 'SSH failed'} while {doing}", ""


def _named(host: Host, sentence: str) -> str:
    """The sentence with the host in front."""
    where = f"{host.user}@{host.address}" + ("" if host.port == 22 else f":{host.port}")  # noqa: PLR2004 - SSH's
    return f"{host.name} ({where}): {sentence}"
