"""How hosts are rebooted, by whose command, and which ones are left alone because somebody stands in the way."""

import json
from collections.abc import Callable
from pathlib import Path

from rollout.lab.hosts.faults import HostFaults, SudoFault
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout
from tests.apply.test_resume import record, run_of, stopped_at

Start = Callable[[str, int], Lab]
OWN = "sudo -n shutdown -r now 'by rollout'"
WORKER_1 = ("--node", "worker-1")


def reboots_by(lab: Lab, name: str, command: str) -> int:
    return sum(line.endswith(f"COMMAND={command}") for line in lab.machines[name].journal)


def inflict(lab: Lab, name: str, faults: HostFaults) -> None:
    lab.call(lambda: lab.machines[name].inflict(faults))


def test_an_own_command_is_what_hosts_are_asked_to_run(started: Start, rollout: Rollout) -> None:
    lab = started("default", 4)
    ended = rollout(lab, "apply", "--yes", *WORKER_1, "--set", f"reboot.command={OWN}", "-o", "json")
    assert ended.code == 0, ended.stderr
    assert ended.summary["succeeded"] == ["worker-1"]
    assert reboots_by(lab, "worker-1", "shutdown -r now by rollout") == 1
    assert reboots_by(lab, "worker-1", "systemctl reboot") == 0
    assert "shutdown -r" not in ended.stdout
    assert lab.scoreboard().clean


def test_a_plan_that_was_made_for_an_own_command_wants_one(started: Start, rollout: Rollout, tmp_path: Path) -> None:
    lab = started("default", 4)
    own = str(tmp_path / "own.plan")
    assert rollout(lab, "plan", *WORKER_1, "--out", own, "--set", f"reboot.command={OWN}").code == 0
    assert "shutdown" not in Path(own).read_text()
    for arguments, said in (
        (("apply", own), "with a reboot.command, and none is given"),
        (("apply", own, "--set", f"reboot.command={OWN}"), ""),
    ):
        ended = rollout(lab, *arguments)
        assert (ended.code, said in ended.stderr) == (0 if not said else 64, True), ended.stderr
    assert lab.scoreboard().reboots["worker-1"] == 1


def test_resume_wants_a_command_too_and_never_reads_it_from_the_cluster(
    started: Start, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 5)
    with stopped_at(lab, tmp_path, "draining", "--set", f"reboot.command={OWN}") as node:
        assert "shutdown" not in json.dumps(record(lab))
        unlock = ("--yes", "--force-unlock", run_of(lab))
        refused = rollout(lab, "resume", *unlock)
        assert (refused.code, "reboot.command" in refused.stderr) == (64, True)
        ended = rollout(lab, "resume", *unlock, "--set", f"reboot.command={OWN}")
        assert ended.code == 0, ended.stderr
        assert reboots_by(lab, node, "shutdown -r now by rollout") == 1
        assert reboots_by(lab, node, "systemctl reboot") == 0


OBSTACLES = {
    "worker-1": (HostFaults(inhibited=True), "inhibited", "backup (nightly backup)"),
    "worker-2": (
        HostFaults(shuts_down_after_seconds=9000),
        "shutdown-pending",
        "a reboot is scheduled on the host in 2 h",
    ),
    "worker-3": (HostFaults(sudo=SudoFault.PASSWORD), "no-sudo", "sudo asks for a password"),
    "worker-4": (HostFaults(sudo=SudoFault.UNKNOWN_USER), "no-sudo", "the user is not in the sudoers file"),
    "worker-5": (HostFaults(sudo=SudoFault.REFUSED), "no-sudo", "the sudoers rules do not allow the user this command"),
    "worker-6": (HostFaults(sudo=SudoFault.NO_TERMINAL), "no-sudo", "sudo wants a terminal"),
    "worker-7": (HostFaults(sudo=SudoFault.MISSING), "no-sudo", "sudo is not installed"),
    "worker-8": (HostFaults(sudo=SudoFault.HANGS), "no-sudo", "sudo did not answer in time"),
    "worker-9": (
        HostFaults(inhibited=True, inhibitor_mode="block-weak"),
        "inhibited",
        "backup (block-weak: nightly backup)",
    ),
}


def test_hosts_that_must_not_or_cannot_be_rebooted_are_left_out(started: Start, rollout: Rollout) -> None:
    lab = started("default", 12)
    for name, (faults, _, _) in OBSTACLES.items():
        inflict(lab, name, faults)
    plan = json.loads(rollout(lab, "plan", "-o", "json").stdout)
    left_out = {found["node"]: found for found in plan["excluded"]}
    assert {name: found["reason"] for name, found in left_out.items()} == {
        name: reason for name, (_, reason, _) in OBSTACLES.items()
    }
    doctor = json.loads(rollout(lab, "doctor", "-o", "json").stdout)
    failed = {check["subject"]: check for check in doctor["checks"] if check["verdict"] == "fail"}
    for name, (_, _, said) in OBSTACLES.items():
        assert said in left_out[name]["message"]
        assert said in failed[name]["message"]
        assert failed[name]["fix"]
    assert "requiretty" in failed["worker-6"]["fix"]
    assert "Install sudo" in failed["worker-7"]["fix"]
    # an own command may need no sudo; what speaks against the reboot itself holds for it, too
    own = json.loads(rollout(lab, "plan", "-o", "json", "--set", "reboot.command=reboot-host").stdout)
    assert {found["reason"] for found in own["excluded"]} == {"inhibited", "shutdown-pending"}


def test_a_lock_taken_after_the_plan_keeps_the_host_up(started: Start, rollout: Rollout, tmp_path: Path) -> None:
    lab = started("default", 4)
    saved = str(tmp_path / "plan")
    assert rollout(lab, "plan", *WORKER_1, "--out", saved).code == 0
    inflict(lab, "worker-1", HostFaults(inhibited=True))
    ended = rollout(lab, "apply", saved, "-o", "json")
    assert ended.code == 4
    assert ended.summary["skipped"] == ["worker-1"]
    assert "blocked by backup" in ended.summary["reasons"]["worker-1"]
    score = lab.scoreboard()
    assert (score.reboots["worker-1"], score.evictions) == (0, 0)
