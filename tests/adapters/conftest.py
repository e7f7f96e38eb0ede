"""SSH servers for the adapter's tests: asyncssh, another library than the one under test, on
loopback.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import asyncssh
import pytest

from rollout.adapters.ssh.shell import ParamikoShell
from rollout.lab.credentials import public_line
from rollout.model.host import Host, HostKeyChecking
from tests.adapters.openssh import MakeStranger, Say, Stranger, new_key

T = TypeVar("T")
Process = asyncssh.SSHServerProcess[bytes]
Handler = Callable[[Process], Awaitable[None]]


async def echo(process: Process) -> None:
    """Print the command on stdout, a word on stderr, and end with 3."""
    process.stdout.write(f"you said: {process.command}\n".encode())
    process.stderr.write(b"complaint\n")
    process.exit(3)


class Login(asyncssh.SSHServer):
    """Keeps the connections and the names of those who try to log in."""

    def __init__(self, server: "SshServer") -> None:
        self._server = server

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._server.connections.append(conn)

    def begin_auth(self, username: str) -> bool:
        self._server.logins.append(username)
        if self._server.on_login is not None:
            self._server.on_login(self._server.connections[-1])
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return username == "core" and key.public_data in [
            known.public_data for known in self._server.authorized
        ]


@dataclass
class SshServer:
    """A server on its loop; `host` is how it is reached, `logins` who tried, `on_login` what it
    does to them.
    """

    authorized: list[asyncssh.SSHKey]
    host_keys: list[asyncssh.SSHKey]
    connections: list[asyncssh.SSHServerConnection] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)
    port: int = 0
    on_login: Callable[[asyncssh.SSHServerConnection], None] | None = None

    def host(self, name: str = "worker-1", user: str = "core", key_file: str | None = None) -> Host:
        return Host(name, "127.0.0.1", self.port, user, key_file)

    def known_hosts(self, folder: Path) -> Path:
        path = folder / "known_hosts"
        lines = [f"[127.0.0.1]:{self.port} {public_line(key)}\n" for key in self.host_keys]
        path.write_text("".join(lines))
        return path


class Loop:
    """An event loop in a thread, for servers."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self._acceptors: list[asyncssh.SSHAcceptor] = []
        self._servers: list[SshServer] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout=60)

    def serve(
        self,
        handler: Handler | None = echo,
        *,
        authorized: list[asyncssh.SSHKey],
        host_keys: list[asyncssh.SSHKey] | None = None,
        **options: Any,
    ) -> SshServer:
        server = SshServer(authorized, host_keys or [asyncssh.generate_private_key("ssh-ed25519")])

        async def listen() -> None:
            acceptor = await asyncssh.listen(
                "127.0.0.1",
                0,
                config=None,
                server_factory=lambda: Login(server),
                server_host_keys=server.host_keys,
                process_factory=handler,
                encoding=None,
                gss_host=None,
                **options,
            )
            self._acceptors.append(acceptor)
            self._servers.append(server)
            server.port = acceptor.get_port()

        self.run(listen())
        return server

    async def _close(self) -> None:
        for acceptor in self._acceptors:
            acceptor.close()
        for server in self._servers:
            for connection in server.connections:
                connection.abort()
                await connection.wait_closed()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await asyncio.sleep(0.01)  # what they have broken off is closed in the loop's next turns

    def close(self) -> None:
        self.run(self._close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def servers() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def nothing_is_left_behind(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No thread, no socket and no word of paramiko's outlives a call."""
    threads = paramiko_threads()
    descriptors = open_files()
    yield
    assert paramiko_threads() <= threads
    # The servers are in this process as well, and close their ends when they come to it.
    deadline = time.monotonic() + 60
    while open_files() > descriptors + 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert open_files() <= descriptors + 1
    assert not [record for record in caplog.records if record.name.startswith("paramiko")]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def paramiko_threads() -> int:
    return sum(type(thread).__module__.startswith("paramiko") for thread in threading.enumerate())


@pytest.fixture
def stranger() -> Iterator[MakeStranger]:
    made = list[Stranger]()

    def make(say: Say) -> Stranger:
        made.append(Stranger(say))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(scope="session")
def client_key() -> asyncssh.SSHKey:
    return asyncssh.generate_private_key("ssh-ed25519")


@pytest.fixture
def server(servers: Loop, client_key: asyncssh.SSHKey) -> SshServer:
    return servers.serve(authorized=[client_key])


@pytest.fixture
def key_file(client_key: asyncssh.SSHKey, tmp_path: Path) -> Path:
    path = tmp_path / "id_ed25519"
    client_key.write_private_key(path)
    path.chmod(0o600)
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nobody's keys and configuration but the test's."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return tmp_path


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return new_key(tmp_path / "id")


def shell(server: SshServer, key_file: Path, **options: Any) -> ParamikoShell:
    """One that knows the server."""
    return ParamikoShell(
        known_hosts=server.known_hosts(key_file.parent), key_file=key_file, **options
    )


def trusting(key_file: Path) -> ParamikoShell:
    """One that takes everybody for whom they say they are."""
    return ParamikoShell(
        known_hosts=key_file.parent / "trusted",
        host_key_checking=HostKeyChecking.ACCEPT_NEW,
        key_file=key_file,
    )
