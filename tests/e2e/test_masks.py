"""A mask in /run, which `systemctl unmask` leaves: undone by what doctor advises, and by the playbook."""

import os
import subprocess
import sys
from pathlib import Path

from tests.e2e.conftest import Rollout, Run
from tests.e2e.machines import Machines
from tests.e2e.test_doctor import checks

PREPARE = Path(__file__).parents[2] / "playbooks" / "prepare.yml"
MASK = "sudo -n systemctl mask --runtime --now --quiet update-engine"
UNMASK = "sudo -n systemctl unmask --runtime --quiet update-engine; sudo -n systemctl start update-engine"
STATE = "systemctl is-enabled update-engine; systemctl is-active update-engine"


def prepare(machines: Machines, name: str, known_hosts: Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_PRIVATE_KEY_FILE": str(machines.key),
        "ANSIBLE_SSH_ARGS": f"-o ControlMaster=no -o UserKnownHostsFile={known_hosts}",
    }
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    command = [program, "-i", f"{machines[name].address},", "-u", "core", str(PREPARE)]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)


def test_a_mask_until_the_next_boot(
    rollout: Rollout, machines: Machines, on: Run, known_hosts: Path, tmp_path: Path
) -> None:
    try:
        on("worker-1", MASK)
        on("worker-2", MASK)
        _, found = checks(rollout, "--node", "worker-1")
        on("worker-1", found["update-engine", "worker-1"]["fix"].replace("sudo", "sudo -n"))
        prepared = prepare(machines, "worker-2", known_hosts, tmp_path)
        states = [on(name, STATE) for name in ("worker-1", "worker-2")]
    finally:
        on("worker-1", UNMASK)
        on("worker-2", UNMASK)
    assert "update-engine is masked" in found["update-engine", "worker-1"]["message"]
    assert prepared.returncode == 0, prepared.stdout + prepared.stderr
    assert states == ["enabled\nactive\n"] * 2
