"""The lab as a whole, over HTTPS and SSH, as any client would use it."""

import gc
import os
import random
import re
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
import yaml

from rollout.errors import InputError
from rollout.lab.lab import Lab
from rollout.lab.scenario import Scenario, load_scenario
from rollout.lab.simulation import Simulation, simulation
from tests.contract.cluster import connected

StartLab = Callable[..., Lab]


def test_the_files_are_private_and_complete(start_lab: StartLab) -> None:
    lab = start_lab("default", nodes=2)

    assert sorted(path.name for path in lab.directory.iterdir()) == [
        "id_ed25519",
        "id_ed25519.pub",
        "inventory.yaml",
        "known_hosts",
        "kubeconfig",
    ]
    for path in (lab.key, lab.kubeconfig):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert lab.environment["KUBECONFIG"] == str(lab.kubeconfig)
    assert set(lab.environment) - {"ROLLOUT_SSH_PORT", "ROLLOUT_INVENTORY"} == {
        "KUBECONFIG",
        "ROLLOUT_SSH_KEY",
        "ROLLOUT_KNOWN_HOSTS",
        "ROLLOUT_SSH_CONFIG",
        "ANSIBLE_SSH_COMMON_ARGS",
    }
    inventory = yaml.safe_load(lab.inventory.read_text())
    assert set(inventory["all"]["children"]) == {"control_plane", "worker"}
    lines = lab.known_hosts.read_text().splitlines()
    assert len(lines) == 2
    assert all(re.fullmatch(r"\[127\.\d+\.\d+\.\d+\]:\d+ ssh-ed25519 \S+", line) for line in lines)


def open_sockets() -> set[str]:
    folder = Path("/proc/self/fd")
    links = (str(path.readlink()) for path in folder.iterdir() if path.exists())
    return {link for link in links if link.startswith("socket:")}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_stopping_leaves_nothing(tmp_path: Path) -> None:
    gc.collect()
    sockets = open_sockets()
    threads = set(threading.enumerate())
    lab = Lab(load_scenario("default"), directory=tmp_path, speed=20)
    address = lab.machines["worker-1"].address
    port = lab.ssh_port
    with connected(lab.kubeconfig, tmp_path) as client:
        client.get("/api/v1/nodes")
    lab.call(lab.machines["worker-2"].reboot)

    lab.stop()
    lab.stop()

    gc.collect()
    # Threads of servers from before may end meanwhile.
    assert open_sockets() - sockets == set()
    assert set(threading.enumerate()) - threads == set()
    with socket.socket() as probe:
        assert probe.connect_ex((address, port or 0)) != 0


def test_what_ended_a_lab_is_raised_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def failing(
        scenario: Scenario, *, directory: Path, speed: float
    ) -> AsyncIterator[Simulation]:
        async with simulation(scenario, directory=directory, speed=speed) as running:
            yield running
        raise RuntimeError("broken")

    monkeypatch.setattr("rollout.lab.lab.simulation", failing)
    lab = Lab(load_scenario("idle"), directory=tmp_path, speed=20)
    with pytest.raises(RuntimeError, match="broken"):
        lab.stop()
    lab.stop()


def test_a_directory_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(InputError, match="cannot use"):
        Lab(load_scenario("default"), directory=tmp_path / "file" / "lab")


def test_the_command_serves_until_it_is_told_to_end(tmp_path: Path) -> None:
    command = [
        sys.executable,
        *("-m", "rollout", "lab", "up", "--nodes", "2", "--dir", str(tmp_path / "a lab")),
    ]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        exports = [process.stdout.readline() for _ in range(4)]
        with connected(tmp_path / "a lab" / "kubeconfig", tmp_path) as client:
            assert len(client.get("/api/v1/nodes").items) == 2
        process.terminate()
        out, err = process.communicate(timeout=100)

    assert exports[0] == f"export KUBECONFIG='{tmp_path}/a lab/kubeconfig'\n"
    assert all(line.startswith("export ROLLOUT_") for line in exports[1:])
    assert (tmp_path / "a lab" / "env").read_text(encoding="utf-8").splitlines(keepends=True)[
        :4
    ] == exports
    assert f". '{tmp_path}/a lab/env'" in err
    assert "Clean" in out
    assert "rollout apply" in err
    assert process.returncode == 0


# Whoever has connected is hung up on when the lab, its API server or a host goes away, however far
# he has come.


Place = tuple[str, int]


class Caller(threading.Thread):
    """Connects all the time, goes a random way into the handshake, and hangs up on nobody."""

    def __init__(self, places: list[Place]) -> None:
        super().__init__()
        self.kept: list[socket.socket] = []
        self._places = places
        self._refused = threading.Event()

    def run(self) -> None:
        draw = random.SystemRandom()
        while not self._refused.is_set():
            with suppress(OSError):
                self.kept.append(socket.create_connection(draw.choice(self._places), timeout=5))
                draw.choice(_GREETINGS)(self.kept[-1])

    def end(self) -> None:
        self._refused.set()
        self.join()


def _silent(_connection: socket.socket) -> None:
    return


def _half_a_hello(connection: socket.socket) -> None:
    connection.sendall(b"\x16\x03\x01")


def _ssh_version(connection: socket.socket) -> None:
    connection.sendall(b"SSH-2.0-caller\r\n")


def _client_hello(connection: socket.socket) -> None:
    hello = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(
            ssl.MemoryBIO(), hello, server_hostname="localhost"
        ).do_handshake()
    connection.sendall(hello.read())


_GREETINGS: Final = (_silent, _silent, _half_a_hello, _ssh_version, _client_hello)


def hung_up(connection: socket.socket) -> bool:
    """Whether the other side is gone, once everything it has said is read."""
    connection.settimeout(5)
    try:
        while connection.recv(4096):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


@pytest.mark.parametrize("attempt", range(6))
def test_a_lab_that_stops_leaves_no_caller_waiting(attempt: int, tmp_path: Path) -> None:
    with Lab(load_scenario("idle"), directory=tmp_path, speed=30) as lab, ExitStack() as opened:
        hosts = [machine.address for machine in lab.machines.values()]
        places = [("127.0.0.1", lab.api.port), *((host, lab.ssh_port or 0) for host in hosts)]
        callers = [Caller(places) for _ in range(4)]
        for caller in callers:
            opened.callback(caller.end)
            caller.start()
        time.sleep(0.2 + attempt / 50)
        while not all(len(caller.kept) > 1 for caller in callers):
            time.sleep(0.01)
        lab.stop()
        for caller in callers:
            caller.end()
    kept = [connection for caller in callers for connection in caller.kept]
    assert len(kept) > len(callers)
    with ExitStack() as closed:
        for connection in kept:
            closed.enter_context(connection)
        assert all(hung_up(connection) for connection in kept)
    gc.collect()  # a connection that asyncio has forgotten is told of here, as a warning
