"""The dynamic inventory, as the real Ansible reads it."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rollout.errors import ExitCode
from rollout.lab.hosts.faults import BusFault, HostFaults
from rollout.lab.lab import Lab
from tests.cli.conftest import Command
from tests.conftest import StartLab
from tests.ended import Ended
from tests.state import write

# The folder, as Ansible reads all that is in it.
INVENTORY = Path(__file__).parents[2] / "inventory"


ANSIBLE = Path(sys.executable).parent / "ansible"


needs_ansible = pytest.mark.skipif(not ANSIBLE.exists(), reason="ansible-core is not installed")


def ansible(
    lab: Lab, home: Path, program: str, *arguments: str, variables: Mapping[str, str] | None = None
) -> str:
    """What one of Ansible's programs prints, in an empty home, with our folder as its inventory."""
    path = os.pathsep.join((str(ANSIBLE.parent), os.environ["PATH"]))
    environment = {
        "PATH": path,
        "HOME": str(home),
        "LC_ALL": "C.UTF-8",
        **(variables or lab.environment),
    }
    # A shared connection's socket would lie in the test's home, whose path may be too long for one.
    environment["ANSIBLE_SSH_ARGS"] = "-o ControlMaster=no"
    command = [str(ANSIBLE.with_name(program)), "-i", str(INVENTORY), *arguments]
    ended = subprocess.run(
        command, env=environment, cwd=home, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "WARNING" not in ended.stderr
    return ended.stdout


@needs_ansible
def test_ansible_inventory_reads_groups_and_variables_and_reaches_the_hosts(
    mixed: Lab, home: Path
) -> None:
    read: dict[str, Any] = json.loads(ansible(mixed, home, "ansible-inventory", "--list"))
    assert set(read["nodes"]["hosts"]) == set(mixed.machines)
    assert read["role_control_plane"]["hosts"] == ["cp-1", "cp-2", "cp-3"]
    assert read["needs_no_reboot"]["hosts"] == ["worker-2", "worker-3"]
    assert "worker-8" in read["needs_reboot"]["hosts"]
    assert read["cordoned"]["hosts"] == ["worker-7"]
    assert set(read["os_version_4081_2_0"]["hosts"]) == set(mixed.machines)
    assert "worker-1" in read["zone_eu_1a"]["hosts"]
    paused = read["_meta"]["hostvars"]["worker-4"]
    assert paused["rollout_annotations"]["paused"] in ("true", {"__ansible_unsafe": "true"})
    assert paused["ansible_user"] == "core"
    shown = ansible(
        mixed,
        home,
        *("ansible", "needs_no_reboot", "-m", "raw", "-a", "cat /proc/sys/kernel/random/boot_id"),
    )
    boots = {name: machine.boot_id in shown for name, machine in mixed.machines.items()}
    assert boots == {name: name in ("worker-2", "worker-3") for name in mixed.machines}


@needs_ansible
def test_what_a_node_says_is_no_template(start_lab: StartLab, home: Path) -> None:
    lab = start_lab("idle", nodes=4, speed=1)
    lure = "{{ 6 * 7 }}"
    write(lab, "worker-1", "annotations", **{"node-rollout.dev/last-result": lure})
    shown = ansible(
        lab, home, "ansible", "worker-1", "-m", "debug", "-a", "var=rollout_annotations"
    )
    assert lure in shown
    assert "42" not in shown


def test_a_host_that_does_not_answer_is_listed_without_its_answers(
    start_lab: StartLab, command: Command
) -> None:
    lab = start_lab("unreachable", nodes=7)
    document = json.loads(command("inventory", lab=lab).stdout)
    assert "worker-2" in document["nodes"]["hosts"]
    assert "worker-2" not in document["needs_reboot"]["hosts"]
    assert "rollout_needs_reboot" not in document["_meta"]["hostvars"]["worker-2"]


RELAY = """
import os, selectors, socket, sys
there = socket.create_connection((sys.argv[1], int(sys.argv[2])))
open(sys.argv[3], "a").write("x")
waiting = selectors.DefaultSelector()
waiting.register(0, selectors.EVENT_READ, lambda: (os.read(0, 65536), there.sendall))
waiting.register(there, selectors.EVENT_READ, lambda: (there.recv(65536), lambda data: os.write(1, data)))
while True:
    for key, _ in waiting.select():
        data, write = key.data()
        if not data:
            sys.exit()
        write(data)
"""


@needs_ansible
def test_the_way_that_an_ssh_configuration_leads_is_gone_by_ansible_too(
    mixed: Lab, home: Path
) -> None:
    """It is written for a name, and Ansible connects to an address."""
    machine = mixed.machines["worker-1"]
    port = mixed.environment["ROLLOUT_SSH_PORT"]
    relay = home / "relay.py"
    used = home / "used"
    config = home / "ssh config"
    relay.write_text(RELAY)
    config.write_text(
        f"Host worker-1\n  HostName {machine.address}\n  HostKeyAlias [{machine.address}]:{port}\n "
        f" Port {port}\n  IdentityFile {mixed.key}\n  UserKnownHostsFile {mixed.known_hosts}\n "
        f" ProxyCommand {sys.executable} {relay} %h %p {used}\n"
    )
    variables = {
        "KUBECONFIG": str(mixed.kubeconfig),
        "ROLLOUT_SSH_CONFIG": str(config),
        "ROLLOUT_NODE": "worker-1",
    }
    question = ("-m", "raw", "-a", "cat /proc/sys/kernel/random/boot_id")
    shown = ansible(mixed, home, "ansible", "worker-1", *question, variables=variables)
    assert machine.boot_id in shown
    # once by the inventory, and once by Ansible
    assert len(used.read_text()) == 2


# `rollout check-update` on hosts that look, are at it, have one staged, refuse, and cannot be
# asked.


def hosts_of(ended: Ended) -> dict[str, dict[str, Any]]:
    assert ended.stdout, ended.stderr
    return {host["node"]: host for host in json.loads(ended.stdout)["hosts"]}


def summary(ended: Ended) -> dict[str, list[str]]:
    by: dict[str, list[str]] = {}
    for node, host in sorted(hosts_of(ended).items()):
        by.setdefault(host["outcome"], []).append(node)
    return by


@pytest.mark.exhaustive
def test_hosts_are_asked_once_and_not_waited_for(start_lab: StartLab, command: Command) -> None:
    lab = start_lab("updates", nodes=11, speed=1)
    ended = command("check-update", "-o", "json", lab=lab).ends(ExitCode.PARTIAL)
    outcomes = summary(ended)
    assert outcomes.pop("refused") == ["worker-6"]
    assert outcomes.pop("staged") == ["worker-7"]
    assert len(outcomes.pop("asked")) == 9
    assert outcomes == {}
    by = hosts_of(ended)
    assert by["worker-7"]["version"] == "4152.2.0"
    assert "asks for a password" in by["worker-6"]["message"]
    again = command("check-update", "-o", "json", "--node", "worker-1", lab=lab).ends(ExitCode.OK)
    assert summary(again) == {"asked": ["worker-1"]}
    assert "already checking" in hosts_of(again)["worker-1"]["message"]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "fault", [HostFaults(missing=("update_engine_client",)), HostFaults(bus=BusFault.DENIED)]
)
def test_other_ways_to_ask(fault: HostFaults, start_lab: StartLab, command: Command) -> None:
    """Over the bus where there is no client, as root where the bus denies the user."""
    lab = start_lab("updates", nodes=11)
    lab.call(lambda: lab.machines["worker-1"].inflict(fault))
    ended = command("check-update", "--node", "worker-1", "-o", "json", lab=lab)
    assert summary(ended) == {"asked": ["worker-1"]}
    end = time.monotonic() + 60
    while (
        command("plan", "--node", "worker-1", "--detailed-exitcode", lab=lab).code
        != ExitCode.CHANGES
    ):
        assert time.monotonic() < end
    assert set(lab.scoreboard().reboots.values()) == {0}
