"""`status --watch` beside a rollout in another process: killed and gone on with, undone, and without an API server.

The program is what an operator starts, on the lab's wire; each wait is for what the other process
does, by the clock.
"""

import json
import re
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest

from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout, Started, await_down, boot, command, lose_hosts
from tests.apply.test_resume import APPLY
from tests.cli.screens import shown
from tests.conftest import StartLab
from tests.ended import end_of, invoked
from tests.state import marks_of, node_of, record, run_of
from tests.waiting import Overheard, wait_until

SECONDS = 90.0
LEASE = ("--set", "lock.duration=3s")


@contextmanager
def heard(lab: Lab, home: Path, *arguments: str) -> Iterator[Overheard]:
    listened = Overheard(command(lab, home, *arguments))
    try:
        yield listened
    finally:
        listened.end(signal.SIGKILL)


def await_line(listened: Overheard, wanted: Callable[[str], bool]) -> None:
    wait_until(
        lambda: any(map(wanted, list(listened.said))) or listened.process.poll() is not None,
        SECONDS,
    )
    assert any(map(wanted, listened.said)), listened.said[-20:]


def objects(listened: Overheard) -> list[dict[str, Any]]:
    return [json.loads(line) for line in listened.said if line.startswith(("{", "null"))]


def told_of(**fields: object) -> Callable[[str], bool]:
    """Whether a line is the rollout as `status --run -o json` has it, with these fields; True: any
    but empty.
    """

    def is_wanted(line: str) -> bool:
        told = json.loads(line) if line.startswith("{") else None
        return told is not None and all(
            bool(told[name]) if value is True else told[name] == value
            for name, value in fields.items()
        )

    return is_wanted


def test_a_rollout_is_watched_through_its_kill_and_its_resume(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 6)
    lab.call(lambda: lose_hosts(lab))
    process = command(lab, tmp_path, *APPLY, "--max-unavailable", "1", *LEASE)
    node = await_down(lab)
    run = run_of(lab)
    with heard(lab, tmp_path, "status", "--watch", "-o", "json") as watching:
        await_line(watching, told_of(run=run, state="running", nodes=True))
        kill(process)
        await_line(watching, told_of(run=run, state="interrupted", nodes=True))
        boot(lab, node)
        rollout(lab, "resume", "--yes", *LEASE).ends(0)
        assert watching.rest() == 0, watching.said
        told = objects(watching)
    states = [state for state, _ in groupby(line["state"] for line in told if line)]
    assert states == ["running", "interrupted", "running"]
    assert told[-1] is None
    assert all(line != after for line, after in pairwise(told))


def test_a_node_that_reboots_is_down_for_a_while(
    start_lab: StartLab, rollout: Rollout, tmp_path: Path
) -> None:
    """By the clock of the API server; how long it usually takes is what the journal of a run before
    it tells.
    """
    # A reboot of less than half a second says nothing of how long it usually takes.
    lab = start_lab("default", nodes=4, speed=30)
    rollout(lab, *APPLY, "--node", "worker-1").ends(0)
    lab.call(lambda: lose_hosts(lab))
    process = command(lab, tmp_path, *APPLY, "--node", "worker-2", "--reboot-timeout", "1h")
    try:
        wait_until(lambda: marks_of(lab, "worker-2").get("phase") == "rebooting", SECONDS)
        note = r"down for \d+m?\d*s?, usually \d+s, wave 1 of 1"
        (line,) = (
            line
            for line in rollout(lab, "status").stdout.splitlines()
            if line.startswith("worker-2 ")
        )
        assert re.search(rf"^worker-2 +rebooting .* {note}$", line), line
        nodes = json.loads(rollout(lab, "status", "-o", "json").stdout)["nodes"]
        assert re.fullmatch(
            f"rebooting, {note}",
            next(node["under_way"] for node in nodes if node["node"] == "worker-2"),
        )
    finally:
        kill(process)


