"""What an abort leaves written of the nodes that it gives back: the version that their hosts run, or none."""

import json
from functools import partial
from pathlib import Path

import pytest

from rollout.lab.hosts.faults import HostFaults, RebootFault
from rollout.lab.lab import Lab
from rollout.model.marks import LAST_RESULT
from tests.apply.conftest import ONE_LOOK, Rollout, Started, boot, command, killed_at
from tests.state import annotations, node_of
from tests.waiting import wait_until

APPLY = ("apply", "--yes", "--node", "worker-1", "--set", "lock.duration=1s", *ONE_LOOK)
OLD, NEW = "4081.2.0", "4152.2.0"


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
    assert (result["outcome"], result["version"]) == ("aborted", NEW)
    report = json.loads(rollout(lab, "report", "-o", "json").stdout)
    (node,) = (entry for entry in report["nodes"] if entry["node"] == "worker-1")
    assert (node["outcome"], node["version_after"]) == ("aborted", NEW)
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


def test_of_a_host_that_is_not_back_no_version_is_written(started: Started, rollout: Rollout) -> None:
    lab = started("default", 4)
    lab.call(partial(lab.machines["worker-1"].inflict, HostFaults(reboot=RebootFault.NEVER_RETURNS)))
    rollout(lab, *APPLY, "--reboot-timeout", "5s").ends(4)
    result = last_result(lab)
    assert (result["outcome"], result.get("version")) == ("not-back", None)
    before = node_of(lab, "worker-1")["status"]["nodeInfo"]["bootID"]
    boot(lab, "worker-1")
    wait_until(lambda: is_back(lab, before), 60)
    rollout(lab, "abort", "--yes").ends(0)
    result = last_result(lab)
    assert (result["outcome"], result["version"]) == ("aborted", NEW)
