"""Six machines for the whole session, and for each test a cluster of them, with an update staged on
each.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rollout.adapters.ssh.shell import ParamikoShell
from rollout.model.host import Host
from tests.e2e.cluster import NAMES, Cluster, cluster_of
from tests.e2e.image import USERS, shared_root
from tests.e2e.machines import Machines, free_place, mark_tests, missing, running_machines
from tests.ended import Ended, end_of, start


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_tests(items, Path(__file__).parent, reason=missing(), timeout=400)


Rollout = Callable[..., Ended]
Run = Callable[..., str]
Play = Callable[..., str]
PLAYBOOKS = Path(__file__).parents[2] / "playbooks"


@pytest.fixture(scope="session")
def session_machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    directory = tmp_path_factory.mktemp("machines")
    with (
        free_place() as place,
        running_machines(NAMES, place, shared_root(), USERS, directory) as machines,
    ):
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
    path.write_text(
        "".join(f"{each.address},{each.inner_address} {each.host_key}\n" for each in machines)
    )
    return path


@pytest.fixture
def rollout(cluster: Cluster, machines: Machines, known_hosts: Path, tmp_path: Path) -> Rollout:
    """Run the real program to its end, as another machine would: an empty home."""

    def run(*arguments: str, ssh_user: str = "core") -> Ended:
        environment = {
            "KUBECONFIG": str(cluster.kubeconfig),
            "ROLLOUT_SSH_USER": ssh_user,
            "ROLLOUT_SSH_KEY": str(machines.key),
            "ROLLOUT_KNOWN_HOSTS": str(known_hosts),
        }
        return end_of(start(tmp_path, environment, arguments), seconds=200)

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


@pytest.fixture
def play(machines: Machines, known_hosts: Path, tmp_path: Path) -> Play:
    """Play one of the playbooks on a machine, without rollout."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_PRIVATE_KEY_FILE": str(machines.key),
        "ANSIBLE_SSH_ARGS": f"-o ControlMaster=no -o UserKnownHostsFile={known_hosts}",
    }

    def run(name: str, playbook: str, *arguments: str) -> str:
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        command = [
            program,
            *("-i", f"{machines[name].address},", "-u", "core", str(PLAYBOOKS / playbook)),
            *arguments,
        ]
        ended = subprocess.run(
            command,
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    return run
