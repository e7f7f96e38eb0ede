"""What hosts that ask cost: the FleetLock server beside the seed's way, which lists all nodes for each ask.

Run: python tests/benchmarks/fleetlock.py [--hosts 1000] [--rounds 3] [--seed-asks 30]

A thousand hosts that ask every five minutes are 3.3 asks a second. Here they ask one after the other, a few at a time,
so that a round of five minutes takes seconds: the CPU of an ask is the same. One host holds the only slot; all others
are told so, as they are nearly always. Lab, server and the seed's way are processes of their own; both ways ask one
lab, in one run.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from threading import local

sys.path.insert(0, str(Path(__file__).parents[2]))

from rollout.adapters.kube.api import connect
from rollout.lab.hosts.zincati import node_id
from tests.benchmarks.lab_process import LabProcess, client_environment, lab_process

AT_ONCE = 8
PERIOD = 300
PATIENCE = 180.0
IDLE_SECONDS = 30


@dataclass(frozen=True)
class Cost:
    """Of a number of asks: CPU seconds of the answering process and of the lab, MB at its peak, requests to the API."""

    asks: int
    wall: float
    cpu: float
    lab: float
    memory: float
    requests: Counter[str]

    def line(self, name: str) -> str:
        each, of_lab = (seconds / self.asks * 1000 for seconds in (self.cpu, self.lab))
        return (
            f"{name:<11}{self.asks:>6} asks, each {each:.3f} ms of CPU, {of_lab:.3f} ms of the API server's, "
            f"{self.requests.total() / self.asks:.3f} requests; {self.memory:.0f} MB, "
            f"{self.asks / self.wall:.0f} a second"
        )


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_of(pid: int) -> float:
    (line,) = (each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def measured(lab: LabProcess, pid: int, asks: int, work: Callable[[], object]) -> Cost:
    cpu, of_lab, requests, began = cpu_of(pid), lab.cpu, Counter(lab.requests), time.monotonic()
    work()
    wall = time.monotonic() - began
    return Cost(
        asks,
        wall,
        cpu_of(pid) - cpu,
        lab.cpu - of_lab,
        peak_of(pid),
        Counter(lab.requests) - requests,
    )


class Hosts:
    """Hosts by their ids; each thread keeps one connection."""

    def __init__(self, port: int, machine_ids: Sequence[str]) -> None:
        self.ids = [node_id(machine_id) for machine_id in machine_ids]
        self._port = port
        self._own = local()

    def ask(self, host: str, path: str = "/v1/pre-reboot") -> tuple[int, bytes]:
        connection = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
        body = json.dumps({"client_params": {"id": host, "group": "default"}}, indent=2)
        connection.request("POST", path, body, {"fleet-lock-protocol": "true"})
        answer = connection.getresponse()
        return answer.status, answer.read()

    def await_grant(self, host: str) -> None:
        end = time.monotonic() + PATIENCE
        while (answer := self.ask(host))[0] != 200:
            assert time.monotonic() < end, answer
            time.sleep(0.5)

    def all_ask(self, rounds: int) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for status, body in pool.map(self.ask, self.ids[1:] * rounds):
                assert status == 423, body


def fleetlock(lab: LabProcess, port: int) -> "subprocess.Popen[bytes]":
    words = [sys.executable, "-m", "rollout", "fleetlock", "--listen", f"127.0.0.1:{port}"]
    environment = {**client_environment(lab), "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(words, env=environment, cwd=lab.directory, stdout=subprocess.DEVNULL)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            connection = HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return process
        except OSError:
            pass
        time.sleep(0.2)
    process.kill()
    raise SystemExit("the server is not ready")


def seed_way(kubeconfig: str) -> None:
    """Answer each line of standard input as the seed does: list all nodes, and look for the id among them."""
    api = connect(Path(kubeconfig), None)
    print("ready", flush=True)
    for line in sys.stdin:
        nodes = json.loads(api.get("/api/v1/nodes"))["items"]
        matching = [
            node["metadata"]["name"]
            for node in nodes
            if node_id(node["status"]["nodeInfo"]["machineID"]) == line.strip()
        ]
        print(matching[0], flush=True)


def seed_cost(lab: LabProcess, ids: Sequence[str]) -> Cost:
    words = [sys.executable, __file__, "--as-seed", lab.environment["KUBECONFIG"]]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout
        stdout.readline()

        def asked() -> None:
            for host in ids:
                print(host, file=stdin, flush=True)
                assert stdout.readline()

        cost = measured(lab, process.pid, len(ids), asked)
        stdin.close()
    return cost


def main(hosts: int, rounds: int, seed_asks: int) -> None:
    from rollout.lab.listener import open_socket  # noqa: PLC0415

    with open_socket("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    with lab_process("default", speed=1, nodes=hosts) as lab:
        nodes = json.loads(connect(Path(lab.environment["KUBECONFIG"]), None).get("/api/v1/nodes"))["items"]
        asking = Hosts(port, [node["status"]["nodeInfo"]["machineID"] for node in reversed(nodes)])
        server = fleetlock(lab, port)
        try:
            rest = measured(lab, server.pid, 1, lambda: time.sleep(IDLE_SECONDS))
            asking.await_grant(asking.ids[0])
            idle = measured(lab, server.pid, 1, lambda: time.sleep(IDLE_SECONDS))
            ours = measured(lab, server.pid, rounds * (hosts - 1), lambda: asking.all_ask(rounds))
        finally:
            server.terminate()
            server.wait()
        seed = seed_cost(lab, asking.ids[:seed_asks])
    report(hosts, (rest, idle), ours, seed)


def report(hosts: int, standing: tuple[Cost, Cost], ours: Cost, seed: Cost) -> None:
    print(ours.line("fleetlock"))
    print(seed.line("seed's way"))
    print(f"ratio: {seed.cpu / seed.asks / (ours.cpu / ours.asks):.0f} times the CPU an ask")
    for name, cost in zip(("without a slot held", "with one"), standing, strict=True):
        share, asked = cost.cpu / IDLE_SECONDS * 100, cost.requests.total() / IDLE_SECONDS * 60
        print(f"at rest, {name}: {share:.2f} % of a core, {asked:.0f} requests a minute ({dict(cost.requests)})")
    shares = [cost.cpu / cost.asks * hosts / PERIOD * 100 for cost in (ours, seed)]
    print(f"{hosts} hosts every five minutes: {shares[0]:.2f} % of a core for asks; the seed's way: {shares[1]:.1f} %")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--hosts", type=int, default=1000)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--seed-asks", type=int, default=30)
    arguments.add_argument("--as-seed", metavar="KUBECONFIG", default="")
    given = arguments.parse_args()
    if given.as_seed:
        seed_way(given.as_seed)
    else:
        main(given.hosts, given.rounds, given.seed_asks)
