"""One call's connection, and how far it has come: the sentence of a failure says where it happened."""

import shlex
import socket
import time
from collections.abc import Sequence

import paramiko

from rollout.adapters.ssh.connection import Connection, OutputLimitError
from rollout.adapters.ssh.key_sources import UnsignedError, described
from rollout.adapters.ssh.known_hosts import Shown
from rollout.errors import SshAuthError, SshError, SshTimeoutError, SshUnreachableError
from rollout.model.host import Host
from rollout.ports import CommandResult

_AGREEING = "agreeing on keys"
# What sshd says, if anything, where too many logins are under way; and what ssh makes of that on a jump host.
_FULL = (b"Exceeded MaxStartups", b"Not allowed at this time")
_FULL_JUMP = ("kex_exchange_identification", "Connection closed by", "Connection reset by")


class Attempt:
    """Connects, checks, logs in, and runs; `close` it whatever happens."""

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

    @property
    def seconds_left(self) -> float:
        """Until the deadline; below 0 after it."""
        return self._deadline - time.monotonic()

    def connect(self) -> None:
        """Connect, for the first time or again."""
        self._doing, self._connection = "connecting", None
        self._connection = Connection(self.host, deadline=self._deadline)
        self._doing = _AGREEING

    def handshake(self, algorithms: tuple[str, ...]) -> Shown:
        """Have the host prove a key, of these types first; it is to be decided upon before anything of ours is sent."""
        return self._open.handshake(algorithms)

    @property
    def was_turned_away(self) -> bool:
        """Whether the host hung up as one that has too many logins under way; known once it is closed."""
        if self._connection is None or self._doing != _AGREEING or self.seconds_left <= 0:
            return False
        if self.host.proxy:
            return any(sign in self._connection.complaint for sign in _FULL_JUMP)
        return not self._connection.greeting or self._connection.greeting.startswith(_FULL)

    def log_in(self, keys: tuple[paramiko.PKey, ...]) -> None:
        """Log in with the first key that the host accepts."""
        self._doing = "logging in"
        if not keys:
            raise SshAuthError(
                "there is no key to log in with", hint="Name one with --ssh-key, or add one to ssh-agent."
            )
        tried = list[str]()
        for key in keys:
            try:
                further = self._open.authenticate(self.host.user, key)
            except paramiko.AuthenticationException as error:
                if not self._open.is_open:
                    raise
                unsigned = isinstance(error, UnsignedError)
                tried.append(f"{described(key)}{' (which the agent does not sign with)' if unsigned else ''}")
            else:
                return _no_further(further)
        raise SshAuthError(
            f"the host refuses user {self.host.user} with key {', '.join(tried)}",
            hint=f"Is that key in ~{self.host.user}/.ssh/authorized_keys of the host? Other user: --ssh-user",
        )

    def run(self, command: str, deadline: float, output_limit: int) -> CommandResult:
        """Run a command until a deadline of its own."""
        self._doing = "running the command"
        self._deadline = deadline
        return self._open.run(command, deadline=deadline, limit=output_limit)

    def close(self) -> None:
        """End the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()

    def failure(self, error: Exception, started: float) -> SshError:
        """Return what an exception of paramiko or the socket means here; the attempt is closed."""
        if self._connection is not None and self._connection.is_flooded:
            return OutputLimitError(f"the host sent too much data while {self._doing}")
        if isinstance(error, TimeoutError) or self.seconds_left <= 0:
            seconds = self._deadline - started
            return SshTimeoutError(
                f"no answer within {seconds:.3g} s while {self._doing}{self._complained()}",
                hint=f"Is {self.host.address} the host's address, and does a firewall let port {self.host.port} pass?",
            )
        sentence, hint = self._cause(error)
        return SshUnreachableError(sentence, hint=hint)

    def _cause(self, error: Exception) -> tuple[str, str]:
        if self.host.proxy and self._doing == _AGREEING:
            ended = f"its jump host or proxy ended the connection{self._complained()}"
            return ended, f"Try it by hand: {shlex.join(self.host.proxy)}"
        greeting = self._connection.greeting if self._connection is not None else b""
        return _cause(error, self._doing, self.host, greeting)

    def _complained(self) -> str:
        """Return the last that the command said which the host is reached through."""
        said = self._connection.complaint.splitlines() if self._connection is not None else []
        return f": {said[-1].strip()!a}" if said else ""


def _no_further(methods: Sequence[str]) -> None:
    if methods:
        raise SshAuthError(
            f"the host requires more than a key: {', '.join(methods)}", hint="Exempt this user in its sshd_config."
        )


def _cause(error: Exception, doing: str, host: Host, greeting: bytes) -> tuple[str, str]:
    """Return a sentence and a hint for an exception that is neither a time-out nor a refusal of the login."""
    port = f"Is sshd running at {host.address}, port {host.port}?"
    ended = f"the host ended the connection while {doing}", "It may be going down; try again."
    causes: tuple[tuple[type[Exception], tuple[str, str]], ...] = (
        (ConnectionRefusedError, ("the connection was refused", port)),
        (socket.gaierror, (f"the name {host.address} does not resolve", "Give its address in an inventory.")),
        (paramiko.ssh_exception.IncompatiblePeer, _incompatible(str(error), greeting)),
        (paramiko.AuthenticationException, ended),
        (EOFError, ended),
        (ConnectionError, ended),
        (paramiko.ChannelException, ("the host opens no session", "Its sshd may forbid commands for this user.")),
        (OSError, (f"{getattr(error, 'strerror', '') or error} while {doing}", "Is there a route to the host?")),
    )
    cause = next((sentences for kind, sentences in causes if isinstance(error, kind)), None)
    return cause or _ssh_cause(str(error), doing, port, greeting)


def _incompatible(text: str, greeting: bytes) -> tuple[str, str]:
    """Name the software: which side is too old is the question."""
    what = text.removeprefix("Incompatible ssh peer ").removeprefix("Incompatible ssh server ").strip("()")
    return (
        f"no SSH algorithm in common with {_first_line(greeting)}: {what}",
        "The host's sshd is too old or too strict. Neither SHA-1 signatures (ssh-rsa) nor DSA keys are accepted.",
    )


def _ssh_cause(text: str, doing: str, port: str, greeting: bytes) -> tuple[str, str]:
    """Do the same for paramiko's one exception for everything else, which only its text tells apart."""
    if "banner" in text or "protocol version" in text:
        said = f", but says {_first_line(greeting)}" if greeting else ""
        return f"what answers there does not speak SSH{said or ', or closed at once'}", port
    if text == "Channel closed.":
        return "the host runs no commands over SSH", "Its sshd may forbid commands for this user."
    return f"{text or 'SSH failed'} while {doing}", ""


def _first_line(greeting: bytes) -> str:
    """Escaped: whatever a stranger says may steer a terminal."""
    return ascii(greeting.decode(errors="replace").strip().partition("\n")[0].strip()[:80])
