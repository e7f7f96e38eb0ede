"""What real sudo and the real bus policy allow: each way of being denied, over a real sshd."""

import json

import pytest

from rollout.adapters.ssh import ParamikoShell
from rollout.gather.polling import observe
from rollout.gather.probe_command import PROBE_COMMAND, REBOOT_COMMAND
from rollout.model.host import Host, HostFacts, UpdateOperation
from tests.e2e.conftest import Rollout
from tests.e2e.machines import RUNNING_VERSION, STAGED_VERSION, Machines, wait_for


def facts(machines: Machines, known_hosts: object, user: str) -> HostFacts:
    shell = ParamikoShell(known_hosts=known_hosts, key_file=machines.key)  # type: ignore[arg-type]
    found = observe(Host("worker-1", machines["worker-1"].address, user=user), shell)
    assert isinstance(found, HostFacts), found
    return found


@pytest.mark.parametrize("user", ["core", "ops"])
def test_who_may_see_and_reboot(machines: Machines, known_hosts: object, user: str) -> None:
    """`core` is answered by the bus, any other user through sudo."""
    found = facts(machines, known_hosts, user)
    assert found.update.operation is UpdateOperation.NEED_REBOOT
    assert found.update.new_version == STAGED_VERSION
    assert found.update.new_size == 465_362_944
    assert (found.running_version, found.group, found.os_id) == (RUNNING_VERSION, "stable", "flatcar")
    assert found.boot_id == machines["worker-1"].booted
    assert found.machine_id == machines["worker-1"].machine_id
    assert found.may_reboot
    assert not found.locksmithd_active


@pytest.mark.parametrize(
    ("user", "cause"), [("careful", "a password is required"), ("guest", "a password is required")]
)
def test_who_may_not(machines: Machines, known_hosts: object, user: str, cause: str) -> None:
    found = facts(machines, known_hosts, user)
    assert found.update.operation is UpdateOperation.UNKNOWN
    assert "its bus policy allows only root and user core" in found.update.message
    assert not found.may_reboot
    assert cause in found.reboot_refusal


def test_sections_hold_what_the_bus_said(machines: Machines, known_hosts: object) -> None:
    shell = ParamikoShell(known_hosts=known_hosts, key_file=machines.key)  # type: ignore[arg-type]
    denied = shell.run(Host("w", machines["worker-1"].address, user="ops"), PROBE_COMMAND, timeout=30)
    assert "CURRENT_OP=(null)\nNEW_VERSION=(null)" in denied.stdout
    assert f'xdssx 1700000000 0 "UPDATE_STATUS_UPDATED_NEED_REBOOT" "{STAGED_VERSION}" 465362944' in denied.stdout


@pytest.mark.parametrize("user", ["careful", "guest"])
def test_hosts_without_rights_are_left_out(rollout: Rollout, user: str) -> None:
    ended = rollout("plan", "-o", "json", ssh_user=user)
    document = json.loads(ended.stdout)
    assert not document["waves"]
    assert len(document["excluded"]) == 6
    assert {each["reason"] for each in document["excluded"]} <= {"no-sudo", "unknown-status", "unknown"}


def test_reboot_answers_before_the_connection_goes(machines: Machines, known_hosts: object) -> None:
    """logind takes the request over the bus and `systemctl` ends at once; sshd goes down after that."""
    machine = machines["worker-5"]
    before = machine.booted
    shell = ParamikoShell(known_hosts=known_hosts, key_file=machines.key)  # type: ignore[arg-type]
    result = shell.run(Host("worker-5", machine.address), REBOOT_COMMAND, timeout=20)
    assert result.exit_status in (0, None)
    wait_for(lambda: machine.booted not in ("", before), "the reboot", 60)
