"""What Ansible alone can do: the user's inventory with its ways, playbooks around reboots, and
nothing left of it.
"""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from rollout.lab.hosts.faults import HostFaults, RebootFault
from rollout.lab.lab import Lab
from tests.apply.conftest import ONE_LOOK
from tests.cli.test_inventory import RELAY
from tests.conftest import StartLab
from tests.ended import Ended
from tests.executors.conftest import Program
from tests.state import write

PROGRAMS = Path(sys.executable).parent
APPLY = (
    *("apply", "--yes", "-o", "json", "--control-plane", "exclude", "--disable-eviction"),
    "--force",
)


@pytest.fixture
def ansible(tmp_path: Path) -> Program:
    home = tmp_path / "home"
    home.mkdir()
    return Program("ansible", home)


def statuses(ended: Ended) -> dict[str, str]:
    assert ended.code == 0, ended.stderr
    return {
        node["node"]: node["error"] or node["operation"]
        for node in json.loads(ended.stdout)["nodes"]
    }


def hosts_of(lab: Lab) -> dict[str, dict[str, object]]:
    groups = yaml.safe_load(lab.inventory.read_text())["all"]["children"]
    return {
        name: variables for group in groups.values() for name, variables in group["hosts"].items()
    }


def test_the_users_own_inventory_with_vault_jump_and_configuration(
    ansible: Program, with_faults: StartLab
) -> None:
    """The key is in a vault, one host is reached through another program; known hosts are the
    configuration's.
    """
    lab = with_faults(3)
    (ansible.home / "password").write_text("secret\n")
    (ansible.home / "ansible.cfg").write_text(
        "[defaults]\nvault_password_file = password\nremote_user ="
        " core\n[ssh_connection]\nssh_args = -o ControlMaster=no -o"
        f" UserKnownHostsFile={lab.known_hosts}\n"
    )
    environment = {"PATH": os.environ["PATH"], "HOME": str(ansible.home), "LC_ALL": "C.UTF-8"}
    sealed = subprocess.run(
        [
            str(PROGRAMS / "ansible-vault"),
            "encrypt_string",
            "--name",
            "ansible_ssh_private_key_file",
            str(lab.key),
        ],
        env=environment,
        cwd=ansible.home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    folder = ansible.home / "hosts"
    (folder / "group_vars").mkdir(parents=True)
    (folder / "group_vars" / "all.yml").write_text(sealed)
    hosts = hosts_of(lab)
    relay = ansible.home / "relay.py"
    relay.write_text(RELAY)
    hosts["worker-1"]["ansible_ssh_common_args"] = (
        f"-o ProxyCommand='{sys.executable} {relay} %h %p {ansible.home}/relayed'"
    )
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    variables = {"ROLLOUT_SSH_KEY": "", "ROLLOUT_KNOWN_HOSTS": "", "ROLLOUT_SSH_PORT": ""}
    ended = ansible.run(lab, "status", "-o", "json", "-i", "hosts", **variables)
    assert set(statuses(ended).values()) == {"UPDATE_STATUS_UPDATED_NEED_REBOOT"}
    assert (ansible.home / "relayed").read_text() == "x"


def test_a_rollback_and_its_undo(ansible: Program, with_faults: StartLab) -> None:
    """Hosts with partitions, an image and a deployment, and one that does not reboot."""
    bad, before = "4152.2.0", "4081.2.0"
    stays = {"worker-2": HostFaults(reboot=RebootFault.IGNORED)}
    lab = with_faults(12, stays, scenario_name="bad-update")
    nodes = ("worker-1", "worker-2", "worker-4", "worker-5")
    only = [word for name in nodes for word in ("--node", name)]
    flags = ("--max-unavailable", "4", "--max-failures", "9", "--reboot-timeout", "4s", *ONE_LOOK)
    ended = ansible.run(lab, "rollback", bad, "--yes", "-o", "json", *only, *flags).ends(4)
    assert ended.outcomes == {
        **dict.fromkeys(nodes, "succeeded"),
        "worker-2": "not-rebooted",
    }
    machines = {name: lab.machines[name] for name in nodes}
    assert {name: machine.os_version for name, machine in machines.items()} == {
        **dict.fromkeys(nodes, before),
        "worker-2": bad,
    }
    assert not machines["worker-2"].boots_other
    chosen = machines["worker-2"].run_as_root
    assert [line for line in chosen if line.startswith("cgpt prioritize")] == [
        "cgpt prioritize /dev/vda4",
        "cgpt prioritize /dev/vda3",
    ]
    assert lab.scoreboard().cordons_left == ()


AROUND = """
- name: Around
  hosts: all
  gather_facts: false
  tasks:
    - name: Know the node
      ansible.builtin.assert:
        that:
          - inventory_hostname == rollout_node
          - rollout_roles == (['edge'] if rollout_node == 'worker-1' else [])
          - rollout_zone is match('eu-1[abc]')
          - rollout_labels['kubernetes.io/hostname'] == rollout_node
          - not rollout_control_plane
          - rollout_running_version == ('4081.2.0' if rollout_occasion == 'pre-reboot' else '4152.2.0')
          - rollout_staged_version == '4152.2.0'
          - rollout_run is match('[0-9a-f]+$')
    - name: Look at the node itself
      ansible.builtin.raw: cat /proc/sys/kernel/random/boot_id
      register: boot
      failed_when: boot.stdout | trim != rollout_boot_id
    - name: Ask the disks
      ansible.builtin.fail:
        msg: the disks are full
      when: rollout_node == 'FAILING'
"""


@pytest.mark.exhaustive
def test_playbooks_around_each_reboot(ansible: Program, with_faults: StartLab) -> None:
    lab = with_faults(9)
    write(lab, "worker-1", "labels", **{"node-role.kubernetes.io/edge": ""})
    (ansible.home / "before.yml").write_text(AROUND.replace("FAILING", "worker-2"))
    (ansible.home / "after.yml").write_text(AROUND.replace("FAILING", "worker-3"))
    flags = (
        *("--set", "reboot.pre-playbook=before.yml", "--set", "reboot.post-playbook=after.yml"),
        *("--max-unavailable", "3"),
    )
    ended = ansible.run(
        lab, *APPLY, *flags, "--node", "worker-1,worker-2,worker-3", "--max-failures", "9"
    )
    assert ended.outcomes == {
        "worker-1": "succeeded",
        "worker-2": "check-failed",
        "worker-3": "check-failed",
    }, ended
    for node, occasion in (("worker-2", "pre-reboot"), ("worker-3", "post-reboot")):
        said = f"the {occasion} playbook failed: task 'Ask the disks': the disks are full"
        assert ended.failures[node]["message"] == said
    score = lab.scoreboard()
    assert [score.reboots[f"worker-{number}"] for number in (1, 2, 3)] == [1, 0, 1]
    assert score.cordons_left == ("worker-3",)
    assert ("drained", "pre-reboot playbook: Look at the node itself") in ended.steps("worker-1")
    assert ("ready", "post-reboot playbook: Look at the node itself") in ended.steps("worker-1")


def test_an_installation_without_ansible_says_how_to_mend_it(
    ansible: Program, with_faults: StartLab
) -> None:
    lab = with_faults(3)
    hidden = ansible.home / "hidden"
    hidden.mkdir()
    (hidden / "ansible_runner.py").write_text("raise ModuleNotFoundError('no ansible_runner')\n")
    ended = ansible.run(lab, "status", PYTHONPATH=str(hidden)).ends(1)
    assert "--executor ansible and --inventory need Ansible" in ended.stderr
    assert "-m pip install ansible-core ansible-runner" in ended.stderr


def test_nothing_is_left_of_it_and_no_secret_is_written_down(
    ansible: Program, with_faults: StartLab
) -> None:
    lab = with_faults(3)
    folder = ansible.home / "tmp"
    folder.mkdir()
    process = ansible.start(
        lab, "status", TMPDIR=str(folder), ROLLOUT_SSH_KEY_PASSPHRASE="hunter-2"
    )
    seen = set[str]()
    while process.poll() is None:
        for path in (
            Path(place) / name for place, _folders, files in os.walk(folder) for name in files
        ):
            with suppress(OSError):
                assert "hunter-2" not in path.read_text(errors="replace")
                seen.add(path.name)
        time.sleep(0.02)
    process.communicate()
    assert process.returncode == 0
    assert "targets.yaml" in seen
    assert list(folder.iterdir()) == []


def test_rollout_may_be_process_1(ansible: Program, with_faults: StartLab) -> None:
    """As in a container: whoever sees it as the parent must not take its own starter for dead."""
    lab = with_faults(3)
    unshare = ("unshare", "--map-root-user", "--pid", "--fork", "--mount-proc")
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("takes a process namespace of its own")
    command = [
        *unshare,
        sys.executable,
        *("-m", "rollout", "status", "-o", "json", "--executor", "ansible"),
    ]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(ansible.home),
        "LC_ALL": "C.UTF-8",
        **lab.environment,
    }
    ended = subprocess.run(
        command,
        env=environment,
        cwd=ansible.home,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    operations = statuses(Ended(ended.returncode, ended.stdout, ended.stderr))
    assert set(operations.values()) == {"UPDATE_STATUS_UPDATED_NEED_REBOOT"}
