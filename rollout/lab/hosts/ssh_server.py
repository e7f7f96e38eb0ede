"""The SSH server of one simulated host.

It follows its machine: no new connections once the machine shuts down, no connections at all when
it is off, and a fresh server when it has booted. Not the SSH library that the product uses, so that
each checks the other.
"""

import asyncio
import socket
from contextlib import suppress
from typing import Final

import asyncssh
from typing_extensions import override

from rollout.lab.hosts.commands import answer
from rollout.lab.hosts.faults import HostKeyFault, SshFault
from rollout.lab.hosts.machine import HostEvent, Machine, Power
from rollout.lab.hosts.programs import PROGRAMS
from rollout.lab.hosts.session import ShellSession
from rollout.lab.listener import Listener, open_socket

USER: Final = "core"
_GARBAGE: Final = "\x00\x1b[2J\udcff\udcfe\udc80 %n%n \x07 CURRENT_OP\x00= \udcc3(\n"
_REBIND_SECONDS: Final = 0.2


def new_host_key() -> asyncssh.SSHKey:
    """Return a key of the kind that is cheap to make and to use."""
    return asyncssh.generate_private_key("ssh-ed25519")


class HostServer:
    """The server of one machine, on one address and port for as long as the lab lives.

    `authorized` is the only key that may log in, `host_key` the key that the server shows first.
    """

    def __init__(
        self,
        machine: Machine,
        listening: socket.socket,
        *,
        authorized: asyncssh.SSHKey,
        host_key: asyncssh.SSHKey,
    ) -> None:
        self.machine = machine
        self.address, self.port = listening.getsockname()[:2]
        self._socket: socket.socket | None = listening
        self._authorized = authorized.public_data
        self._host_key = host_key
        self._listener = Listener(self._greet)
        self.connections: set[asyncssh.SSHServerConnection] = set()
        self._processes: set[asyncssh.SSHServerProcess[str]] = set()
        machine.observers.append(self._follow)

    async def start(self) -> None:
        """Accept connections, as far as the machine and its faults allow."""
        if not self._open:
            self._stop_accepting()
        while self._open and not self._listener.listening:
            try:
                # the socket that was bound beforehand; after a boot another on the same port
                bound = self._socket
                self._socket = None
                self._listener.listen(bound or open_socket(self.address, self.port))
            except OSError:
                await asyncio.sleep(
                    _REBIND_SECONDS
                )  # another program may hold the port for a moment

    async def close(self) -> None:
        """End everything, and wait until it has ended."""
        self._drop_connections()
        await self._listener.greeted()
        self._drop_connections()
        for connection in tuple(self.connections):
            await connection.wait_closed()

    def _follow(self, event: HostEvent) -> None:
        """Do as the machine does: no new connection while it stops, none at all once it is off."""
        match event:
            case HostEvent.STOPPING:
                self._stop_accepting()
            case HostEvent.DOWN:
                self._drop_connections()
            case HostEvent.CHANGED if self.machine.faults.ssh is SshFault.CLOSED:
                self._drop_connections()
            case _:
                if (
                    event is HostEvent.UP
                    and self.machine.faults.host_key is HostKeyFault.CHANGES_AT_REBOOT
                ):
                    self._host_key = new_host_key()
                self.machine.spawn(self.start())

    # What connections ask.

    def admits(self, user: str, key: asyncssh.SSHKey) -> bool:
        """Whether this user may log in with this key."""
        refused = self.machine.faults.ssh is SshFault.KEY_REFUSED
        return not refused and user == USER and key.public_data == self._authorized

    async def serve(self, process: "asyncssh.SSHServerProcess[str]") -> None:
        """Run what a session asks for; when the client goes away, so does the command."""
        self._processes.add(process)
        work = asyncio.ensure_future(self._run(process))
        gone = asyncio.ensure_future(process.wait_closed())
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._processes.discard(process)
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)

    async def _run(self, process: "asyncssh.SSHServerProcess[str]") -> None:
        machine = self.machine
        if machine.faults.answer_delay_seconds:
            await asyncio.sleep(machine.clock.scaled(machine.faults.answer_delay_seconds))
        if machine.faults.garbage:
            process.stdout.write(_GARBAGE)
            process.exit(0)
        elif process.command is None:
            process.stdout.write(
                f"{machine.os_image}\nThis host is played: it has no shell, and answers commands.\n"
            )
            process.exit(0)
        else:
            terminal = f"pts/{process.get_extra_info('peername')[1]}" if process.term_type else ""
            said = await answer(ShellSession(machine, USER, PROGRAMS, terminal), process.command)
            # The client may have gone.
            with suppress(OSError):
                process.stdout.write(said.out)
                process.stderr.write(said.err)
            process.exit(said.status)

    # The server itself.

    @property
    def _open(self) -> bool:
        return (
            self.machine.power is Power.RUNNING and self.machine.faults.ssh is not SshFault.CLOSED
        )

    async def _greet(self, connection: socket.socket) -> None:
        # Nothing is read from the machine that the lab runs on: no configuration, no GSSAPI host
        # name.
        await asyncssh.run_server(
            connection,
            config=None,
            server_factory=lambda: _KeyAuthentication(self),
            server_host_keys=[self._host_key],
            process_factory=self.serve,
            gss_host=None,
            gss_kex=False,
            gss_auth=False,
            password_auth=False,
            kbdint_auth=False,
            encoding="utf-8",
            errors="surrogateescape",
        )

    def _stop_accepting(self) -> None:
        self._listener.stop_accepting()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _drop_connections(self) -> None:
        self._stop_accepting()
        self._listener.break_off()
        for process in tuple(self._processes):
            process.exit_with_signal("TERM")
        for connection in tuple(self.connections):
            connection.abort()


class _KeyAuthentication(asyncssh.SSHServer):
    """One connection's authentication: the key of the lab, nothing else."""

    def __init__(self, host: HostServer) -> None:
        self._host = host
        self._connection: asyncssh.SSHServerConnection | None = None

    @override
    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._host.connections.add(conn)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._host.connections.discard(self._connection)

    @override
    def public_key_auth_supported(self) -> bool:
        return True

    @override
    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return self._host.admits(username, key)
