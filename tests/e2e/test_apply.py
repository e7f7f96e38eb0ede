"""Whole rollouts over machines that really reboot."""

import json
from pathlib import Path

import pytest

from rollout.adapters.ssh.config import with_ssh_config
from rollout.adapters.ssh.shell import ParamikoShell
from rollout.errors import SshUnreachableError
from rollout.model.host import Host
from tests.e2e.cluster import NAMES, Cluster
from tests.e2e.conftest import Rollout
from tests.e2e.machines import RUNNING_VERSION, STAGED_VERSION, Machines, wait_for

JSON = ("-o", "json")


def test_six_machines(rollout: Rollout, cluster: Cluster, machines: Machines) -> None:
    boots = {machine.name: machine.booted for machine in machines}
    ended = rollout("apply", "--yes", *JSON).ends(0)
    assert sorted(ended.summary["succeeded"]) == sorted(NAMES)
    assert {machine.os_version for machine in machines} == {STAGED_VERSION}
    assert all(machine.booted not in ("", boots[machine.name]) for machine in machines)
    seen = cluster.scoreboard()
    assert seen.clean
    assert seen.reboots == dict.fromkeys(NAMES, 1)
    assert seen.most_unavailable == 1
    assert not seen.rebooted_undrained
    rollout("plan").ends(0)
    assert "4152.2.1" in rollout("status").stdout


def test_host_that_does_not_come_back(
    rollout: Rollout, cluster: Cluster, machines: Machines
) -> None:
    lost = machines["worker-1"]
    lost.stay_off_after_shutdown()
    workers = (
        *("-l", "!node-role.kubernetes.io/control-plane"),
        *("--set", "drain.prefer-no-schedule-taint=false"),
    )
    ended = rollout("apply", "--yes", "--reboot-timeout", "8s", *workers, *JSON).ends(4)
    assert [failed["node"] for failed in ended.summary["failed"]] == ["worker-1"]
    assert "did not come back" in ended.summary["failed"][0]["message"]
    assert len(ended.summary["not_started"]) == 4
    assert cluster.scoreboard().cordons_left == ("worker-1",)
    lost.switch_on()
    wait_for(lambda: bool(lost.booted), "the machine after all", 60)


def test_rollback(rollout: Rollout, cluster: Cluster, machines: Machines) -> None:
    machines["worker-3"].write("next-boot-fails")
    ended = rollout("apply", "--yes", "--node", "worker-3", *JSON).ends(4)
    assert "did not take" in ended.summary["failed"][0]["message"]
    # It works as before: it is given back.
    assert not cluster.scoreboard().cordons_left


def test_a_machine_goes_back_to_its_other_partition(
    rollout: Rollout, cluster: Cluster, machines: Machines
) -> None:
    machine = machines["worker-3"]
    other = machines["worker-2"]
    nodes = ("--node", "worker-3", "--node", "worker-2")
    rollout("apply", "--yes", "--node", "worker-3", *JSON).ends(0)
    assert machine.os_version == STAGED_VERSION
    updated = machine.booted
    ended = rollout("rollback", STAGED_VERSION, "--yes", *nodes, *JSON).ends(0)
    assert ended.outcomes == {"worker-3": "succeeded"}
    assert machine.os_version == RUNNING_VERSION
    assert machine.booted not in ("", updated)
    assert other.os_version == RUNNING_VERSION
    # What was mounted to be read is gone with its command.
    assert not machine.has("/mnt/lib")
    assert not cluster.scoreboard().cordons_left
    # From the partition that was left, it goes the same way; a new host has nothing there.
    again = rollout("rollback", RUNNING_VERSION, *nodes, "--yes", *JSON).ends(4)
    reasons = {left["node"]: left["message"] for left in again.plan["excluded"]}
    assert reasons == {
        "worker-2": "/dev/vda4 is being updated, or holds an update that has not booted yet",
        "worker-3": f"its other OS image is {STAGED_VERSION}, which is newer than {RUNNING_VERSION}",
    }


PATIENT = ("-o", "json", "--ready-timeout", "30s")


MARKER = "/run/reboot-required"


def test_a_marker_file_goes_with_the_boot(
    rollout: Rollout, cluster: Cluster, machines: Machines
) -> None:
    machine = machines["worker-1"]
    machine.clear()
    flags = (
        *("--set", "detect.sources=update-engine,reboot-required,rpm-ostree", "--node", "worker-1"),
    )
    assert (
        json.loads(rollout("status", "-o", "json", *flags).stdout)["nodes"][0]["needs_reboot"]
        is False
    )
    machine.put(MARKER, "*** System restart required ***\n")
    machine.put(f"{MARKER}.pkgs", "linux-image-amd64\nlibc6\nlibc6\n")
    ended = rollout("apply", "--yes", *flags, *PATIENT).ends(0)
    (planned,) = ended.plan["waves"][0]["nodes"]
    assert planned["detected_by"] == ["reboot-required"]
    assert planned["detail"] == "/run/reboot-required for linux-image-amd64, libc6"
    assert not machine.has(MARKER)
    assert cluster.scoreboard().clean
    rollout("plan", *flags, "--detailed-exitcode").ends(0)


# Machines that are reached through another machine only: there is no other way to their inner
# addresses.


@pytest.fixture
def config(machines: Machines, known_hosts: Path, tmp_path: Path) -> Path:
    """Each worker is reached at its inner address, through the control plane and, for one, a second
    machine.
    """
    hop = f"  User core\n  IdentityFile {machines.key}\n  UserKnownHostsFile {known_hosts}\n"
    second = machines["worker-1"]
    text = f"Host first\n  HostName {machines['control-1'].address}\n{hop}"
    text += (
        f"Host second\n  HostName {second.inner_address}\n  HostKeyAlias {second.address}\n{hop}"
    )
    for name, through in (
        ("worker-2", "first"),
        ("worker-3", "first"),
        ("worker-4", "first,second"),
    ):
        address = machines[name].address
        inner = machines[name].inner_address
        text += (
            f"Host {address}\n  HostName {inner}\n  HostKeyAlias {address}\n  ProxyJump {through}\n"
        )
    path = tmp_path / "ssh_config"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "came_from"), [("worker-2", "control-1"), ("worker-4", "worker-1")]
)
def test_chains(
    machines: Machines, known_hosts: Path, config: Path, name: str, came_from: str
) -> None:
    shell = ParamikoShell(known_hosts=known_hosts, key_file=machines.key)
    host = with_ssh_config({name: Host(name, machines[name].address)}, config)[name]
    result = shell.run(host, "echo $SSH_CONNECTION", timeout=20)
    assert result.stdout.startswith(machines[came_from].inner_address)
    with pytest.raises(SshUnreachableError):
        shell.run(Host(name, machines[name].inner_address), "true", timeout=5)


def test_rollout_through_a_jump_host(
    rollout: Rollout, cluster: Cluster, machines: Machines, config: Path
) -> None:
    nodes = ("--node", "worker-2", "--node", "worker-3")
    rollout("apply", "--yes", "-o", "json", "--ssh-config", str(config), *nodes).ends(0)
    assert {machines[name].os_version for name in ("worker-2", "worker-3")} == {STAGED_VERSION}
    assert cluster.scoreboard().clean
