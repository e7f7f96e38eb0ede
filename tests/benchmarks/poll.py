"""What a poll of many hosts costs this machine, against `ansible -m raw` asking the same question.

Run: python tests/benchmarks/poll.py [--hosts 500] [--ansible-hosts 50]

The hosts are those of `rollout lab up`, a process of its own, so that the client's CPU time is the client's alone.
Ansible's is that of its process and everything it starts. Without `ansible` on PATH it is installed into a
temporary environment; where that fails, the comparison is left out and the reason printed.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rollout.adapters.ssh import ParamikoShell
from rollout.gather.inventory import SshDefaults, read_inventory
from rollout.gather.polling import CONCURRENCY, poll
from rollout.gather.probe import PROBE_COMMAND
from rollout.model.host import Host, HostFacts

ANSIBLE = "ansible-core>=2.17"


@dataclass(frozen=True)
class Site:
    """Files that the lab writes."""

    folder: Path

    @property
    def inventory(self) -> Path:
        return self.folder / "inventory.yaml"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"


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


@contextmanager
def lab(folder: Path, hosts: int) -> Iterator[Site]:
    """A lab of that many hosts, up and serving."""
    command = [sys.executable, "-m", "rollout", "lab", "up", "--nodes", str(hosts), "--dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as serving:
        try:
            assert serving.stdout is not None
            assert any(line.startswith("export") for line in serving.stdout), "the lab did not start"
            yield Site(folder)
        finally:
            serving.terminate()


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
    command = (ansible, "-i", site.inventory, f"all[0:{count - 1}]", "-m", "raw", "-a", PROBE_COMMAND)
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
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, lab(Path(folder), options.hosts) as site:
        compare(site, options.ansible_hosts)


if __name__ == "__main__":
    main(sys.argv[1:])
