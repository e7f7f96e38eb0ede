"""What a failed node does to the rest of its rollout, and what is left of it and told about it."""

import json
import re
import signal
import time
from pathlib import Path

import msgspec
import pytest

from rollout.lab.api.resources import NODES
from rollout.lab.hosts.engine import UpdateEngine
from rollout.lab.hosts.faults import HostFaults, RebootFault, SshFault, SudoFault
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from rollout.lab.world.host import Timings
from rollout.model.marks import LAST_RESULT
from tests.apply.conftest import ONE_LOOK, Rollout, Started, command
from tests.state import inflict, unlock
from tests.waiting import wait_until

APPLY = (
    *("apply", "--yes", "-o", "json", "--control-plane", "exclude", "--settle-timeout", "20s"),
    *ONE_LOOK,
)


def test_one_that_is_away_uses_up_the_limit_and_is_told_of_with_all_there_is_to_look_at(
    started: Started, rollout: Rollout
) -> None:
    lab = started("never-returns", 7)
    flags = (
        *("--max-failures", "9", "--max-unavailable", "1", "--reboot-timeout", "3s"),
        *("--settle-timeout", "2s"),
    )
    ended = rollout(
        lab,
        *APPLY,
        *flags,
        *("--set", "drain.prefer-no-schedule-taint=false", "--node", "worker-2"),
        *("--node", "worker-3"),
    )
    assert ended.code == 4
    assert ended.summary["not_started"] == ["worker-3"]
    assert "used up by worker-2" in ended.summary["reasons"]["worker-3"]
    told = [line["message"] for line in ended.lines if line["type"] == "notice"]
    assert [message for message in told if message.startswith("waiting for nodes to be back")] == [
        "waiting for nodes to be back: --max-unavailable 1 is used up by worker-2"
    ]
    score = lab.scoreboard()
    assert score.reboots["worker-3"] == 0
    assert score.most_unavailable == 1
    (failed,) = ended.summary["failed"]
    assert failed["node"] == "worker-2"
    assert failed["outcome"] == "not-back"
    assert failed["left_cordoned"]
    assert "refused" in failed["ssh_error"]
    ready = next(each for each in failed["conditions"] if each["type"] == "Ready")
    assert ready["status"] == "Unknown"
    assert ready["reason"] == "NodeStatusUnknown"
    assert failed["console"] == "", "a machine of the lab has none that is known"
    finished = next(line for line in ended.lines if line["type"] == "node_finished")
    assert finished["conditions"] == failed["conditions"]
    shown = rollout(lab, "history", ended.plan["plan_id"]).stdout
    assert "Ready is Unknown since" in shown, shown
    assert failed["ssh_error"] in shown


def test_one_that_works_as_before_does_not_and_failures_add_up_to_a_share(
    started: Started, rollout: Rollout
) -> None:
    """Thirty per cent of seven selected nodes are two."""
    lab = started("default", 7)
    inflict(
        lab, HostFaults(reboot=RebootFault.IGNORED), *(f"worker-{number}" for number in range(1, 5))
    )
    ended = rollout(
        lab, *APPLY, "--max-failures", "30%", "--max-unavailable", "1", "--reboot-timeout", "1s"
    ).ends(4)
    assert {entry["outcome"] for entry in ended.summary["failed"]} == {"not-rebooted"}
    assert len(ended.summary["failed"]) == 2
    assert len(ended.summary["not_started"]) == 2
    assert {entry["left_cordoned"] for entry in ended.summary["failed"]} == {False}
    score = lab.scoreboard()
    assert score.cordons_left == ()
    assert score.annotations_left == {}
    assert set(ended.summary["reasons"].values()) == {"2 nodes failed, and --max-failures is 2"}


@pytest.mark.sample
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_failures_add_up_over_an_interruption_and_anew_once_they_have_stopped_it(
    started: Started, rollout: Rollout, tmp_path: Path, number: signal.Signals
) -> None:
    """Every host ignores its reboot. Killed, or asked to stop, after the first failure; then gone
    on with twice.
    """
    lab = started("default", 6)
    inflict(lab, HostFaults(reboot=RebootFault.IGNORED))
    process = command(
        lab,
        tmp_path,
        *APPLY,
        *("--max-failures", "2", "--max-unavailable", "1", "--reboot-timeout", "1s"),
    )
    assert process.stdout is not None
    next(line for line in process.stdout if '"node_finished"' in line)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert len(failed_on(lab)) == 1
    first = rollout(lab, "resume", "--yes", "-o", "json", *unlock(lab)).ends(4)
    assert len(failed_on(lab)) == 2
    assert set(first.summary["reasons"].values()) == {"2 nodes failed, and --max-failures is 2"}
    again = rollout(lab, "resume", "--yes", "-o", "json")
    assert len(again.summary["failed"]) == 1
    assert again.summary["not_started"] == []
    assert len(failed_on(lab)) == 3
    assert lab.scoreboard().cordons_left == ()