@pytest.mark.exhaustive
def test_an_api_server_that_is_away_is_told_of_and_waited_for(
    started: Started, tmp_path: Path
) -> None:
    lab = started("default", 5)
    inflicted: list[ApiFault] = []
    with heard(lab, tmp_path, *APPLY, "--max-unavailable", "1") as applying:
        wait_until(lambda: record(lab) is not None, SECONDS)

        def cut_off(lines: Sequence[str], _process: subprocess.Popen[bytes]) -> None:
            if not inflicted and re.search(r"worker-\d: ", "\n".join(lines)):
                # eight seconds of real time
                inflicted.append(ApiFault(answer=FaultAnswer.OUTAGE, duration=960))
                lab.inflict(*inflicted)

        screen = shown(tmp_path, lab.environment, ("status", "--watch"), 120, heed=cut_off)
        assert applying.rest() == 0
    assert screen.code == 0
    moments = ["\n".join(lines) for lines in screen.moments]
    assert any(
        "the API server does not respond: showing the last known state" in text for text in moments
    )
    assert "4 succeeded" in screen.text
    assert "last seen" not in screen.text


def test_on_a_terminal_it_waits_for_one_to_begin_and_follows_it(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 4)
    rollout(lab, *APPLY, "--node", "worker-1").ends(0)
    run = run_of_last(lab)
    applying: list[subprocess.Popen[str]] = []

    def begin_one(lines: Sequence[str], _process: subprocess.Popen[bytes]) -> None:
        if not applying and "waiting for a rollout to start" in " ".join(lines):
            applying.append(command(lab, tmp_path, *APPLY))

    screen = shown(tmp_path, lab.environment, ("status", "--watch"), 200, heed=begin_one)
    assert applying
    applying[0].communicate()
    assert (applying[0].returncode, screen.code) == (0, 0), screen.text
    moments = "\n".join(line for lines in screen.moments for line in lines)
    assert re.search(rf"The last rollout, {run}, ended at \S+Z: 1 succeeded", moments)
    assert "Ctrl-C ends this view, not the rollout" in moments
    assert "2 succeeded" in screen.text
    ended = rollout(lab, "status", "--watch").ends(0)
    assert re.fullmatch(
        r"No rollout is running or interrupted\. The last rollout, [0-9a-f]{16}, ended at \S+Z: 2"
        r" succeeded\.\n",
        ended.stdout,
    )


def run_of_last(lab: Lab) -> str:
    node = node_of(lab, "worker-1")
    return str(json.loads(node["metadata"]["annotations"]["node-rollout.dev/last-result"])["run"])


def test_ctrl_c_ends_the_view_and_not_the_rollout(started: Started, tmp_path: Path) -> None:
    lab = started("default", 4)
    lab.call(lambda: lose_hosts(lab))
    with heard(lab, tmp_path, *APPLY, "--max-unavailable", "1") as applying:
        node = await_down(lab)
        with heard(lab, tmp_path, "status", "--watch") as watching:
            watching.await_words(" is running")
            watching.process.send_signal(signal.SIGINT)
            assert watching.rest() == 130
        boot(lab, node)
        assert applying.rest() == 0
    assert len(objects(applying)[-1]["succeeded"]) == 3


def test_a_browser_on_this_machine_is_shown_the_rollout_and_past_ones(
    started: Started, tmp_path: Path
) -> None:
    lab = started("default", 4)
    rollout_of = invoked(tmp_path, lab.environment, (*APPLY, "--node", "worker-1")).ends(0)
    lab.call(lambda: lose_hosts(lab))
    with heard(lab, tmp_path, *APPLY, "--max-unavailable", "1") as applying:
        node = await_down(lab)
        showing = command(lab, tmp_path, "status", "--web")
        assert showing.stderr is not None
        url = showing.stderr.readline().partition(" ")[0]
        assert url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(url, timeout=30) as response:  # noqa: S310 - loopback
            page = response.read().decode()
        assert "In the cluster now" in page
        assert f"{node}: rebooting" in page
        assert "running: " in page
        assert f"/runs/{rollout_of.plan['plan_id']}" in page
        showing.send_signal(signal.SIGINT)
        assert end_of(showing).code == 0
        boot(lab, node)
        assert applying.rest() == 0


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()
