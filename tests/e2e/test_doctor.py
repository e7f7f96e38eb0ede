"""What doctor makes of the answers of a real systemd, sshd and bus."""

import json
import time
from typing import Any

import pytest

from tests.e2e.cluster import NAMES
from tests.e2e.conftest import Play, Rollout, Run
from tests.e2e.machines import STAGED_VERSION, Machines
from tests.ended import Ended


def checks(rollout: Rollout, *flags: str) -> tuple[int, dict[tuple[str, str], dict[str, Any]]]:
    ended = rollout("doctor", "-o", "json", *flags)
    found = json.loads(ended.stdout)["checks"]
    return ended.code, {(check["check"], check["subject"]): check for check in found}


def test_real_machines_pass(rollout: Rollout, machines: Machines) -> None:
    code, found = checks(rollout)
    assert code == 0, [check for check in found.values() if check["verdict"] == "fail"]
    for name in NAMES:
        for look in (
            "ssh",
            "host-key",
            "user",
            "sudo",
            "shutdown",
            "update-engine",
            "update-status",
            "locksmithd",
        ):
            assert found[look, name]["verdict"] == "pass", found[look, name]
        assert "no locksmithd" in found["locksmithd", name]["message"]


def test_units_of_a_real_systemd(rollout: Rollout, machines: Machines, on: Run) -> None:
    """Masked, not enabled, and a locksmithd that runs: each with the command that mends it."""
    on("worker-1", "sudo -n systemctl mask --quiet update-engine")
    on("worker-2", "sudo -n systemctl disable --quiet update-engine")
    on("worker-3", "sudo -n systemd-run --quiet --unit=locksmithd sleep 60")
    try:
        code, found = checks(rollout, "--node", "worker-1,worker-2,worker-3")
        for name, look in (("worker-2", "update-engine"), ("worker-3", "locksmithd")):
            on(
                name,
                found[look, name]["fix"].replace("sudo", "sudo -n").replace("mask --now", "stop"),
            )
        _, mended = checks(rollout, "--node", "worker-2,worker-3")
    finally:
        on("worker-1", "sudo -n systemctl unmask --quiet update-engine")
        on("worker-2", "sudo -n systemctl enable --quiet update-engine")
    assert code == 1
    assert found["update-engine", "worker-1"]["verdict"] == "fail"
    assert "masked" in found["update-engine", "worker-1"]["message"]
    assert found["update-engine", "worker-2"]["verdict"] == "warn"
    assert found["locksmithd", "worker-3"]["verdict"] == "fail"
    assert mended["update-engine", "worker-2"]["verdict"] == "pass"
    assert mended["locksmithd", "worker-3"]["verdict"] == "pass"


def test_what_the_next_boot_starts(rollout: Rollout, machines: Machines, on: Run) -> None:
    """A unit that the system's own links start is said to be disabled; a mask in /run is gone with
    the boot.
    """
    wants = "/usr/lib/systemd/system/multi-user.target.wants/update-engine.service"
    on(
        "worker-1",
        f"sudo -n mkdir -p {wants.rpartition('/')[0]} && sudo -n ln -s ../update-engine.service"
        f" {wants}",
    )
    on(
        "worker-1",
        "sudo -n systemctl disable --quiet update-engine && sudo -n systemctl daemon-reload",
    )
    on(
        "worker-2",
        "echo '[Service]\nExecStart=sleep 1' | sudo -n tee"
        " /usr/lib/systemd/system/locksmithd.service",
    )
    on("worker-2", "sudo -n systemctl mask --runtime --quiet locksmithd")
    try:
        state = on("worker-1", "systemctl is-enabled update-engine || true")
        _, found = checks(rollout, "--node", "worker-1,worker-2")
        on("worker-2", found["locksmithd", "worker-2"]["fix"].replace("sudo", "sudo -n"))
        _, mended = checks(rollout, "--node", "worker-2")
    finally:
        on("worker-1", f"sudo -n rm -f {wants}; sudo -n systemctl enable --quiet update-engine")
        on(
            "worker-2",
            "sudo -n systemctl unmask --runtime --quiet locksmithd; sudo -n systemctl unmask"
            " --quiet locksmithd",
        )
        on(
            "worker-2",
            "sudo -n rm /usr/lib/systemd/system/locksmithd.service; sudo -n systemctl"
            " daemon-reload",
        )
    assert state.strip() == "disabled"
    assert found["update-engine", "worker-1"]["verdict"] == "pass", found[
        "update-engine", "worker-1"
    ]
    assert found["locksmithd", "worker-2"]["verdict"] == "warn"
    assert "masked until the next boot only" in found["locksmithd", "worker-2"]["message"]
    assert mended["locksmithd", "worker-2"]["verdict"] == "pass", mended["locksmithd", "worker-2"]


