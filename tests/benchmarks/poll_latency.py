"""What a poll costs over links with a delay: CPU, wall and memory of the client, against the floor that the delay sets.

Run: python tests/benchmarks/poll_latency.py [--hosts 1000] [--delay 50] [--concurrency 32]

Between the client and the hosts of a lab stands a relay, a process of its own, that holds every byte back for half of
the delay in each direction, and connections for all of it. The floor is what one host takes alone, times how
many hosts each connection has to ask one after the other.
"""

import argparse
import asyncio
import json
import math
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from rollout.adapters.ssh import ParamikoShell
from rollout.gather.inventory import SshDefaults, read_inventory
from rollout.gather.polling import CONCURRENCY, poll
from rollout.model.host import Host, HostFacts
from tests.benchmarks.poll import lab

Target = tuple[str, int]
_FILES = 16_000


class Relayed(asyncio.Protocol):
    """One direction of a connection; what it receives is sent on after the delay."""

    def __init__(self, delay: float) -> None:
        self.delay = delay
        self.transport: asyncio.Transport | None = None
        self.peer: Relayed | None = None
        self.early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        asyncio.get_running_loop().call_later(self.delay, self.pass_on, data)

    def connection_lost(self, exc: Exception | None) -> None:
        asyncio.get_running_loop().call_later(self.delay, self.end)

    def pass_on(self, data: bytes) -> None:
        if self.peer is None:
            self.early.append(data)
        elif self.peer.transport is not None:
            self.peer.transport.write(data)

    def end(self) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.close()


class Accepted(Relayed):
    """The client's side: connects on to the host, after the time that a handshake over such a link takes."""

    def __init__(self, target: Target, delay: float) -> None:
        super().__init__(delay)
        self.target = target
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.task = asyncio.get_running_loop().create_task(self.connect())

    async def connect(self) -> None:
        await asyncio.sleep(2 * self.delay)
        _, other = await asyncio.get_running_loop().create_connection(lambda: Relayed(self.delay), *self.target)
        self.peer, other.peer = other, self
        for data in self.early:
            self.pass_on(data)


async def serve(targets: Sequence[Target], delay: float, report: Connection) -> None:
    loop, ports = asyncio.get_running_loop(), []
    for target in targets:
        server = await loop.create_server(lambda target=target: Accepted(target, delay), "127.0.0.1", 0)  # type: ignore[misc]
        ports.append(server.sockets[0].getsockname()[1])
    report.send(ports)
    await asyncio.Event().wait()


def relay(targets: Sequence[Target], delay: float, report: Connection) -> None:
    asyncio.run(serve(targets, delay, report))


@contextmanager
def behind_links(hosts: dict[str, Host], delay: float) -> Iterator[dict[str, Host]]:
    """The hosts as they are reached through the relay, known by the names that their keys are on file under."""
    near, far = multiprocessing.Pipe()
    targets = [(host.address, host.port) for host in hosts.values()]
    process = multiprocessing.Process(target=relay, args=(targets, delay / 2, far), daemon=True)
    process.start()
    try:
        yield {
            name: replace(host, address="127.0.0.1", port=port, known_as=f"[{host.address}]:{host.port}")
            for (name, host), port in zip(hosts.items(), near.recv(), strict=True)
        }
    finally:
        process.terminate()
        process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--delay", type=float, default=50.0, help="milliseconds there and back")
    parser.add_argument("--concurrency", type=int, default=CONCURRENCY)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_FILES, hard) if hard > 0 else _FILES, hard))
    with tempfile.TemporaryDirectory() as folder, lab(Path(folder), options.hosts) as site:
        inventory = read_inventory(site.inventory, SshDefaults())
        with behind_links({host.name: host for host in inventory.hosts}, options.delay / 1000) as hosts:
            print(json.dumps(measure(hosts, ParamikoShell(known_hosts=site.known_hosts), options.concurrency)))


def measure(hosts: dict[str, Host], shell: ParamikoShell, concurrency: int) -> dict[str, float]:
    one = dict(list(hosts.items())[:1])
    poll(one, shell, timeout=30)  # imports and key loading
    begun = time.monotonic()
    poll(one, shell, timeout=30)
    alone = time.monotonic() - begun
    cpu, begun = time.process_time(), time.monotonic()
    found = poll(hosts, shell, timeout=120, concurrency=concurrency)
    cpu, wall = time.process_time() - cpu, time.monotonic() - begun
    kinds = Counter(type(answer).__name__ for answer in found.values())
    assert kinds == {HostFacts.__name__: len(hosts)}, kinds
    floor = alone * math.ceil(len(hosts) / concurrency)
    return {
        "hosts": len(hosts),
        "concurrency": concurrency,
        "cpu_ms_a_host": round(cpu / len(hosts) * 1000, 2),
        "cpu_s": round(cpu, 2),
        "wall_s": round(wall, 2),
        "one_host_s": round(alone, 3),
        "floor_s": round(max(cpu / (os.cpu_count() or 1), floor), 2),
        "wall_over_floor": round(wall / max(cpu / (os.cpu_count() or 1), floor), 2),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


if __name__ == "__main__":
    main()
