"""Nodes of one budget in one wave, on a cluster: the budgets hold, and who is nearest to empty ends first."""

import json
from datetime import datetime
from pathlib import Path

from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from tests.apply.conftest import Rollout

FLAGS = (
    *("--max-unavailable", "3", "--grace-period", "1", "--set", "waves.health-checks=1"),
    *("--reboot-timeout", "60s", "--ready-timeout", "60s"),
)


def test_a_wave_shares_its_budgets_and_its_first_node_reboots_while_others_drain(
    tmp_path: Path, rollout: Rollout
) -> None:
    scenario = load_scenario(str(Path(__file__).with_name("ordinary.yaml")))
    with Lab.start(scenario, directory=tmp_path / "lab", speed=10) as lab:
        exclusive = json.loads(rollout(lab, "plan", "-o", "json", *FLAGS, "--set", "waves.sharing=exclusive").stdout)
        assert len(exclusive["waves"]) == 6
        ended = rollout(lab, "apply", "--yes", "-o", "json", *FLAGS)
        assert ended.code == 0, ended.stderr
        assert len(ended.summary["succeeded"]) == 6
        assert lab.scoreboard().budgets_broken == ()
        assert [len(wave["nodes"]) for wave in ended.plan["waves"]] == [3, 3]
        shared = ended.plan["waves"][0]
        assert "shares shop/" in shared["because"]
        together = {node["name"] for node in shared["nodes"]}
        steps = [line for line in ended.lines if line["type"] == "step" and line["node"] in together]
        assert first(steps, "rebooting") < last(steps, "drained")


def first(steps: list[dict[str, str]], phase: str) -> datetime:
    return min(datetime.fromisoformat(line["at"]) for line in steps if line["phase"] == phase)


def last(steps: list[dict[str, str]], phase: str) -> datetime:
    return max(datetime.fromisoformat(line["at"]) for line in steps if line["phase"] == phase)
