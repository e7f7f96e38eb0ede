"""What a poll costs over links with a delay: CPU, wall and memory of the client, against the floor that the delay sets.

Run: python tests/benchmarks/poll_latency.py [--hosts 1000] [--delay 50] [--concurrency 32]

Between the client and the hosts of a lab stands a relay, a process of its own, that holds every byte back for half of
the delay in each direction, and connections for all of it. The floor is what one host takes alone, times how
many hosts each connection has to ask one after the other. The hosts and the relay share the machine with the client:
`machine_s` is the CPU of all three over its cores, below which no client can come here. The client's CPU and memory
are those of all its processes; memory is the sum of each one's peak.
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
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from rollout.adapters.ssh.shell import ParamikoShell
from rollout.adapters.ssh.workers import workers_for
from rollout.errors import SshError
from rollout.gather.hosts.polling import CONCURRENCY, poll
from rollout.gather.hosts.side_by_side import side_by_side
from rollout.model.host import Host, HostFacts
from rollout.ports import CommandResult
from tests.benchmarks.poll import hosts_of, lab

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


class OneProcess(ParamikoShell):
    """Uses threads alone, however many hosts there are."""

    def run_on_all(
        self, hosts: Mapping[str, Host], command: str, *, timeout: float, concurrency: int
    ) -> Generator[tuple[str, CommandResult | SshError]]:
        return side_by_side(hosts, partial(self.run, command=command, timeout=timeout), concurrency=concurrency)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--delay", type=float, default=50.0, help="milliseconds there and back")
    parser.add_argument("--concurrency", type=int, default=CONCURRENCY)
    parser.add_argument("--one-process", action="store_true", help="threads alone")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_FILES, hard) if hard > 0 else _FILES, hard))
    kind = OneProcess if options.one_process else ParamikoShell
    with (
        tempfile.TemporaryDirectory() as folder,
        lab(Path(folder), options.hosts) as site,
        behind_links(hosts_of(site), options.delay / 1000) as hosts,
    ):
        figures = measure(hosts, kind(known_hosts=site.known_hosts), options.concurrency)
        print(json.dumps({"processes": 1 if options.one_process else workers_for(len(hosts)), **figures}))


def client_cpu() -> float:
    """Seconds of this process and of those it has begun and seen end."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def others_cpu() -> float:
    """Seconds of the children that are still there: the hosts and the relay."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12]) if int(fields[1]) == os.getpid() else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def peak_mb(processes: int) -> int:
    """The sum of all peaks, taking each worker's for that of the largest."""
    own, child = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return round((own + (child * processes if processes > 1 else 0)) / 1024)


def measure(hosts: dict[str, Host], shell: ParamikoShell, concurrency: int) -> dict[str, float]:
    one = dict(list(hosts.items())[:1])
    poll(one, shell, timeout=30)  # imports and key loading
    begun = time.monotonic()
    poll(one, shell, timeout=30)
    alone = time.monotonic() - begun
    others, cpu, begun = others_cpu(), client_cpu(), time.monotonic()
    found = poll(hosts, shell, timeout=120, concurrency=concurrency)
    wall = time.monotonic() - begun
    cpu, others = client_cpu() - cpu, others_cpu() - others
    kinds = Counter(type(answer).__name__ for answer in found.values())
    assert kinds == {HostFacts.__name__: len(hosts)}, kinds
    cores = os.cpu_count() or 1
    latency = alone * math.ceil(len(hosts) / concurrency)
    floor = max(cpu / cores, latency)
    return {
        "hosts": len(hosts),
        "concurrency": concurrency,
        "cpu_ms_a_host": round(cpu / len(hosts) * 1000, 2),
        "wall_s": round(wall, 2),
        "one_host_s": round(alone, 3),
        "cpu_over_cores_s": round(cpu / cores, 2),
        "latency_s": round(latency, 2),
        "wall_over_floor": round(wall / floor, 2),
        "machine_s": round((cpu + others) / cores, 2),
        "peak_mb": peak_mb(1 if isinstance(shell, OneProcess) else workers_for(len(hosts))),
        "load_before": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    main()
