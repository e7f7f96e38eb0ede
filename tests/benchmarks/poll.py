"""What a poll of many hosts costs this machine: by our own SSH, by the Ansible executor, and by `ansible -m raw`.

Run: python tests/benchmarks/poll.py [--hosts 500] [--ansible-hosts 500]

The hosts are those of `rollout lab up`, a process of its own, so that the client's CPU time is the
client's alone. Ansible's is that of its processes and everything they start. All ask the same
question, 32 hosts at a time. Without Ansible beside this interpreter its two rows are left out.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rollout.adapters.ansible.executor import AnsibleExecutor
from rollout.adapters.ansible.inventory import read_inventory
from rollout.adapters.ansible.settings import AnsibleSettings
from rollout.adapters.ssh.shell import ParamikoShell
from rollout.gather.hosts.polling import poll
from rollout.gather.hosts.probe_command import PROBE_COMMAND, USUAL_PROBE
from rollout.gather.inventory import SshDefaults
from rollout.model.host import Host, HostFacts, HostObservation
from rollout.ports import HostExecutor

CONCURRENCY = 32


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
    command = [
        sys.executable,
        *("-m", "rollout", "lab", "up", "--nodes", str(hosts), "--dir", str(folder)),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as serving:
        try:
            assert serving.stdout is not None
            assert any(line.startswith("export") for line in serving.stdout), (
                "the lab did not start"
            )
            yield Site(folder)
        finally:
            serving.terminate()


def hosts_of(site: Site) -> dict[str, Host]:
    """The lab's hosts, by name."""
    inventory = read_inventory(site.inventory, AnsibleSettings(), SshDefaults(), by_ansible=False)
    return {host.name: host for host in inventory.hosts}


def asked(hosts: Mapping[str, Host], executor: HostExecutor) -> dict[str, HostObservation]:
    return poll(
        hosts,
        executor,
        probe=USUAL_PROBE,
        timeout=60,
        concurrency=CONCURRENCY,
        on_answer=lambda: None,
    )


def our_poll(site: Site) -> Cost:
    """Ask every host, in this process and those that it starts."""
    hosts = hosts_of(site)
    shell = ParamikoShell(known_hosts=site.known_hosts)
    asked(dict(list(hosts.items())[:1]), shell)  # imports and key loading
    cpu = time.process_time() + children_cpu()
    wall = time.monotonic()
    found = asked(hosts, shell)
    cost = Cost(len(hosts), time.process_time() + children_cpu() - cpu, time.monotonic() - wall)
    kinds = Counter(type(answer).__name__ for answer in found.values())
    assert kinds == {HostFacts.__name__: len(hosts)}, kinds
    return cost


def executor_poll(site: Site, count: int) -> Cost:
    """Ask the first hosts by the Ansible executor; what it costs this process is counted as well."""
    settings = AnsibleSettings(inventory=site.inventory, known_hosts=site.known_hosts)
    hosts = dict(list(hosts_of(site).items())[:count])
    executor = AnsibleExecutor(settings)
    before = time.process_time() + children_cpu()
    wall = time.monotonic()
    found = asked(hosts, executor)
    cost = Cost(count, time.process_time() + children_cpu() - before, time.monotonic() - wall)
    kinds = Counter(type(answer).__name__ for answer in found.values())
    assert kinds == {HostFacts.__name__: count}, kinds
    return cost


def ansible_poll(ansible: Path, site: Site, count: int) -> Cost:
    """Ask the first hosts by `ansible -m raw`, with as many forks as we have connections."""
    command = (
        ansible,
        *("-i", site.inventory, f"all[0:{count - 1}]", "-m", "raw", "-a", PROBE_COMMAND),
    )
    environment = os.environ | {
        "ANSIBLE_SSH_ARGS": f"-o ControlMaster=no -o UserKnownHostsFile={site.known_hosts}",
        "ANSIBLE_HOME": str(site.folder / "ansible"),
        "ANSIBLE_FORKS": str(CONCURRENCY),
    }
    before = children_cpu()
    wall = time.monotonic()
    done = subprocess.run(
        [str(word) for word in command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    cost = Cost(count, children_cpu() - before, time.monotonic() - wall)
    answers = done.stdout.count("UPDATE_STATUS_UPDATED_NEED_REBOOT")
    assert answers == count, (
        f"{answers} of {count} answered: {done.stdout[-500:]}{done.stderr[-500:]}"
    )
    return cost


def children_cpu() -> float:
    """CPU seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def find_ansible() -> Path | None:
    """The program beside this interpreter; None where Ansible, or the ssh that it needs, is
    missing.
    """
    found = Path(sys.executable).with_name("ansible")
    return found if found.exists() and shutil.which("ssh") else None


def told(name: str, cost: Cost, ours: Cost) -> str:
    """A row; the ratios are of what one host costs."""
    cpu = cost.per_host / ours.per_host
    wall = (cost.wall / cost.hosts) / (ours.wall / ours.hosts)
    figures = f"{cost.hosts:>6} hosts  {cost.per_host:>8.2f} ms CPU/host  {cost.wall:>7.2f} s wall"
    return f"{name:<18}{figures}  {cpu:>6.1f} x CPU  {wall:>6.1f} x wall"


def compare(site: Site, ansible_hosts: int) -> None:
    """Poll all ways and print the figures, each as a ratio to the first."""
    ours = min((our_poll(site) for _ in range(3)), key=lambda cost: cost.cpu)
    print(told("rollout", ours, ours))
    ansible = find_ansible()
    count = min(ansible_hosts, ours.hosts)
    if ansible is None or not count:
        print("ansible: left out: it is not installed, or not asked for")
        return
    print(told("rollout, ansible", executor_poll(site, count), ours), flush=True)
    print(told("ansible -m raw", ansible_poll(ansible, site, count), ours))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=500)
    parser.add_argument("--ansible-hosts", type=int, default=500)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, lab(Path(folder), options.hosts) as site:
        compare(site, options.ansible_hosts)


if __name__ == "__main__":
    main(sys.argv[1:])