def failed_on(lab: Lab) -> set[str]:
    """Nodes on which it stands that they were not rebooted."""
    nodes = lab.call(lambda: [node["metadata"] for node in lab.store.items(NODES)])
    return {
        node["name"]
        for node in nodes
        if "not-rebooted" in node.get("annotations", {}).get(LAST_RESULT, "")
    }


def test_one_that_is_not_ready_stays_cordoned_with_its_conditions_told(
    started: Started, rollout: Rollout
) -> None:
    lab = started(
        msgspec.structs.replace(load_scenario("default"), timings=Timings(kubelet_ready=6000)), 5
    )
    ended = rollout(lab, *APPLY, "--node", "worker-1", "--ready-timeout", "2s")
    (failed,) = ended.summary["failed"]
    assert failed["outcome"] == "not-ready"
    assert failed["phase"] == "booted"
    assert failed["left_cordoned"]
    (ready,) = (each for each in failed["conditions"] if each["type"] == "Ready")
    assert ready["status"] == "False"
    assert "network" in ready["message"]
    assert failed["ssh_error"] == ""
    assert lab.scoreboard().cordons_left == ("worker-1",)


# A host that keeps us out tells nothing of its version, and what the endings say of such a night.


@pytest.mark.parametrize(
    ("faults", "code", "cause"),
    [
        (
            HostFaults(ssh=SshFault.KEY_REFUSED),
            4,
            "✘ worker-2  the host responds, but the login fails: ",
        ),
        # what is left to do there needs no sudo
        (HostFaults(sudo=SudoFault.REFUSED), 0, ""),
    ],
    ids=["no key accepted", "sudo refused"],
)
def test_keys_and_credentials_that_fail_after_the_boot_hold_no_version(
    faults: HostFaults, code: int, cause: str, started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 4)
    inflict(lab, HostFaults(boot_seconds=120), "worker-2")
    process = command(
        lab, tmp_path, "apply", "--yes", "--node", "worker-2", "--reboot-timeout", "5s"
    )
    wait_until(lambda: not lab.call(lambda: lab.machines["worker-2"].running))
    inflict(lab, faults, "worker-2")
    said, told = process.communicate(timeout=120)
    assert process.returncode == code, told
    assert cause in said, said
    assert "not started" not in said
    assert "is held" not in said + told + rollout(lab, "status").stdout


def test_hosts_whose_keys_are_unknown_are_not_begun_and_hold_no_version(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", 3)
    lab.known_hosts.write_text("")
    ended = rollout(lab, "apply", "--yes").ends(4)
    assert "! cp-1, worker-1, worker-2  unreachable: its host key is unknown\n" in ended.stdout
    assert ended.stdout.endswith("Next:\n    rollout doctor\n")
    assert "is held" not in ended.stdout + ended.stderr + rollout(lab, "status").stdout


def test_a_node_that_was_rolled_back_says_so_until_its_version_is_staged_again(
    started: Started, rollout: Rollout
) -> None:
    """Also once its failure is forgotten: the node itself remembers."""
    lab = started("rollback", 4)
    rollout(lab, *APPLY).ends(4)
    rollout(lab, "release", "4152.2.0").ends(0)
    row = r"^worker-2 +rolled back +4081\.2\.0 +from 4152\.2\.0, \d+s ago$"
    assert re.search(row, rollout(lab, "status").stdout, re.MULTILINE)
    rows = {
        row["node"]: row for row in json.loads(rollout(lab, "status", "-o", "json").stdout)["nodes"]
    }
    assert rows["worker-2"]["state"] == "rolled back"
    assert rows["worker-2"]["reason"] == "no-update"
    assert rows["worker-2"]["update"]["rolled_back_from"] == "4152.2.0"
    assert rows["worker-1"]["state"] == "up to date"
    lab.machines["worker-2"].update_engine = UpdateEngine.with_staged(
        "4152.2.0", checked=int(time.time())
    )
    assert "rolled back" not in rollout(lab, "status").stdout
