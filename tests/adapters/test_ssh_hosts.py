"""Probe, shell and polling together against simulated hosts: each way of being wrong is told as what it is."""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from rollout.adapters.ssh.shell import ParamikoShell
from rollout.gather.hosts.polling import observe, poll
from rollout.gather.hosts.probe import REBOOT_COMMAND
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
