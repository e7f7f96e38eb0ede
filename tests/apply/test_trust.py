"""A host that keeps us out tells nothing of its version, and what the endings say of such a night."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rollout.cli.simulated import scoreboard_text
from rollout.lab.hosts.engine import UpdateEngine
from rollout.lab.hosts.faults import HostFaults, SshFault, SudoFault
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout, command
from tests.waiting import wait_until

APPLY = ("apply", "--yes", "-o", "json", "--control-plane", "exclude", "--set", "waves.health-checks=1")


@pytest.mark.sample
@pytest.mark.parametrize(
    ("scenario", "held", "verdict"),
    [
        ("host-key-changes", False, "Not clean. Still cordoned: worker-2"),
        ("rollback", True, "Nothing is left behind. Rebooted, and on its old version: worker-2."),
    ],
)
def test_a_changed_host_key_holds_no_version_a_rollback_does_and_the_ending_says_what_went_wrong(
    started: Callable[[str, int], Lab], rollout: Rollout, scenario: str, *, held: bool, verdict: str
) -> None:
    lab = started(scenario, 4)
    assert rollout(lab, *APPLY).code == 4
    assert ("is held: it failed on" in rollout(lab, "status").stdout) is held
    assert verdict.lower() in scoreboard_text(lab.scoreboard()).lower()


def refuse_keys(lab: Lab) -> None:
    lab.call(lambda: lab.machines["worker-2"].inflict(HostFaults(ssh=SshFault.KEY_REFUSED)))


def refuse_sudo(lab: Lab) -> None:
    lab.call(lambda: lab.machines["worker-2"].inflict(HostFaults(sudo=SudoFault.REFUSED)))


@pytest.mark.parametrize(
    ("keep_out", "code", "cause"),
    [
        (refuse_keys, 4, "✘ worker-2  the host answers, and lets nobody in: "),
        # what is left to do there needs no sudo
        (refuse_sudo, 0, ""),
    ],
    ids=["no key accepted", "sudo refused"],
)
def test_keys_and_credentials_that_fail_after_the_boot_hold_no_version(
    keep_out: Callable[[Lab], None],
    code: int,
    cause: str,
    started: Callable[[str, int], Lab],
    rollout: Rollout,
    tmp_path: Path,
) -> None:
    lab = started("default", 4)
    lab.call(lambda: lab.machines["worker-2"].inflict(HostFaults(boot_seconds=150)))
    process = command(lab, tmp_path, "apply", "--yes", "--node", "worker-2", "--reboot-timeout", "8s")
    wait_until(lambda: not lab.call(lambda: lab.machines["worker-2"].running))
    keep_out(lab)
    said, told = process.communicate(timeout=120)
    assert process.returncode == code, told
    assert cause in said, said
    assert "not started" not in said
    assert "is held" not in said + told + rollout(lab, "status").stdout


def test_hosts_whose_keys_are_unknown_are_not_begun_and_hold_no_version(
    started: Callable[[str, int], Lab], rollout: Rollout
) -> None:
    lab = started("default", 3)
    lab.known_hosts.write_text("")
    ended = rollout(lab, "apply", "--yes")
    assert ended.code == 4, ended.stderr
    assert "! worker-2  unreachable: " in ended.stdout
    assert ended.stdout.endswith("Next:\n    rollout doctor\n    rollout apply\n")
    assert "is held" not in ended.stdout + ended.stderr + rollout(lab, "status").stdout


def test_a_node_that_was_rolled_back_says_so_until_its_version_is_staged_again(
    started: Callable[[str, int], Lab], rollout: Rollout
) -> None:
    """Also once its failure is forgotten: the node itself remembers."""
    lab = started("rollback", 4)
    assert rollout(lab, *APPLY).code == 4
    assert rollout(lab, "release", "4152.2.0").code == 0
    told = r"rolled back from 4152\.2\.0, \d+s ago"
    assert re.search(rf"^worker-2 +up to date .* {told}$", rollout(lab, "status").stdout, re.MULTILINE)
    reasons = {row["node"]: row["reason"] for row in json.loads(rollout(lab, "status", "-o", "json").stdout)["nodes"]}
    assert re.fullmatch(f"no-update: {told}", reasons["worker-2"])
    assert "rolled back" not in reasons["worker-1"]
    lab.machines["worker-2"].engine = UpdateEngine.with_staged("4152.2.0", checked=int(time.time()))
    assert "rolled back from" not in rollout(lab, "status").stdout
