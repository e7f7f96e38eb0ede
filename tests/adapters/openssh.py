"""OpenSSH's own server on loopback, and its authorities: the peer that certificates and throttling
are made for.
"""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rollout.lab.listener import reserve_port
from rollout.model.host import Host

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


KEYGEN = shutil.which("ssh-keygen")


MISSING = "OpenSSH's server is not installed"


_PRIVILEGE_SEPARATION = Path("/run/sshd")


def is_here() -> bool:
    """Whether sshd can be started: root needs the folder that its package makes."""
    return (
        SSHD is not None
        and KEYGEN is not None
        and (os.getuid() != 0 or _PRIVILEGE_SEPARATION.is_dir() or _made())
    )


def _made() -> bool:
    with suppress(OSError):
        _PRIVILEGE_SEPARATION.mkdir(mode=0o755)
    return _PRIVILEGE_SEPARATION.is_dir()


def keygen(*arguments: str | Path) -> None:
    subprocess.run([str(KEYGEN), "-q", *map(str, arguments)], check=True, capture_output=True)


def new_key(path: Path, kind: str = "ed25519") -> Path:
    keygen("-t", kind, "-N", "", "-C", path.name, "-f", path)
    return path


def public(key: Path) -> str:
    """`type base64` of a key."""
    return " ".join(Path(f"{key}.pub").read_text().split()[:2])


def fingerprint(key: Path) -> str:
    told = subprocess.run(
        [str(KEYGEN), "-lf", str(key)], check=True, capture_output=True, text=True
    )
    return told.stdout.split()[1]


def certify(authority: Path, key: Path, *options: str) -> Path:
    """A certificate for a key, beside it."""
    keygen("-s", authority, "-I", "a certificate", *options, f"{key}.pub")
    return Path(f"{key}-cert.pub")


@dataclass
class Sshd:
    """A server that is up: `host` is how it is reached, `user` who may be let in."""

    folder: Path
    port: int
    process: "subprocess.Popen[bytes]"
    host_keys: list[Path]
    user: str = field(default_factory=getpass.getuser)

    def host(self, name: str = "worker-1") -> Host:
        return Host(name, "127.0.0.1", self.port, self.user)

    def known_hosts(self, *lines: str) -> Path:
        """A file of these lines, `HOST` standing for this server; by default its keys."""
        wanted = lines or tuple(f"HOST {public(key)}" for key in self.host_keys)
        path = self.folder / "known_hosts"
        path.write_text(
            "".join(f"{line}\n" for line in wanted).replace("HOST", f"[127.0.0.1]:{self.port}")
        )
        return path

    def descendants(self) -> list[int]:
        """Process ids of the server's connections."""
        parents = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        found = []
        left = [self.process.pid]
        while left:
            parent = left.pop()
            children = [child for child, of in parents.items() if of == parent]
            found += children
            left += children
        return found

    def signal_all(self, which: signal.Signals) -> None:
        for pid in (self.process.pid, *self.descendants()):
            with suppress(ProcessLookupError):
                os.kill(pid, which)


@contextmanager
def sshd(folder: Path, *options: str, host_keys: Sequence[Path] = ()) -> Iterator[Sshd]:
    """A server with these lines in its configuration."""
    folder.mkdir(exist_ok=True)
    keys = list(host_keys) or [new_key(folder / "host_ed25519")]
    with ExitStack() as until_it_listens:
        port = until_it_listens.enter_context(free_port())
        with _started(folder, port, keys, options) as server:
            _wait(server)
            until_it_listens.close()
            yield server


@contextmanager
def free_port() -> Iterator[int]:
    """A port that nobody else is given meanwhile, where the system can keep one."""
    kept = reserve_port()
    with closing(kept or socket.create_server(("127.0.0.1", 0))) as found:
        port = int(found.getsockname()[1])
        if kept is not None:
            yield port
            return
    yield port


@contextmanager
def _started(folder: Path, port: int, keys: list[Path], options: Sequence[str]) -> Iterator[Sshd]:
    lines = [
        "UsePAM no",
        "StrictModes no",
        "LogLevel ERROR",
        "PidFile none",
        f"ListenAddress 127.0.0.1:{port}",
    ]
    lines += [
        "PermitRootLogin prohibit-password",
        "PasswordAuthentication no",
        "AuthorizedKeysFile none",
    ]
    (folder / "sshd_config").write_text(
        "\n".join([*options, *(f"HostKey {key}" for key in keys), *lines]) + "\n"
    )
    command = [str(SSHD), "-D", "-e", "-f", str(folder / "sshd_config")]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        server = Sshd(folder, port, process, keys)
        try:
            yield server
        finally:
            server.signal_all(signal.SIGCONT)
            server.signal_all(signal.SIGKILL)


def _wait(server: Sshd) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", server.port), timeout=5):
            return
        assert server.process.poll() is None, (server.folder / "log").read_text()
        time.sleep(0.02)
    raise AssertionError("sshd does not respond")


@contextmanager
def ssh_agent(path: Path) -> Iterator[None]:
    """A real one that listens there."""
    with subprocess.Popen(
        ["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL
    ) as process:
        deadline = time.monotonic() + 60
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        yield
        process.terminate()


def add_to_agent(*arguments: str | Path) -> None:
    """As `ssh-add`, for the agent of SSH_AUTH_SOCK."""
    subprocess.run(["ssh-add", "-q", *map(str, arguments)], check=True, capture_output=True)


# What else answers where a host is expected: things that speak no SSH, and those that pass on what
# others say.


Say = Callable[["Stranger", socket.socket], None]


MakeStranger = Callable[[Say], "Stranger"]


class Stranger:
    """Something that listens on a port; `accepted` is how many came, `sent` how many bytes it got
    rid of.
    """

    def __init__(self, say: Say) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.say = say
        self.sent = 0
        self.accepted = 0
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            self.accepted += 1
            with connection, suppress(OSError):
                self.say(self, connection)

    def send_for_ever(self, connection: socket.socket, data: bytes, pause: float = 0) -> None:
        while True:
            connection.sendall(data)
            self.sent += len(data)
            time.sleep(pause)

    @property
    def host(self) -> Host:
        return Host("stranger", "127.0.0.1", self.listening.getsockname()[1])

    def close(self) -> None:
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        self.thread.join(30)


def fall_silent(connection: socket.socket) -> None:
    """Hear whatever is said, and answer nothing."""
    while connection.recv(4096):
        pass


def pass_on(connection: socket.socket, port: int) -> None:
    """Be a way to the server at this port."""
    with socket.create_connection(("127.0.0.1", port)) as onward:
        back = threading.Thread(target=pump, args=(onward, connection))
        back.start()
        pump(connection, onward)
        back.join(30)


def pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)


def closed_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        return int(listening.getsockname()[1])
