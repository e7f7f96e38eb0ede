"""What a poll of many hosts costs this machine, against `ansible -m raw` asking the same question.

Run: python tests/benchmarks/poll.py [--hosts 500] [--ansible-hosts 50]

The hosts are simulated ones in a process of their own, so that the client's CPU time is the client's alone.
Ansible's is that of its process and everything it starts. Without `ansible` on PATH it is installed into a
temporary environment; where that fails, the comparison is left out and the reason printed.
"""

import argparse
import asyncio
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from rollout.adapters.ssh import ParamikoShell
from rollout.gather.inventory import SshDefaults, read_inventory
from rollout.gather.polling import CONCURRENCY, poll
from rollout.gather.probe import PROBE_COMMAND
from rollout.lab.clock import LabClock
from rollout.lab.hosts.engine import UpdateEngine
from rollout.lab.hosts.machine import Machine
from rollout.lab.hosts.places import bind_hosts
from rollout.lab.hosts.ssh_server import HostServer, new_host_key
from rollout.model.host import Host, HostFacts

ANSIBLE = "ansible-core>=2.17"


@dataclass(frozen=True)
class Site:
    """Files that the serving process writes."""

    folder: Path

    @property
    def inventory(self) -> Path:
        return self.folder / "hosts.ini"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def key(self) -> Path:
        return self.folder / "id_ed25519"


@dataclass(frozen=True)
class Cost:
    """CPU seconds and wall seconds for a number of hosts."""

    hosts: int
    cpu: float
    wall: float

    @property
    def per_host(self) -> float:
        """Milliseconds of CPU a host."""
        return self.cpu / self.hosts * 1000


# The serving process.


async def serve(site: Site, count: int) -> None:
    """Serve hosts until the end of stdin, having told on stdout that they are there."""
    authorized = asyncssh.generate_private_key("ssh-ed25519")
    authorized.write_private_key(site.key)
    site.key.chmod(0o600)
    known, lines = [], ["[all:vars]", "ansible_user=core", f"ansible_ssh_private_key_file={site.key}", "[nodes]"]
    for number, listening in enumerate(bind_hosts(count), 1):
        server = host_server(f"worker-{number}", listening, authorized)
        await server.start()
        known.append(f"[{server.address}]:{server.port} {server_key(server)}")
        lines.append(f"worker-{number} ansible_host={server.address} ansible_port={server.port}")
    site.known_hosts.write_text("\n".join(known) + "\n")
    site.inventory.write_text("\n".join(lines) + "\n")
    print("ready", flush=True)
    await asyncio.Event().wait()


def host_server(name: str, listening: socket.socket, authorized: asyncssh.SSHKey) -> HostServer:
    """One simulated host with an update staged."""
    machine = Machine(
        name,
        listening.getsockname()[0],
        version="4081.2.0",
        clock=LabClock(1),
        rng=random.Random(name),  # noqa: S311 - repeatable on purpose
        engine=UpdateEngine.with_staged("4152.2.0", checked=1_700_000_000),
    )
    return HostServer(machine, listening, authorized=authorized, host_key=new_host_key())


def server_key(server: HostServer) -> str:
    """The public key, as known_hosts writes it."""
    return " ".join(server._host_key.export_public_key().decode().split()[:2])


# The client.


def our_poll(site: Site) -> Cost:
    """Ask every host, in this process."""
    inventory = read_inventory(site.inventory, SshDefaults())
    hosts: dict[str, Host] = {host.name: host for host in inventory.hosts}
    shell = ParamikoShell(known_hosts=site.known_hosts)
    next(iter(poll(dict(list(hosts.items())[:1]), shell, timeout=30).values()))  # imports and key loading
    cpu, wall = time.process_time(), time.monotonic()
    found = poll(hosts, shell, timeout=60, concurrency=CONCURRENCY)
    cost = Cost(len(hosts), time.process_time() - cpu, time.monotonic() - wall)
    kinds = Counter(type(answer).__name__ for answer in found.values())
    assert kinds == {HostFacts.__name__: len(hosts)}, kinds
    return cost


def ansible_poll(ansible: Path, site: Site, count: int) -> Cost:
    """Ask the first hosts by `ansible -m raw`, with as many forks as we have connections."""
    command = (ansible, "-i", site.inventory, f"nodes[0:{count - 1}]", "-m", "raw", "-a", PROBE_COMMAND)
    environment = os.environ | {
        "ANSIBLE_SSH_ARGS": f"-o UserKnownHostsFile={site.known_hosts}",
        "ANSIBLE_HOME": str(site.folder / "ansible"),
        "ANSIBLE_FORKS": str(CONCURRENCY),
    }
    before, wall = children_cpu(), time.monotonic()
    done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True, check=False)
    cost = Cost(count, children_cpu() - before, time.monotonic() - wall)
    answers = done.stdout.count("UPDATE_STATUS_UPDATED_NEED_REBOOT")
    assert answers == count, f"{answers} of {count} answered: {done.stdout[-500:]}{done.stderr[-500:]}"
    return cost


def children_cpu() -> float:
    """CPU seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def find_ansible(folder: Path) -> Path | str:
    """The program, installed if need be; a reason where there is none."""
    if shutil.which("ssh") is None:
        return "there is no ssh on this machine, which ansible needs"
    if found := shutil.which("ansible"):
        return Path(found)
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "pip"), "install", "-q", "--disable-pip-version-check", ANSIBLE]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    return folder / "bin" / "ansible" if done.returncode == 0 else f"it cannot be installed: {done.stderr[-200:]}"


def told(name: str, cost: Cost) -> str:
    return f"{name:<16}{cost.hosts:>6} hosts  {cost.per_host:>8.2f} ms CPU/host  {cost.wall:>7.2f} s wall"


def compare(site: Site, ansible_hosts: int) -> None:
    """Poll both ways and print the figures."""
    ours = min((our_poll(site) for _ in range(3)), key=lambda cost: cost.cpu)
    print(told("rollout", ours))
    ansible = find_ansible(site.folder / "venv") if ansible_hosts else "not asked for"
    if isinstance(ansible, str):
        print(f"ansible -m raw: left out: {ansible}")
        return
    theirs = ansible_poll(ansible, site, min(ansible_hosts, ours.hosts))
    print(told("ansible -m raw", theirs))
    print(f"ratio           {theirs.per_host / ours.per_host:.0f} times the CPU a host")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=500)
    parser.add_argument("--ansible-hosts", type=int, default=50)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        asyncio.run(serve(Site(options.serve), options.hosts))
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--serve", folder, "--hosts", str(options.hosts)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving:
            try:
                assert serving.stdout is not None
                assert serving.stdout.readline() == "ready\n"
                compare(Site(Path(folder)), options.ansible_hosts)
            finally:
                serving.send_signal(signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
