"""Six machines for the whole session, and for each test a cluster of them, with an update staged on each."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rollout.adapters.ssh.shell import ParamikoShell
from rollout.model.host import Host
from tests.e2e.cluster import NAMES, Cluster, cluster_of
from tests.e2e.image import USERS, shared_root
from tests.e2e.machines import Machines, free_place, missing, running_machines


def _why_not() -> str:
    if not sys.platform.startswith("linux"):
        return "real machines are Linux containers"
    if os.geteuid() != 0:
        return "real machines need root"
    return missing()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is here, and let the making of the machines take its time."""
    here, reason = Path(__file__).parent, _why_not()
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(400))
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def summary(self) -> dict[str, Any]:
        """The last of them, which is the summary."""
        assert self.stdout, self.stderr
        return self.lines[-1]

    def steps(self, node: str) -> str:
        """What a node's steps said."""
        return "\n".join(line["detail"] for line in self.lines if line["type"] == "step" and line["node"] == node)


Rollout = Callable[..., Ended]
Run = Callable[..., str]


@pytest.fixture(scope="session")
def session_machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    directory = tmp_path_factory.mktemp("machines")
    with free_place() as place, running_machines(NAMES, place, shared_root(), USERS, directory) as machines:
        yield machines


@pytest.fixture
def machines(session_machines: Machines) -> Machines:
    """All up, on the old version, with an update staged."""
    for machine in session_machines:
        machine.restore()
    return session_machines


@pytest.fixture
def cluster(machines: Machines, tmp_path: Path) -> Iterator[Cluster]:
    with cluster_of(machines, tmp_path) as cluster:
        yield cluster


@pytest.fixture
def known_hosts(machines: Machines, tmp_path: Path) -> Path:
    """The machines' host keys, under both of their addresses."""
    path = tmp_path / "known_hosts"
    path.write_text("".join(f"{each.address},{each.inner_address} {each.host_key}\n" for each in machines))
    return path


@pytest.fixture
def rollout(cluster: Cluster, machines: Machines, known_hosts: Path, tmp_path: Path) -> Rollout:
    """Run the real program to its end, as another machine would: an empty home."""

    def run(*arguments: str, ssh_user: str = "core") -> Ended:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "KUBECONFIG": str(cluster.kubeconfig),
            "ROLLOUT_SSH_USER": ssh_user,
            "ROLLOUT_SSH_KEY": str(machines.key),
            "ROLLOUT_KNOWN_HOSTS": str(known_hosts),
        }
        ended = subprocess.run(
            [sys.executable, "-m", "rollout", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert "Traceback" not in ended.stderr, ended.stderr
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    return run


@pytest.fixture
def shell(machines: Machines, known_hosts: Path) -> ParamikoShell:
    return ParamikoShell(known_hosts=known_hosts, key_file=machines.key)


@pytest.fixture
def on(shell: ParamikoShell, machines: Machines) -> Run:
    """Run a command on a machine, as a user who may."""

    def run(name: str, command: str) -> str:
        result = shell.run(Host(name, machines[name].address, user="ops"), command, timeout=20)
        assert result.exit_status == 0, result
        return result.stdout

    return run
