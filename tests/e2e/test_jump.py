"""Machines that are reached through another machine only: there is no other way to their inner addresses."""

from pathlib import Path

import pytest

from rollout.adapters.ssh.config import with_ssh_config
from rollout.adapters.ssh.shell import ParamikoShell
from rollout.errors import SshUnreachableError
from rollout.model.host import Host
from tests.e2e.cluster import Cluster
from tests.e2e.conftest import Rollout
from tests.e2e.machines import STAGED_VERSION, Machines


@pytest.fixture
def config(machines: Machines, known_hosts: Path, tmp_path: Path) -> Path:
    """Each worker is reached at its inner address, through the control plane and, for one, a second machine."""
    hop = f"  User core\n  IdentityFile {machines.key}\n  UserKnownHostsFile {known_hosts}\n"
    second = machines["worker-1"]
    text = f"Host first\n  HostName {machines['control-1'].address}\n{hop}"
    text += f"Host second\n  HostName {second.inner_address}\n  HostKeyAlias {second.address}\n{hop}"
    for name, through in (("worker-2", "first"), ("worker-3", "first"), ("worker-4", "first,second")):
        address, inner = machines[name].address, machines[name].inner_address
        text += f"Host {address}\n  HostName {inner}\n  HostKeyAlias {address}\n  ProxyJump {through}\n"
    path = tmp_path / "ssh_config"
    path.write_text(text)
    return path


@pytest.mark.parametrize(("name", "came_from"), [("worker-2", "control-1"), ("worker-4", "worker-1")])
def test_chains(machines: Machines, known_hosts: Path, config: Path, name: str, came_from: str) -> None:
    shell = ParamikoShell(known_hosts=known_hosts, key_file=machines.key)
    host = with_ssh_config({name: Host(name, machines[name].address)}, config)[name]
    result = shell.run(host, "echo $SSH_CONNECTION", timeout=20)
    assert result.stdout.startswith(machines[came_from].inner_address)
    with pytest.raises(SshUnreachableError):
        shell.run(Host(name, machines[name].inner_address), "true", timeout=5)


def test_rollout_through_a_jump_host(rollout: Rollout, cluster: Cluster, machines: Machines, config: Path) -> None:
    nodes = ("--node", "worker-2", "--node", "worker-3")
    ended = rollout("apply", "--yes", "-o", "json", "--ssh-config", str(config), *nodes)
    assert ended.code == 0, ended.stderr
    assert {machines[name].os_version for name in ("worker-2", "worker-3")} == {STAGED_VERSION}
    assert cluster.scoreboard().clean
