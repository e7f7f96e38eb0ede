"""What an abort leaves written of the nodes that it gives back: the version that their hosts run,
or none.
"""

import json
from functools import partial
from pathlib import Path

import pytest

from rollout.lab.hosts.faults import HostFaults, RebootFault
from rollout.lab.lab import Lab
from rollout.model.marks import LAST_RESULT, RUN
from tests.apply.conftest import ONE_LOOK, Rollout, Started, boot, command, killed_at
from tests.state import annotations, node_of
from tests.waiting import wait_until

APPLY = ("apply", "--yes", "--node", "worker-1", "--set", "lock.duration=1s", *ONE_LOOK)
OLD = "4081.2.0"
NEW = "4152.2.0"


def last_result(lab: Lab) -> dict[str, str]:
    result: dict[str, str] = json.loads(annotations(lab, "worker-1")[LAST_RESULT])
    return result


def is_back(lab: Lab, before: str) -> bool:
    status = node_of(lab, "worker-1")["status"]
    ready = {condition["type"]: condition["status"] for condition in status["conditions"]}
    return bool(status["nodeInfo"]["bootID"] != before and ready["Ready"] == "True")


def test_a_node_that_has_rebooted_is_written_down_with_its_new_version(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 4)
    before = node_of(lab, "worker-1")["status"]["nodeInfo"]["bootID"]
    process = command(lab, tmp_path, *APPLY)
    wait_until(lambda: not lab.machines["worker-1"].running, 60)
    process.kill()
    process.communicate()
    wait_until(lambda: is_back(lab, before), 60)
    rollout(lab, "abort", "--yes").ends(0)
    result = last_result(lab)
    assert result["outcome"] == "aborted"
    assert result["version"] == NEW
    report = json.loads(rollout(lab, "report", "-o", "json").stdout)
    (node,) = (entry for entry in report["nodes"] if entry["node"] == "worker-1")
    assert node["outcome"] == "aborted"
    assert node["version_after"] == NEW
    text = rollout(lab, "report").stdout
    assert "in phase rebooting" not in text


@pytest.mark.parametrize("phase", ["draining", "drained"])
def test_a_node_that_was_not_rebooted_keeps_the_version_from_before(
    phase: str, started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 4)
    killed_at(lab, tmp_path, phase, *APPLY)
    rollout(lab, "abort", "--yes").ends(0)
    assert last_result(lab)["version"] == OLD


def test_of_a_host_that_is_not_back_no_version_is_written(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", 4)
    lab.call(
        partial(lab.machines["worker-1"].inflict, HostFaults(reboot=RebootFault.NEVER_RETURNS))
    )
    rollout(lab, *APPLY, "--reboot-timeout", "1s").ends(4)
    result = last_result(lab)
    assert result["outcome"] == "not-back"
    assert result.get("version") is None
    before = node_of(lab, "worker-1")["status"]["nodeInfo"]["bootID"]
    boot(lab, "worker-1")
    wait_until(lambda: is_back(lab, before), 60)
    rollout(lab, "abort", "--yes").ends(0)
    result = last_result(lab)
    assert result["outcome"] == "aborted"
    assert result["version"] == NEW


def test_after_an_abort_past_a_dead_host_all_commands_tell_the_same(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", 4)
    lab.call(
        partial(lab.machines["worker-1"].inflict, HostFaults(reboot=RebootFault.NEVER_RETURNS))
    )
    rollout(lab, *APPLY, "--reboot-timeout", "1s").ends(4)
    run = annotations(lab, "worker-1")[RUN]
    aborted = rollout(lab, "abort", "--yes", "--wait", "1s").ends(4)
    ways = (
        "When worker-1 is Ready again:\n    rollout abort\nIf it is gone for good:\n    kubectl"
        " delete node worker-1\n"
    )
    assert aborted.stdout.endswith(ways)
    sentence = f"orker-1 is still cordoned by the aborted rollout {run}"
    status = rollout(lab, "status").ends(0).stdout
    assert f"W{sentence}." in status
    assert status.endswith(ways)
    resumed = rollout(lab, "resume", "--yes").ends(0)
    assert f"w{sentence}. When worker-1 is Ready again: `rollout abort`" in resumed.stdout
    doctor = " ".join(rollout(lab, "doctor").stdout.split())
    assert f"w{sentence}" in doctor
    assert "If it is gone for good: `kubectl delete node worker-1`" in doctor
    assert "lock.namespace" not in status + resumed.stdout + doctor


def test_abort_says_before_it_starts_that_unattended_passes_stop(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 4)
    killed_at(lab, tmp_path, "draining", *APPLY)
    told = rollout(lab, "abort", "--yes").ends(0).stdout
    before, _, after = told.partition("1 node returned to service: worker-1")
    assert (
        "unattended passes will not reboot any nodes until the next `rollout apply`"
        " or `rollout unpause --unattended`" in before
    )
    assert "rollout unpause --unattended" in after
