"""What it costs to follow an OpenSSH configuration for many hosts: `ssh -G` is asked for each.

Run: python tests/benchmarks/ssh_config.py [HOSTS]
"""

import argparse
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from rollout.adapters.ssh.config import with_ssh_config
from rollout.model.host import Host

HOSTS = 1000
LEADS = "Host worker-1?\n  HostName 192.0.2.1\nHost 10.*\n  User admin\n  IdentityFile /keys/nodes\n"
LOCAL_USER = "Host bastion\n  User {user}\nHost 10.*\n  Port 2222\n"
SAYS_NOTHING = "Host *\n  SendEnv LANG LC_*\n  HashKnownHosts yes\n  GSSAPIAuthentication yes\n"


def hosts(number: int) -> Mapping[str, Host]:
    """Hosts of which neither user nor port is told."""
    return {f"worker-{i}": Host(f"worker-{i}", f"10.0.{i // 250}.{i % 250}", 0, "") for i in range(number)}


def measure(name: str, text: str, number: int) -> None:
    """Print wall time, and CPU time of this process and of those that it started."""
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write(text)
        file.flush()
        asked, before, began = hosts(number), os.times(), time.perf_counter()
        with_ssh_config(asked, Path(file.name))
        wall, after = time.perf_counter() - began, os.times()
    own = after.user + after.system - before.user - before.system
    others = after.children_user + after.children_system - before.children_user - before.children_system
    print(
        f"{name:34} {wall:6.2f} s  CPU {own:5.2f} s here, {others:5.2f} s in ssh  {1000 * wall / number:5.2f} ms a host"
    )


def main() -> None:
    """Each way once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("hosts", type=int, nargs="?", default=HOSTS)
    number = parser.parse_args().hosts
    print(f"{number} hosts, {os.cpu_count()} cores")
    measure("nothing about connections", SAYS_NOTHING, number)
    measure("Host blocks, ssh -G", LEADS, number)
    measure("the local user is set somewhere", LOCAL_USER.format(user=os.environ.get("USER", "root")), number)


if __name__ == "__main__":
    main()
