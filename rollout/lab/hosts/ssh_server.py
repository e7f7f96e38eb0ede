"""asyncssh is not the product's SSH library, so that each checks the other."""

import asyncio
import socket
from contextlib import suppress
from typing import Final, assert_never

import asyncssh
from typing_extensions import override

from rollout.lab.hosts.commands import answer
from rollout.lab.hosts.faults import HostKeyFault, SshFault
from rollout.lab.hosts.machine import HostEvent, Machine, Power
from rollout.lab.hosts.programs import PROGRAMS
from rollout.lab.hosts.session import CommandOutput, ShellSession
from rollout.lab.listener import Listener, open_socket

USER: Final = "core"
_GARBAGE: Final = "\x00\x1b[2J\udcff\udcfe\udc80 %n%n \x07 CURRENT_OP\x00= \udcc3(\n"
_REBIND_SECONDS: Final = 0.2


def new_host_key() -> asyncssh.SSHKey:
    return asyncssh.generate_private_key("ssh-ed25519")


class HostSshServer:
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
        self._listener = Listener(self._handshake)
        self.connections: set[asyncssh.SSHServerConnection] = set()
        self._processes: set[asyncssh.SSHServerProcess[str]] = set()
        machine.observers.append(self._follow)

    async def start(self) -> None:
        if not self._is_open:
            self._stop_accepting()
        while self._is_open and not self._listener.listening:
            # The first start uses the socket that the lab bound.
            bound = self._socket
            self._socket = None
            try:
                self._listener.listen(bound or open_socket(self.address, self.port))
            except OSError:
                # Another program may hold the port for a moment.
                await asyncio.sleep(_REBIND_SECONDS)

    async def close(self) -> None:
        self._drop_connections()
        await self._listener.wait_for_handshakes()
        self._drop_connections()
        for connection in tuple(self.connections):
            await connection.wait_closed()

    def _follow(self, event: HostEvent) -> None:
        faults = self.machine.faults
        match event:
            case HostEvent.STOPPING:
                self._stop_accepting()
            case HostEvent.DOWN:
                self._drop_connections()
            case HostEvent.CHANGED if faults.ssh is SshFault.CLOSED:
                self._drop_connections()
            case HostEvent.CHANGED:
                self.machine.spawn(self.start())
            case HostEvent.UP:
                if faults.host_key is HostKeyFault.CHANGES_AT_REBOOT:
                    self._host_key = new_host_key()
                self.machine.spawn(self.start())
            case _:
                assert_never(event)

    def admits(self, user: str, key: asyncssh.SSHKey) -> bool:
        refused = self.machine.faults.ssh is SshFault.KEY_REFUSED
        return not refused and user == USER and key.public_data == self._authorized

    async def serve(self, process: "asyncssh.SSHServerProcess[str]") -> None:
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
        output = CommandOutput(
            out=f"{machine.os_image}\nThis simulated host has no shell, but answers commands.\n"
        )
        if machine.faults.garbage:
            output = CommandOutput(out=_GARBAGE)
        elif process.command is not None:
            terminal = f"pts/{process.get_extra_info('peername')[1]}" if process.term_type else ""
            output = await answer(ShellSession(machine, USER, PROGRAMS, terminal), process.command)
        with suppress(OSError):
            process.stdout.write(output.out)
            process.stderr.write(output.err)
        process.exit(output.status)

    @property
    def _is_open(self) -> bool:
        machine = self.machine
        return machine.power is Power.RUNNING and machine.faults.ssh is not SshFault.CLOSED

    async def _handshake(self, connection: socket.socket) -> None:
        # This reads nothing from the machine that runs the lab.
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
    def __init__(self, host: HostSshServer) -> None:
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
