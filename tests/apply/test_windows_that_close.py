"""A maintenance window that closes while a node waits, for a delay or for users: it is given back, not rebooted."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rollout.lab.hosts.faults import HostFaults
from rollout.lab.lab import Lab
from rollout.lab.scenario import Scenario
from tests.apply.test_courtesy import ALONE, NODE, NUMBER, ORDINARY, heard, is_cordoned, log_in, rebooted
from tests.ended import HeardProcess, end_of
from tests.operate.conftest import open_now
from tests.server.test_clocks import STEPPED

Started = Callable[[Scenario | str, int], Lab]
HALF_A_DAY = 43_200


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("flags", "waiting", "when"),
    [
        (("--set", "drain.delay=6s"), "before its drain", "while its drain was delayed"),
        (("--set", "reboot.delay=6s"), "before its reboot", "while its reboot was delayed"),
        (("--set", "reboot.wait-for-users=20m"), "to log out", "while users were waited for"),
    ],
)
def test_a_window_that_closes_meanwhile_gives_the_node_back(
    flags: tuple[str, ...], waiting: str, when: str, started: Started, tmp_path: Path
) -> None:
    lab, ahead = started(str(ORDINARY), NUMBER), tmp_path / "ahead"
    ahead.write_text("0")
    log_in(lab, *(("core pts/0",) if "users" in when else ()))
    words = ("-c", STEPPED, str(ahead), "apply", *ALONE, *flags, "--window", open_now())
    process = HeardProcess(
        [sys.executable, *words],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **lab.environment},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines, _ = heard(process, waiting)
    ahead.write_text(str(HALF_A_DAY))
    lab.call(lambda: lab.machines[NODE].inflict(HostFaults()))
    ended = end_of(process)
    (end,) = [line for line in (*lines, *ended.lines) if line["type"] == "node_finished"]
    assert (end["outcome"], end["message"]) == ("aborted", f"given back: the window closed {when}"), json.dumps(end)
    assert (rebooted(lab), is_cordoned(lab)) == (0, False)
    assert lab.scoreboard().annotations_left == {}
