"""Runs commands through paramiko, with one connection per call.

Nothing is sent before the host's key is verified.
"""

import random
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TypeVar

from rollout.adapters.ssh.connection import Connection, connected
from rollout.adapters.ssh.failures import TurnedAwayError
from rollout.adapters.ssh.keys import KeyRing
from rollout.adapters.ssh.known_hosts import KnownHosts, read_known_hosts
from rollout.adapters.ssh.workers import in_processes, workers_for
from rollout.errors import InputError, SshAuthError, SshError
from rollout.gather.hosts.polling import ask_in_threads
from rollout.model.host import Host, HostKeyChecking, HostKeyFiles, Identities
from rollout.ports import CommandResult

T = TypeVar("T")

_CONNECT_TIMEOUT = 15.0
# Seconds until the next attempt.
_TURNED_AWAY_PAUSES = (0.25, 0.5, 1.0, 2.0)


class ParamikoShell:
    """A `HostExecutor` over paramiko's SSH."""

    def __init__(
        self,
        *,
        known_hosts: Path | None = None,
        host_key_checking: HostKeyChecking = HostKeyChecking.STRICT,
        key_file: Path | None = None,
        passphrase: str = "",
    ) -> None:
        """Raise `InputError` for an unusable file.

        None means OpenSSH's files; for `key_file`, also the agent.
        """
        self._known_hosts = KnownHosts(
            HostKeyFiles((str(known_hosts),)) if known_hosts else None, host_key_checking
        )
        self._known_hosts_file = known_hosts
        self._known_hosts_by_file: dict[HostKeyFiles, KnownHosts] = {}
        self._lock = threading.Lock()
        self._keys = KeyRing(passphrase)
        self._key_file = str(key_file) if key_file is not None else None
        if self._key_file is not None:
            # Raises its error if the agent does not have the key.
            try:
                with self._keys.open_keys(self._key_file, Identities()):
                    pass
            except SshAuthError as error:
                raise InputError(error.message, hint=error.hint) from error

    def run(self, host: Host, command: str, *, timeout: float) -> CommandResult:
        """Connect, log in and run within `timeout` seconds.

        Raises `SshError`. The exit status is None if the connection ended meanwhile, as in a
        reboot.
        """

        def run_command(connection: Connection, deadline: float) -> CommandResult:
            return connection.run(command, deadline)

        return self._connect_and_talk(host, run_command, timeout)

    def run_if(
        self,
        host: Host,
        question: str,
        accepts: Callable[[CommandResult], bool],
        command: str,
        *,
        timeout: float,
    ) -> CommandResult | None:
        """Run on the same connection if the answer is accepted, else return None."""

        def ask_and_run(connection: Connection, deadline: float) -> CommandResult | None:
            answer = connection.run(question, deadline)
            if not accepts(answer):
                return None
            return connection.run(command, deadline)

        return self._connect_and_talk(host, ask_and_run, timeout)

    def run_on_all(
        self, hosts: Mapping[str, Host], command: str, *, timeout: float, concurrency: int
    ) -> Generator[tuple[str, CommandResult | SshError]]:
        """Run in threads, or in processes for many hosts."""
        ask = partial(self.run, command=command, timeout=timeout)
        workers = workers_for(len(hosts))
        accepts_new_keys = self._known_hosts.checking is not HostKeyChecking.STRICT
        # Several processes would write the same keys.
        if workers == 1 or accepts_new_keys:
            return ask_in_threads(hosts, ask, concurrency=concurrency)
        return in_processes(ask, hosts, concurrency=concurrency, workers=workers)

    def __reduce__(self) -> tuple[Callable[[], "ParamikoShell"], tuple[()]]:
        """Pickle for a worker, with strict checking."""
        make = partial(
            ParamikoShell,
            known_hosts=self._known_hosts_file,
            key_file=Path(self._key_file) if self._key_file is not None else None,
            passphrase=self._keys.passphrase,
        )
        return make, ()

    def attending(self, hosts: Iterable[Host]) -> AbstractContextManager[None]:  # noqa: ARG002
        """Do nothing: a connection must not outlive a boot."""
        return nullcontext()

    def _connect_and_talk(
        self, host: Host, talk: Callable[[Connection, float], T], timeout: float
    ) -> T:
        """Connect, log in and `talk`, within `timeout` seconds.

        Repeated if the host turns the connection away before it shows its key.
        """
        known_hosts = self._known_hosts_of(host)
        # Decrypting a key may take a second.
        with self._keys.open_keys(host.key_file or self._key_file, host.identities) as keys:
            started = time.monotonic()
            deadline = started + timeout
            connect_deadline = started + min(timeout, host.connect_timeout or _CONNECT_TIMEOUT)

            def attempt() -> T:
                with connected(host, connect_deadline) as connection:
                    key = connection.handshake(known_hosts.key_types(host))
                    known_hosts.verify(host, key)
                    connection.log_in(host.user, keys)
                    return talk(connection, deadline)

            for pause in _TURNED_AWAY_PAUSES:
                try:
                    return attempt()
                except TurnedAwayError:
                    if time.monotonic() + pause >= connect_deadline:
                        raise
                # To spread threads that were turned away together.
                time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - no secret
            return attempt()

    def _known_hosts_of(self, host: Host) -> KnownHosts:
        files = None if self._known_hosts_file is not None else host.known_hosts
        if files is None:
            return self._known_hosts
        with self._lock:
            if files not in self._known_hosts_by_file:
                known_hosts = read_known_hosts(files, self._known_hosts.checking)
                self._known_hosts_by_file[files] = known_hosts
            return self._known_hosts_by_file[files]
