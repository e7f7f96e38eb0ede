"""What a failed node does to the rest of its rollout, and what is left of it and told about it."""

import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from rollout.lab.api.resources import LEASES, NODES
from rollout.lab.hostplan import scale
from rollout.lab.hosts.faults import HostFaults, RebootFault
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from rollout.lab.world.host import Timings
from rollout.model.marks import LAST_RESULT, RUN
from tests.apply.conftest import Rollout, command

APPLY = (
    "apply",
    "--yes",
    "-o",
    "json",
    "--control-plane",
    "exclude",
    "--settle-timeout",
    "20s",
    "--set",
    "waves.health-checks=1",
)
Started = Callable[[str, int], Lab]


def inflict(lab: Lab, *nodes: str, faults: HostFaults) -> None:
    for node in nodes:
        lab.call(lambda: lab.machines[node].inflict(faults))  # noqa: B023 - called at once


def assert_given_back(lab: Lab, node: str) -> None:
    score = lab.scoreboard()
    assert node not in score.cordons_left
    assert node not in score.annotations_left


def test_one_that_is_away_uses_up_the_limit_until_it_is_back(started: Started, rollout: Rollout) -> None:
    lab = started("never-returns", 7)
    flags = ("--max-failures", "9", "--max-unavailable", "1", "--reboot-timeout", "4s", "--settle-timeout", "3s")
    ended = rollout(
        lab, *APPLY, *flags, "--set", "drain.prefer-no-schedule-taint=false", "--node", "worker-2", "--node", "worker-3"
    )
    assert ended.code == 4
    assert [entry["node"] for entry in ended.summary["failed"]] == ["worker-2"]
    assert ended.summary["not_started"] == ["worker-3"]
    assert "used up by worker-2" in ended.summary["reasons"]["worker-3"]
    told = [line["message"] for line in ended.lines if line["type"] == "notice"]
    assert [message for message in told if message.startswith("waiting for nodes to be back")] == [
        "waiting for nodes to be back: --max-unavailable 1 is used up by worker-2"
    ]
    assert lab.scoreboard().reboots["worker-3"] == 0
    assert lab.scoreboard().most_unavailable == 1


def test_one_that_works_as_before_does_not_and_failures_add_up_to_a_share(started: Started, rollout: Rollout) -> None:
    """Thirty per cent of seven selected nodes are two."""
    lab = started("default", 7)
    inflict(lab, *(f"worker-{number}" for number in range(1, 5)), faults=HostFaults(reboot=RebootFault.IGNORED))
    ended = rollout(lab, *APPLY, "--max-failures", "30%", "--max-unavailable", "1", "--reboot-timeout", "2s")
    assert ended.code == 4
    assert {entry["outcome"] for entry in ended.summary["failed"]} == {"not-rebooted"}
    assert (len(ended.summary["failed"]), len(ended.summary["not_started"])) == (2, 2)
    assert {entry["left_cordoned"] for entry in ended.summary["failed"]} == {False}
    for entry in ended.summary["failed"]:
        assert_given_back(lab, entry["node"])
    assert set(ended.summary["reasons"].values()) == {"2 failed, and --max-failures is 2"}


@pytest.mark.sample
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_failures_add_up_over_an_interruption_and_anew_once_they_have_stopped_it(
    started: Started, rollout: Rollout, tmp_path: Path, number: signal.Signals
) -> None:
    """Every host ignores its reboot. Killed, or asked to stop, after the first failure; then gone on with twice."""
    lab = started("default", 8)
    inflict(lab, *(f"worker-{number}" for number in range(1, 6)), faults=HostFaults(reboot=RebootFault.IGNORED))
    process = command(lab, tmp_path, *APPLY, "--max-failures", "3", "--max-unavailable", "1", "--reboot-timeout", "3s")
    assert process.stdout is not None
    next(line for line in process.stdout if '"node_finished"' in line)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert 1 <= len(failed_on(lab)) < 3
    first = rollout(lab, "resume", "--yes", "-o", "json", *unlocked(lab))
    assert first.code == 4, first.stderr
    assert len(failed_on(lab)) == 3
    assert set(first.summary["reasons"].values()) == {"3 failed, and --max-failures is 3"}
    again = rollout(lab, "resume", "--yes", "-o", "json")
    assert (len(again.summary["failed"]), again.summary["not_started"]) == (2, [])
    assert len(failed_on(lab)) == 5
    assert lab.scoreboard().cordons_left == ()


def failed_on(lab: Lab) -> set[str]:
    """Nodes on which it stands that they were not rebooted."""
    nodes = lab.call(lambda: [node["metadata"] for node in lab.store.items(NODES)])
    return {node["name"] for node in nodes if "not-rebooted" in node.get("annotations", {}).get(LAST_RESULT, "")}


def unlocked(lab: Lab) -> tuple[str, ...]:
    """The flag that passes over whoever was killed."""
    lease = lab.call(lambda: lab.store.get(LEASES, "node-rollout", "kube-system"))
    assert lease is not None
    run = lease["metadata"].get("annotations", {}).get(RUN)
    return ("--force-unlock", run) if run else ()


def test_one_that_is_not_back_is_told_of_with_all_there_is_to_look_at(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("never-returns", 5)
    ended = rollout(lab, *APPLY, "--node", "worker-2", "--reboot-timeout", "6s")
    (failed,) = ended.summary["failed"]
    assert (failed["outcome"], failed["left_cordoned"]) == ("not-back", True)
    assert "refused" in failed["ssh_error"]
    ready = next(each for each in failed["conditions"] if each["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "NodeStatusUnknown")
    assert failed["console"] == "", "a machine of the lab has none that is known"
    finished = next(line for line in ended.lines if line["type"] == "node_finished")
    assert finished["conditions"] == failed["conditions"]
    told = rollout(lab, "history", ended.plan["plan_id"]).stdout
    assert "Ready is Unknown since" in told, told
    assert failed["ssh_error"] in told
    assert failed["console"] in told


def test_one_that_is_not_ready_stays_cordoned_with_its_conditions_told(tmp_path: Path, rollout: Rollout) -> None:
    scenario = scale(load_scenario("default"), 5)
    slow = msgspec.structs.replace(scenario, timings=Timings(kubelet_ready=3000))
    with Lab.start(slow, directory=tmp_path / "lab", speed=30) as lab:
        ended = rollout(lab, *APPLY, "--node", "worker-1", "--ready-timeout", "2s")
        (failed,) = ended.summary["failed"]
        assert (failed["outcome"], failed["phase"], failed["left_cordoned"]) == ("not-ready", "booted", True)
        (ready,) = (each for each in failed["conditions"] if each["type"] == "Ready")
        assert ready["status"] == "False"
        assert "network" in ready["message"]
        assert (failed["ssh_error"], lab.scoreboard().cordons_left) == ("", ("worker-1",))
