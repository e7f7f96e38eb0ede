"""Many hosts asked by several processes: the same answers, and nothing left behind."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from rollout.adapters.ssh.known_hosts import HostKeyChecking
from rollout.adapters.ssh.shell import ParamikoShell
from rollout.errors import HostKeyError, SshAuthError, SshError, SshUnreachableError
from rollout.gather.hosts.polling import observe, poll
from rollout.gather.hosts.probe_command import REBOOT_COMMAND
from rollout.lab.clock import LabClock
from rollout.lab.hosts.engine import UpdateEngine
from rollout.lab.hosts.faults import (
    HEALTHY,
    BusFault,
    HostFaults,
    HostKeyFault,
    SshFault,
    SudoFault,
)
from rollout.lab.hosts.machine import Machine
from rollout.lab.hosts.ssh_server import HostServer
from rollout.lab.listener import open_socket
from rollout.model.host import Host, HostFacts, ProbeFailure, ProbeFailureKind, UpdateOperation
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
    told = subprocess.run(["ps", "-ww", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = (line.split(maxsplit=2) for line in told.splitlines())
    return [int(pid) for pid, ppid, words in rows if WORKER in words and int(ppid) == parent]


def asked(shell: ParamikoShell, hosts: dict[str, Host], timeout: float = 60) -> dict[str, CommandResult | SshError]:
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
    kinds = {name: type(answer) for name, answer in answers.items() if isinstance(answer, SshError)}
    assert kinds == {"unknown": HostKeyError, "refused": SshAuthError, "closed": SshUnreachableError}
    refused = answers["refused"]
    assert isinstance(refused, SshAuthError)
    assert refused.message.startswith("the host refuses user admin")
    assert "authorized_keys" in refused.hint


@pytest.mark.usefixtures("three", "nothing_here")
def test_passphrases_go_with_the_task(server: Any, client_key: asyncssh.SSHKey, tmp_path: Path) -> None:
    key = tmp_path / "locked"
    client_key.write_private_key(key, passphrase="open sesame", rounds=1, ignore_few_rounds=True)
    key.chmod(0o600)
    questions = list[Path]()

    def ask(file: Path) -> str:
        questions.append(file)
        return "open sesame"

    shell = ParamikoShell(known_hosts=server.known_hosts(tmp_path), ask=ask)
    hosts = fleet(server, 6, key_file=str(key))
    shell.unlock(hosts.values())
    assert all(isinstance(answer, CommandResult) for answer in asked(shell, hosts).values())
    assert questions == [key]


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("checking", [HostKeyChecking.ACCEPT_NEW, HostKeyChecking.OFF])
def test_new_keys_are_decided_on_by_one_process(
    server: Any, key_file: Path, tmp_path: Path, checking: HostKeyChecking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollout.adapters.ssh.shell.in_processes", lambda *_, **__: pytest.fail("in processes"))
    new = tmp_path / "new"
    shell = ParamikoShell(known_hosts=new, host_key_checking=checking, key_file=key_file)
    assert len(asked(shell, fleet(server, 6))) == 6
    assert not new.exists() or len(new.read_text().splitlines()) == 1


@pytest.mark.usefixtures("three")
def test_hosts_of_a_worker_that_dies_are_asked_here(servers: Any, client_key: asyncssh.SSHKey, key_file: Path) -> None:
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
    answers = asked(ParamikoShell(known_hosts=server.known_hosts(key_file.parent), key_file=key_file), hosts)
    assert set(answers) == set(hosts)
    assert all(isinstance(answer, CommandResult) for answer in answers.values())


@pytest.mark.usefixtures("three", "nothing_here")
def test_whoever_wants_no_more_waits_for_nobody(servers: Any, client_key: asyncssh.SSHKey, key_file: Path) -> None:
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


def test_none_outlives_who_began_it(servers: Any, client_key: asyncssh.SSHKey, key_file: Path) -> None:
    async def hang(_: Process) -> None:
        await asyncio.sleep(60)

    server = servers.serve(hang, authorized=[client_key])
    known = server.known_hosts(key_file.parent)
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(server.port), str(known), str(key_file)]) as program:
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


# Probe, shell and polling together against simulated hosts: each way of being wrong is told as what it is.


CHECKED = 1_700_000_000


RUNNING, STAGED = "4081.2.0", "4152.2.0"


class Site:
    """Simulated hosts on the loop of `servers`, and a shell that reaches them."""

    def __init__(self, servers: Any, client_key: asyncssh.SSHKey, key_file: Path) -> None:
        self._servers, self._client_key, self._key_file = servers, client_key, key_file
        self._known = key_file.parent / "known_hosts"
        self._known.touch()
        self._made: list[tuple[Machine, HostServer]] = []

    def add(self, name: str, faults: HostFaults = HEALTHY, prepare: Callable[[Machine], None] | None = None) -> Host:
        key = asyncssh.generate_private_key("ssh-ed25519")

        async def start() -> Host:
            listening = open_socket("127.0.0.1", 0)
            engine = UpdateEngine.with_staged(STAGED, checked=CHECKED)
            rng = random.Random(name)  # noqa: S311 - repeatable on purpose
            clock = LabClock(100)
            machine = Machine(name, "127.0.0.1", version=RUNNING, clock=clock, rng=rng, engine=engine, faults=faults)
            if prepare is not None:
                prepare(machine)
            server = HostServer(machine, listening, authorized=self._client_key, host_key=key)
            self._made.append((machine, server))
            await server.start()
            machine.start()
            return Host(name, "127.0.0.1", server.port)

        host: Host = self._servers.run(start())
        shown = asyncssh.generate_private_key("ssh-ed25519") if faults.host_key is HostKeyFault.OTHER else key
        line = " ".join(shown.export_public_key().decode().split()[:2])
        with self._known.open("a") as file:
            file.write(f"[127.0.0.1]:{host.port} {line}\n")
        return host

    @property
    def shell(self) -> ParamikoShell:
        return ParamikoShell(known_hosts=self._known, key_file=self._key_file)

    def close(self) -> None:
        async def stop() -> None:
            for machine, server in self._made:
                machine.stop()
                await server.close()

        self._servers.run(stop())


@pytest.fixture
def site(servers: Any, client_key: asyncssh.SSHKey, key_file: Path) -> Iterator[Site]:
    made = Site(servers, client_key, key_file)
    yield made
    made.close()


def facts_of(site: Site, host: Host) -> HostFacts:
    observation = observe(host, site.shell, timeout=60)
    assert isinstance(observation, HostFacts), observation
    return observation


def test_denied_bus_is_asked_as_root(site: Site) -> None:
    facts = facts_of(site, site.add("worker-1", HostFaults(bus=BusFault.DENIED)))
    assert facts.update.needs_reboot


def test_password_for_sudo(site: Site) -> None:
    facts = facts_of(site, site.add("worker-1", HostFaults(sudo=SudoFault.PASSWORD)))
    assert facts.update.needs_reboot
    assert "a password is required" in facts.reboot_refusal


def test_bad_hosts_spoil_nobody(site: Site) -> None:
    bad = {
        "closed": HostFaults(ssh=SshFault.CLOSED),
        "refused": HostFaults(ssh=SshFault.KEY_REFUSED),
        "other-key": HostFaults(host_key=HostKeyFault.OTHER),
        "garbage": HostFaults(garbage=True),
        "slow": HostFaults(answer_delay_seconds=100_000),
    }
    hosts = {name: site.add(name, faults) for name, faults in bad.items()}
    hosts |= {name: site.add(name) for name in ("good-1", "good-2", "good-3")}
    started = time.monotonic()
    found = poll(hosts, site.shell, timeout=6, concurrency=4)
    assert time.monotonic() - started < 30
    assert list(found) == list(hosts)
    assert {name: answer.kind for name, answer in found.items() if isinstance(answer, ProbeFailure)} == {
        "closed": ProbeFailureKind.UNREACHABLE,
        "refused": ProbeFailureKind.AUTH,
        "other-key": ProbeFailureKind.HOST_KEY,
        "garbage": ProbeFailureKind.GARBLED,
        "slow": ProbeFailureKind.TIMEOUT,
    }


def test_reboot_takes_the_host_away_and_back(site: Site) -> None:
    # Away for long enough to be asked meanwhile by a process that gets little of its machine.
    host = site.add("worker-1", HostFaults(boot_seconds=300))
    before = facts_of(site, host)
    assert site.shell.run(host, REBOOT_COMMAND, timeout=60).exit_status in (0, None)
    deadline = time.monotonic() + 60
    gone = False
    while time.monotonic() < deadline:
        after = observe(host, site.shell, timeout=60)
        gone = gone or isinstance(after, ProbeFailure)
        if isinstance(after, HostFacts) and after.boot_id != before.boot_id:
            break
        time.sleep(0.02)
    after = facts_of(site, host)
    assert gone
    assert after.boot_id != before.boot_id
    assert after.machine_id == before.machine_id
    assert after.running_version == STAGED
    assert after.update.operation is UpdateOperation.IDLE


def test_reboot_without_sudo_is_refused(site: Site) -> None:
    host = site.add("worker-1", HostFaults(sudo=SudoFault.REFUSED))
    result = site.shell.run(host, REBOOT_COMMAND, timeout=60)
    assert result.exit_status not in (0, None)
    assert "not allowed to execute" in result.stderr
