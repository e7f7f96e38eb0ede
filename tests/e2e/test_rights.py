"""What real sudo, logind and the real bus policy allow: each way of being denied, over a real sshd."""

import json

import pytest

from rollout.adapters.ssh.shell import ParamikoShell
from rollout.gather.hosts.polling import observe
from rollout.gather.hosts.probe_command import PROBE_COMMAND, REBOOT_COMMAND, USUAL_PROBE
from rollout.model.host import Host, HostFacts, UpdateOperation
from tests.e2e.conftest import Rollout, Run
from tests.e2e.machines import RUNNING_VERSION, STAGED_VERSION, Machines, wait_for

OWN = "sudo -n systemctl --force reboot"


def facts(shell: ParamikoShell, machines: Machines, user: str, name: str = "worker-1") -> HostFacts:
    found = observe(
        Host(name, machines[name].address, user=user), shell, probe=USUAL_PROBE, timeout=45
    )
    assert isinstance(found, HostFacts), found
    return found


@pytest.mark.parametrize("user", ["core", "ops", "narrow", "both"])
def test_who_may_see_and_reboot(shell: ParamikoShell, machines: Machines, user: str) -> None:
    """`core` is answered by the bus, any other user through sudo, by the whole or by just what a
    rollout takes.
    """
    found = facts(shell, machines, user)
    assert found.update.operation is UpdateOperation.NEED_REBOOT
    assert found.update.new_version == STAGED_VERSION
    assert found.running_version == RUNNING_VERSION
    assert found.group == "stable"
    assert found.os_id == "flatcar"
    assert found.boot_id == machines["worker-1"].booted
    assert found.machine_id == machines["worker-1"].machine_id
    assert found.may_reboot
    assert not found.locksmithd_active
    assert found.inhibited_by == ""
    assert found.scheduled_shutdown == ""


@pytest.mark.parametrize(
    ("user", "cause"),
    [
        ("careful", "sudo asks for a password"),
        ("partly", "the last sudo rule for this command has no NOPASSWD"),
        ("guest", "or has no rule for the user"),
        ("stranger", "the user is not in the sudoers file"),
        ("typist", "sudo wants a terminal (requiretty)"),
    ],
)
def test_who_may_not(shell: ParamikoShell, machines: Machines, user: str, cause: str) -> None:
    found = facts(shell, machines, user)
    assert found.update.operation is UpdateOperation.UNKNOWN
    assert "its bus policy allows only root and user core" in found.update.message
    assert not found.may_reboot
    assert cause in found.reboot_refusal


def test_sections_hold_what_the_bus_said(shell: ParamikoShell, machines: Machines) -> None:
    denied = shell.run(
        Host("w", machines["worker-1"].address, user="ops"), PROBE_COMMAND, timeout=30
    )
    assert "CURRENT_OP=(null)\nNEW_VERSION=(null)" in denied.stdout
    assert (
        f'xdssx 1700000000 0 "UPDATE_STATUS_UPDATED_NEED_REBOOT" "{STAGED_VERSION}" 465362944'
        in denied.stdout
    )


def test_a_host_without_sudo(rollout: Rollout, machines: Machines) -> None:
    """`core` reads the status there, and cannot reboot."""
    sudo = machines["worker-2"].root / "usr/bin/sudo"
    away = sudo.rename(sudo.with_name("sudo.away"))
    try:
        document = json.loads(rollout("plan", "-o", "json").stdout)
        checks = json.loads(rollout("doctor", "-o", "json", "--node", "worker-2").stdout)["checks"]
    finally:
        away.rename(sudo)
    (left_out,) = document["excluded"]
    assert left_out["node"] == "worker-2"
    assert left_out["reason"] == "no-sudo"
    assert "sudo is not installed" in left_out["message"]
    (failed,) = (check for check in checks if check["verdict"] == "fail")
    assert failed["check"] == "sudo"
    assert "Install sudo" in failed["fix"]


def test_hosts_that_are_kept_up_or_shut_down_by_others(
    rollout: Rollout, machines: Machines, on: Run
) -> None:
    """A lock and a schedule of the real logind; a lock that only delays a shutdown is none of ours."""
    lock = "systemd-inhibit --what=shutdown --mode={0} --who=backup --why={1} sleep 60"
    hold = "sudo -n systemd-run --quiet --unit=hold-{0} " + lock
    on("worker-3", hold.format("block", "nightly"))
    on("worker-4", hold.format("delay", "kubelet"))
    on("worker-5", "sudo -n shutdown -r +45 maintenance")
    try:
        wait_for(lambda: "nightly" in on("worker-3", "systemd-inhibit --list"), "the lock", 10)
        wait_for(lambda: "kubelet" in on("worker-4", "systemd-inhibit --list"), "the lock", 10)
        left_out = {
            found["node"]: found
            for found in json.loads(rollout("plan", "-o", "json").stdout)["excluded"]
        }
    finally:
        on("worker-3", "sudo -n systemctl stop hold-block")
        on("worker-4", "sudo -n systemctl stop hold-delay")
        on("worker-5", "sudo -n shutdown -c")
    assert {name: found["reason"] for name, found in left_out.items()} == {
        "worker-3": "inhibited",
        "worker-5": "shutdown-pending",
    }
    assert "backup (nightly)" in left_out["worker-3"]["message"]
    assert "a reboot is scheduled on the host in 4" in left_out["worker-5"]["message"]
    assert not json.loads(rollout("plan", "-o", "json").stdout)["excluded"]


def test_reboot_answers_before_the_connection_goes(
    shell: ParamikoShell, machines: Machines
) -> None:
    """logind takes the request over the bus and `systemctl` ends at once; sshd goes down after
    that.
    """
    machine = machines["worker-5"]
    for user in ("core", "narrow", "core"):
        before = machine.booted
        result = shell.run(Host("worker-5", machine.address, user=user), REBOOT_COMMAND, timeout=20)
        assert result.exit_status == 0
        wait_for(lambda before=before: machine.booted not in ("", before), "the reboot", 60)  # type: ignore[misc]


@pytest.mark.sample
def test_a_refusal_is_seen(rollout: Rollout, machines: Machines) -> None:
    """The answer of the operator's own command; where it reboots without logind the connection may
    go first.
    """
    refused = rollout(
        *("apply", "--yes", "--node", "worker-4", "--set", "reboot.command=systemctl reboot"),
        *("-o", "json"),
    ).ends(4)
    assert refused.summary["failed"][0]["outcome"] == "reboot-refused"
    rollout(
        "apply", "--yes", "--node", "worker-4", "--set", f"reboot.command={OWN}", "-o", "json"
    ).ends(0)
    assert machines["worker-4"].os_version == STAGED_VERSION