MASK = "sudo -n systemctl mask --runtime --now --quiet update-engine"


UNMASK = (
    "sudo -n systemctl unmask --runtime --quiet update-engine; sudo -n systemctl start"
    " update-engine"
)


STATE = "systemctl is-enabled update-engine; systemctl is-active update-engine"


def test_a_mask_until_the_next_boot(
    rollout: Rollout, machines: Machines, on: Run, play: Play
) -> None:
    try:
        on("worker-1", MASK)
        on("worker-2", MASK)
        _, found = checks(rollout, "--node", "worker-1")
        on("worker-1", found["update-engine", "worker-1"]["fix"].replace("sudo", "sudo -n"))
        play("worker-2", "prepare.yml")
        states = [on(name, STATE) for name in ("worker-1", "worker-2")]
    finally:
        on("worker-1", UNMASK)
        on("worker-2", UNMASK)
    assert "update-engine is masked" in found["update-engine", "worker-1"]["message"]
    assert states == ["enabled\nactive\n"] * 2


# Checks for updates of real machines, over the real bus with its policy.


def hosts_of(ended: Ended) -> dict[str, dict[str, Any]]:
    return {host["node"]: host for host in json.loads(ended.stdout)["hosts"]}


@pytest.fixture
def offered(machines: Machines) -> Machines:
    """Nothing is staged any more, and an update is offered to each."""
    for machine in machines:
        machine.clear()
        machine.write("available", STAGED_VERSION)
    return machines


def test_hosts_that_are_asked_stage_what_they_find(rollout: Rollout, offered: Machines) -> None:
    ended = rollout("check-update", "-o", "json", "--node", "worker-1").ends(0)
    assert hosts_of(ended)["worker-1"]["outcome"] == "asked"
    end = time.monotonic() + 60
    while rollout("plan", "--node", "worker-1", "--detailed-exitcode").code != 2:
        assert time.monotonic() < end


@pytest.mark.parametrize("user", ["ops", "narrow"])
def test_users_whom_the_bus_denies_ask_as_root(
    rollout: Rollout, offered: Machines, user: str
) -> None:
    offered["worker-1"].write("trouble", "stalls")
    ended = rollout("check-update", "-o", "json", "--node", "worker-1", ssh_user=user).ends(0)
    assert hosts_of(ended)["worker-1"]["outcome"] == "asked"
    again = hosts_of(rollout("check-update", "-o", "json", "--node", "worker-1", ssh_user=user))[
        "worker-1"
    ]
    assert again["outcome"] == "asked"
    assert "already checking" in again["message"]


def test_users_who_may_not_are_told_why(rollout: Rollout, offered: Machines) -> None:
    ended = rollout("check-update", "-o", "json", ssh_user="careful").ends(4)
    hosts = hosts_of(ended)
    assert {node: host["outcome"] for node, host in hosts.items()} == dict.fromkeys(
        NAMES, "refused"
    )
    (message,) = {host["message"] for host in hosts.values()}
    assert "Access denied" in message or "not allowed" in message
    assert "sudo asks for a password" in message
