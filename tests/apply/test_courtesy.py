"""What a reboot waits for because people asked for it, and whom the plan names as logged in."""

import json
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from rollout.lab.hosts.faults import HostFaults
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout, Started, command, stepped
from tests.ended import Ended, end_of
from tests.operate.conftest import open_now
from tests.state import inflict, is_cordoned, unlock

ORDINARY = Path(__file__).with_name("ordinary.yaml")


NUMBER = 3


NODE = "worker-1"


ALONE = (
    *("--yes", "-o", "json", "--node", NODE, "--settle-timeout", "20s"),
    *("--set", "waves.health-checks=1"),
)


@pytest.fixture
def lab(started: Started) -> Lab:
    return started(str(ORDINARY), NUMBER)


def heard(process: subprocess.Popen[str], text: str) -> list[dict[str, Any]]:
    """The lines up to the one with this text."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(json.loads(line))
        if text in line:
            return lines
    raise AssertionError((text, lines, process.communicate()))


def details(ended: Ended, phase: str) -> list[str]:
    return [detail for at, detail in ended.steps(NODE) if at == phase and detail]


def rebooted(lab: Lab) -> int:
    return lab.scoreboard().reboots[NODE]


def test_status_and_plan_show_who_is_logged_in(lab: Lab, rollout: Rollout) -> None:
    inflict(lab, HostFaults(users=("core pts/0", "ada tty1")), NODE)
    rows = {
        row["node"]: row for row in json.loads(rollout(lab, "status", "-o", "json").stdout)["nodes"]
    }
    assert rows[NODE]["users"] == [{"name": "core", "tty": "pts/0"}, {"name": "ada", "tty": "tty1"}]
    assert {row["group"] for row in rows.values()} == {"stable"}
    assert [rows[name]["users"] for name in rows if name != NODE] == [[]] * (NUMBER - 1)
    planned = rollout(lab, "plan", "-o", "json")
    (warning,) = [
        found for found in json.loads(planned.stdout)["warnings"] if found["kind"] == "logged-in"
    ]
    assert warning["node"] == NODE
    assert (
        warning["message"]
        == "2 users logged in (core (pts/0), ada (tty1)); to leave the node out, run: rollout pause"
        " worker-1"
    )


def test_the_delays_pass_before_the_drain_and_before_the_reboot(lab: Lab, rollout: Rollout) -> None:
    ended = rollout(
        lab, "apply", *ALONE, "--set", "drain.delay=1s", "--set", "reboot.delay=1s"
    ).ends(0)
    assert details(ended, "cordoned") == ["waiting 1s before its drain (drain.delay)"]
    assert details(ended, "drained")[-1] == "waiting 1s before its reboot (reboot.delay)"
    at: dict[str, str] = {}
    for line in ended.lines:
        if line["type"] == "step" and line["phase"] in (
            "cordoned",
            "draining",
            "drained",
            "rebooting",
        ):
            at.setdefault(line["phase"], line["at"])
    seconds = [
        _seconds(at[one], at[other])
        for one, other in (("cordoned", "draining"), ("drained", "rebooting"))
    ]
    assert seconds[0] >= 1
    assert seconds[1] >= 1


def _seconds(begin: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


@pytest.mark.sample(2)
@pytest.mark.parametrize("stop", ["finish", "revert"])
@pytest.mark.parametrize(
    ("flags", "waiting"),
    [
        (("--set", "drain.delay=1h"), "before its drain"),
        (("--set", "reboot.delay=1h"), "before its reboot"),
    ],
)
def test_whoever_stops_such_a_wait_gets_the_node_back(
    lab: Lab, tmp_path: Path, flags: tuple[str, ...], waiting: str, stop: str
) -> None:
    process = command(lab, tmp_path, "apply", *ALONE, *flags, "--set", f"waves.stop={stop}")
    heard(process, waiting)
    process.terminate()
    ended = end_of(process, 60)
    assert (ended.code, rebooted(lab), is_cordoned(lab, NODE)) == (130, 0, False), ended.stderr
    assert ended.summary["not_started"] == [NODE]
    assert ended.summary["kinds"] == {NODE: "aborted"}
    (end,) = [line for line in ended.lines if line["type"] == "node_finished"]
    assert end["outcome"] == "aborted"
    assert end["message"] == "not rebooted: stopped on request"
    assert lab.scoreboard().annotations_left == {}


@pytest.mark.sample
@pytest.mark.parametrize("way_out", ["abort", "resume"])
def test_a_process_that_dies_in_such_a_wait_leaves_what_can_be_gone_on_with(
    lab: Lab, rollout: Rollout, tmp_path: Path, way_out: str
) -> None:
    process = command(lab, tmp_path, "apply", *ALONE, "--set", "reboot.delay=5s")
    heard(process, "before its reboot")
    process.kill()
    process.communicate()
    ended = rollout(lab, way_out, "--yes", *unlock(lab), "-o", "json")
    assert (ended.code, rebooted(lab)) == (0, int(way_out == "resume")), ended.stderr
    assert ("waiting 5s before its reboot" in ended.stdout) == (way_out == "resume")
    assert lab.scoreboard().clean


# A maintenance window that closes while a node waits: it is given back, not rebooted.


HALF_A_DAY = 43_200


@pytest.mark.parametrize(
    ("flags", "waiting", "when"),
    [
        (("--set", "drain.delay=3s"), "before its drain", "while its drain was delayed"),
        (("--set", "reboot.delay=3s"), "before its reboot", "while its reboot was delayed"),
    ],
)
def test_a_window_that_closes_meanwhile_gives_the_node_back(
    flags: tuple[str, ...], waiting: str, when: str, started: Started, tmp_path: Path
) -> None:
    lab = started(str(ORDINARY), NUMBER)
    ahead = tmp_path / "ahead"
    ahead.write_text("0")
    process = stepped(lab, tmp_path, ahead, "apply", *ALONE, *flags, "--window", open_now())
    lines = heard(process, waiting)
    ahead.write_text(str(HALF_A_DAY))
    ended = end_of(process)
    (end,) = [line for line in (*lines, *ended.lines) if line["type"] == "node_finished"]
    assert (end["outcome"], end["message"]) == (
        "aborted",
        f"not rebooted: the window closed {when}",
    ), json.dumps(end)
    assert rebooted(lab) == 0
    assert not is_cordoned(lab, NODE)
    assert lab.scoreboard().annotations_left == {}
