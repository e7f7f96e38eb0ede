"""What stands on a node once its rollout was undone: for whoever asks the cluster, and has never heard of rollout."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rollout.lab.api.resources import EVENTS
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout
from tests.apply.test_resume import run_of, stopped_at
from tests.execution.drains import KUBECTL

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
