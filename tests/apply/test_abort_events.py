"""What stands on a node once its rollout was undone: for whoever asks the cluster, and has never heard of rollout."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.resources import EVENTS
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout, lose_hosts
from tests.apply.test_resume import record, run_of, stopped_at
from tests.execution.drains import KUBECTL
from tests.waiting import wait_until

Start = Callable[[str, int], Lab]


def events(lab: Lab, node: str, reason: str) -> list[dict[str, Any]]:
    found = lab.call(lambda: list(lab.store.items(EVENTS)))
    ours = [event for event in found if event["source"].get("component") == "node-rollout"]
    return [event for event in ours if event["involvedObject"]["name"] == node and event["reason"] == reason]


def described(lab: Lab, home: Path, node: str) -> str:
    environment = {"HOME": str(home), **lab.environment}
    told = subprocess.run(
        [KUBECTL, "describe", "node", node], env=environment, capture_output=True, text=True, check=True
    )
    return told.stdout


def test_each_node_that_is_given_back_says_so(started: Start, rollout: Rollout, tmp_path: Path) -> None:
    lab = started("default", 6)
    with stopped_at(lab, tmp_path, "draining", "--max-unavailable", "1") as node:
        run = run_of(lab)
        ended = rollout(lab, "abort", "--yes", "--force-unlock", run)
        assert ended.code == 0, ended.stderr
        (event,) = events(lab, node, "GivenBack")
        assert event["type"] == "Normal"
        assert event["involvedObject"]["uid"]
        assert event["message"].startswith("Undone by rollout abort in phase ")
        assert event["message"].endswith(f"; it is uncordoned (rollout {run})")
        assert "Undone by rollout abort" in described(lab, tmp_path, node)
        assert not events(lab, node, "RolloutFailed")


def test_one_that_cannot_be_says_why(started: Start, rollout: Rollout, tmp_path: Path) -> None:
    lab = started("default", 5)
    lab.call(lambda: lose_hosts(lab))
    with stopped_at(lab, tmp_path, "rebooting", "--max-unavailable", "1") as node:
        wait_until(lambda: node in lab.scoreboard().hosts_down)
        run = run_of(lab)
        for times in (1, 2):
            ended = rollout(lab, "abort", "--yes", "--wait", "1s", "--force-unlock", run)
            assert ended.code == 4
            assert [event["count"] for event in events(lab, node, "RolloutFailed")] == [times]
        (event,) = events(lab, node, "RolloutFailed")
        assert event["type"] == "Warning"
        assert event["message"].startswith(
            "Not undone by rollout abort in phase rebooting: it may be rebooting right now"
        )
        assert event["message"].endswith(f"; it was left as it is (rollout {run})")
        assert "Not undone by rollout abort" in described(lab, tmp_path, node)
        assert not events(lab, node, "GivenBack")


@pytest.mark.parametrize(("answer", "refuses"), [(FaultAnswer.BAD_REQUEST, True), (FaultAnswer.UNAVAILABLE, False)])
def test_a_server_that_takes_no_events_keeps_nothing_from_being_undone(
    started: Start, rollout: Rollout, tmp_path: Path, answer: FaultAnswer, *, refuses: bool
) -> None:
    lab = started("default", 5)
    with stopped_at(lab, tmp_path, "draining", "--max-unavailable", "1") as node:
        lab.call(lambda: lab.faults.add(ApiFault(answer=answer, resource="events")))
        ended = rollout(lab, "abort", "--yes", "--force-unlock", run_of(lab))
        assert ended.code == 0, ended.stderr
        assert f"1 node given back: {node}" in ended.stdout
        assert ("Events about this abort cannot be written" in ended.stderr) == refuses
        score = lab.scoreboard()
        assert (score.cordons_left, score.annotations_left, record(lab)) == ((), {}, None)
        assert not events(lab, node, "GivenBack")
