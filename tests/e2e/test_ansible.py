"""The other executor over machines that really reboot, and the playbooks on their own."""

from pathlib import Path

import pytest
import yaml

from tests.e2e.cluster import NAMES, Cluster
from tests.e2e.conftest import PLAYBOOKS, Play, Rollout
from tests.e2e.machines import STAGED_VERSION, Machines

ANSIBLE = ("--executor", "ansible", "-o", "json")


def test_six_machines(rollout: Rollout, cluster: Cluster, machines: Machines) -> None:
    """Two at a time, each wave one run of Ansible; the example playbook looks at every drained
    machine.
    """
    flags = (
        *("--max-unavailable", "2", "--set", f"reboot.pre-playbook={PLAYBOOKS / 'pre_reboot.yml'}"),
    )
    ended = rollout("apply", "--yes", *ANSIBLE, *flags).ends(0)
    assert sorted(ended.summary["succeeded"]) == sorted(NAMES)
    assert {machine.os_version for machine in machines} == {STAGED_VERSION}
    seen = cluster.scoreboard()
    assert seen.clean
    assert seen.reboots == dict.fromkeys(NAMES, 1)
    assert seen.most_unavailable <= 2
    assert not seen.rebooted_undrained
    assert ("drained", "pre-reboot playbook: Show the planned update") in ended.steps("worker-1")


def test_host_key_that_changed_during_the_reboot(
    rollout: Rollout, cluster: Cluster, machines: Machines
) -> None:
    before = machines["worker-4"].host_key
    machines["worker-4"].write("next-boot-has-a-new-host-key")
    ended = rollout("apply", "--yes", "--node", "worker-4", *ANSIBLE).ends(4)
    (failed,) = ended.summary["failed"]
    assert machines["worker-4"].host_key != before
    assert failed["outcome"] == "not-back"
    assert "its host key has changed" in failed["message"]
    assert cluster.scoreboard().cordons_left == ("worker-4",)


@pytest.fixture
def inventory(machines: Machines, known_hosts: Path, tmp_path: Path) -> Path:
    """Two machines that are reached at their inner addresses, through a third."""
    jump = (
        f"-o ProxyCommand='ssh -i {machines.key} -o UserKnownHostsFile={known_hosts}"
        f" -W %h:%p core@{machines['control-1'].address}'"
    )
    hosts = {
        name: {"ansible_host": machines[name].inner_address, "ansible_ssh_common_args": jump}
        for name in ("worker-2", "worker-3")
    }
    path = tmp_path / "hosts.yaml"
    path.write_text(yaml.safe_dump({"all": {"hosts": hosts, "vars": {"ansible_user": "core"}}}))
    return path


def test_through_a_jump_host(
    rollout: Rollout, cluster: Cluster, machines: Machines, inventory: Path
) -> None:
    """As an inventory says it, which rollout's own SSH could not follow."""
    nodes = ("--node", "worker-2", "--node", "worker-3")
    rollout("apply", "--yes", *ANSIBLE, "-i", str(inventory), *nodes).ends(0)
    assert {machines[name].os_version for name in ("worker-2", "worker-3")} == {STAGED_VERSION}
    assert cluster.scoreboard().clean


def test_playbooks_on_their_own(machines: Machines, play: Play) -> None:
    machine = machines["worker-5"]
    boot = machine.booted
    assert "CURRENT_OP=UPDATE_STATUS_UPDATED_NEED_REBOOT" in play("worker-5", "probe.yml")
    assert "changed=0" in play("worker-5", "prepare.yml", "--check")
    play("worker-5", "reboot.yml", "-e", "rollout_retry_seconds=1")
    assert machine.booted not in ("", boot)
    assert "changed=0" in play("worker-5", "prepare.yml")
