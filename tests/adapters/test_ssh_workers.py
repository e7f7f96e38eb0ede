"""Many hosts asked by several processes: the same answers, and nothing left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from rollout.adapters.ssh.shell import ParamikoShell
from rollout.errors import HostKeyError, SshAuthError, SshError, SshRefusedError
from rollout.model.host import Host
from rollout.ports import CommandResult

Process = asyncssh.SSHServerProcess[bytes]


WORKER = "rollout.adapters.ssh.worker"


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on three cores, and as if every fleet were large."""
    monkeypatch.setattr("rollout.adapters.ssh.shell.workers_for", lambda _: 3)


@pytest.fixture
def nothing_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process asks nobody."""

    def run(*_: object, **__: object) -> CommandResult:
        raise AssertionError("asked here")

    monkeypatch.setattr(ParamikoShell, "run", run)


def fleet(server: Any, number: int, **options: Any) -> dict[str, Host]:
    return {f"worker-{n}": server.host(f"worker-{n}", **options) for n in range(number)}


def workers_of(parent: int) -> list[int]:
    told = subprocess.run(
        ["ps", "-ww", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = (line.split(maxsplit=2) for line in told.splitlines())
    return [int(pid) for pid, ppid, words in rows if WORKER in words and int(ppid) == parent]


def asked(
    shell: ParamikoShell, hosts: dict[str, Host], timeout: float = 60
) -> dict[str, CommandResult | SshError]:
    return dict(shell.run_on_all(hosts, "hello", timeout=timeout, concurrency=8))


@pytest.mark.usefixtures("three", "nothing_here")
def test_failures_are_what_they_are_here(servers: Any, server: Any, key_file: Path) -> None:
    other = servers.serve(authorized=[asyncssh.generate_private_key("ssh-ed25519")])
    known = server.known_hosts(key_file.parent)
    hosts = fleet(server, 2) | {
        "unknown": other.host("unknown"),
        "refused": server.host("refused", user="admin"),
        "closed": Host("closed", "127.0.0.1", 1),
    }
    answers = asked(ParamikoShell(known_hosts=known, key_file=key_file), hosts)
    expected: dict[str, type[SshError]] = {
        "refused": SshAuthError,
        "closed": SshRefusedError,
        "unknown": HostKeyError,
    }
    kinds: dict[str, type[SshError]] = {}
    for name, answer in answers.items():
        if isinstance(answer, SshError):
            kinds[name] = type(answer)
    assert kinds == expected
    refused = answers["refused"]
    assert isinstance(refused, SshAuthError)
    assert refused.message.startswith("the host refuses user admin")
    assert "authorized_keys" in refused.hint


@pytest.mark.usefixtures("three", "nothing_here")
def test_a_passphrase_goes_with_the_task(
    server: Any, client_key: asyncssh.SSHKey, tmp_path: Path
) -> None:
    key = tmp_path / "locked"
    client_key.write_private_key(key, passphrase="open sesame", rounds=1, ignore_few_rounds=True)
    key.chmod(0o600)
    shell = ParamikoShell(known_hosts=server.known_hosts(tmp_path), passphrase="open sesame")
    hosts = fleet(server, 6, key_file=str(key))
    assert all(isinstance(answer, CommandResult) for answer in asked(shell, hosts).values())


@pytest.mark.usefixtures("three")
def test_hosts_of_a_worker_that_dies_are_asked_here(
    servers: Any, client_key: asyncssh.SSHKey, key_file: Path
) -> None:
    asked_at = list[str]()

    async def slowly(process: Process) -> None:
        asked_at.append("x")
        if len(asked_at) == 1:
            for pid in workers_of(os.getpid()):
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.1)
        process.exit(0)

    server = servers.serve(slowly, authorized=[client_key])
    hosts = fleet(server, 9)
    answers = asked(
        ParamikoShell(known_hosts=server.known_hosts(key_file.parent), key_file=key_file), hosts
    )
    assert set(answers) == set(hosts)
    assert all(isinstance(answer, CommandResult) for answer in answers.values())


@pytest.mark.usefixtures("three", "nothing_here")
def test_whoever_wants_no_more_waits_for_nobody(
    servers: Any, client_key: asyncssh.SSHKey, key_file: Path
) -> None:
    first = list[int]()

    async def hang(process: Process) -> None:
        first.append(1)
        if len(first) > 1:
            await asyncio.sleep(60)
        process.exit(0)

    server = servers.serve(hang, authorized=[client_key])
    shell = ParamikoShell(known_hosts=server.known_hosts(key_file.parent), key_file=key_file)
    answers = shell.run_on_all(fleet(server, 9), "hello", timeout=300, concurrency=3)
    next(answers)
    begun = time.monotonic()
    answers.close()
    assert time.monotonic() - begun < 20
    assert workers_of(os.getpid()) == []


PROGRAM = """
import sys
from pathlib import Path
import rollout.adapters.ssh.shell as ssh
from rollout.model.host import Host
ssh.workers_for = lambda _: 2
port, known, key = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
shell = ssh.ParamikoShell(known_hosts=known, key_file=key)
hosts = {f"h{n}": Host(f"h{n}", "127.0.0.1", port) for n in range(4)}
for _ in shell.run_on_all(hosts, "x", timeout=300, concurrency=4):
    pass
"""


def test_none_outlives_who_began_it(
    servers: Any, client_key: asyncssh.SSHKey, key_file: Path
) -> None:
    async def hang(_: Process) -> None:
        await asyncio.sleep(60)

    server = servers.serve(hang, authorized=[client_key])
    known = server.known_hosts(key_file.parent)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(server.port), str(known), str(key_file)]
    ) as program:
        deadline = time.monotonic() + 60
        while len(server.connections) < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        workers = workers_of(program.pid)
        program.kill()
    assert len(workers) == 2
    while any(is_there(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(is_there(pid) for pid in workers)


def is_there(pid: int) -> bool:
    with suppress(OSError):
        return WORKER in Path(f"/proc/{pid}/cmdline").read_text()
    return False
