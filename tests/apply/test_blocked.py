"""A pod that its budget holds back, as it is seen in a real run: on a terminal, in a log, as JSON, and on the Node."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollout.lab.api.resources import BUDGETS, EVENTS, PODS
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout, Started, command
from tests.apply.test_resume import stopped_at
from tests.conftest import StartLab
from tests.execution.drains import KUBECTL
from tests.state import run_of
from tests.waiting import wait_until

BUDGET = "shop/ledger"


@pytest.fixture(scope="module")
def lab(shared_lab: StartLab) -> Lab:
    return shared_lab("budget-never", nodes=7, speed=30)


@pytest.fixture(scope="module")
def held(lab: Lab) -> dict[str, Any]:
    """The first pod under the budget."""
    pods = lab.call(lambda: [pod for pod in lab.store.items(PODS) if pod["metadata"]["name"].startswith("ledger")])
    return min(pods, key=lambda pod: str(pod["metadata"]["name"]))


@pytest.fixture
def flags(held: dict[str, Any]) -> Callable[[str], tuple[str, ...]]:
    """Only its node is drained, whatever the plan says."""

    def given(timeout: str) -> tuple[str, ...]:
        chosen = ("--node", held["spec"]["nodeName"], "--allow", "blocked")
        return ("apply", "--yes", *chosen, "--drain-timeout", timeout, "--settle-timeout", "1s")

    return given


def line_of(held: dict[str, Any]) -> str:
    """What is said of it wherever there is a line to say it in."""
    owner = held["metadata"]["ownerReferences"][0]
    return (
        rf"shop/{held['metadata']['name']} \({owner['kind']}/{owner['name']}\) is held back by {BUDGET}: "
        r"needs 2 healthy, has 2; waits (\d+)s, (\d+)s left"
    )


def test_in_a_log(lab: Lab, held: dict[str, Any], flags: Callable[[str], tuple[str, ...]], rollout: Rollout) -> None:
    ended = rollout(lab, *flags("3s"))
    assert ended.code == 4
    assert re.search(rf"^[\d:]+ {held['spec']['nodeName']}: {line_of(held)}$", ended.stderr, re.MULTILINE), ended.stderr
    assert re.search(rf"1 pod left after --drain-timeout 3s: .* held back by {BUDGET}, which needs 2", ended.stderr)


def test_as_json_and_on_the_node(
    lab: Lab, held: dict[str, Any], flags: Callable[[str], tuple[str, ...]], tmp_path: Path
) -> None:
    node, name = held["spec"]["nodeName"], held["metadata"]["name"]
    earlier = [event["metadata"]["uid"] for event in events(lab)]
    process = command(lab, tmp_path, *flags("90s"), "-o", "json")

    def written() -> list[dict[str, Any]]:
        """Of this run: the store has them by names, which differ with the run, not by age."""
        return [event for event in events(lab) if event["metadata"]["uid"] not in earlier]

    wait_until(lambda: written() or process.poll() is not None, 60)
    why = f"held back by {BUDGET}, which needs 2 healthy pods and has 2"
    assert [event["message"] for event in written()] == [f"Pod shop/{name} is {why}"]
    lab.call(lambda: lab.store.remove(BUDGETS, "ledger", "shop"))
    stdout, stderr = process.communicate(timeout=90)
    assert process.returncode == 0, stderr
    lines = [json.loads(line) for line in stdout.splitlines()]
    told = [line for line in lines if line["type"] == "blocked"]
    owner = held["metadata"]["ownerReferences"][0]
    expected = {"node": node, "pod": f"shop/{name}", "budget": BUDGET, "needs": 2, "has": 2}
    assert expected.items() <= told[0].items()
    assert told[0]["owner"] == f"{owner['kind']}/{owner['name']}"
    assert told[0]["since"] <= told[0]["at"]
    assert 0 < told[0]["seconds_left"] < 90
    released = [line for line in lines if line["type"] == "released"]
    assert [(line["pod"], line["budget"], line["since"]) for line in released] == [
        (f"shop/{name}", BUDGET, told[0]["since"])
    ]
    (event,) = written()
    assert event["type"] == "Warning"
    assert event["involvedObject"]["name"] == node
    assert event["message"] == f"Pod shop/{name} is no longer {why}"
    assert "DrainBlocked" in described(lab, tmp_path, node)


def described(lab: Lab, home: Path, node: str) -> str:
    environment = {"HOME": str(home), **lab.environment}
    command = [KUBECTL, "describe", "node", node]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def events(lab: Lab) -> list[dict[str, Any]]:
    return lab.call(lambda: [event for event in lab.store.items(EVENTS) if event["reason"] == "DrainBlocked"])


# What stands on a node once its rollout was undone: for whoever asks the cluster, and has never heard of rollout.


def node_events(lab: Lab, node: str, reason: str) -> list[dict[str, Any]]:
    found = lab.call(lambda: list(lab.store.items(EVENTS)))
    ours = [event for event in found if event["source"].get("component") == "node-rollout"]
    return [event for event in ours if event["involvedObject"]["name"] == node and event["reason"] == reason]


def test_each_node_that_is_given_back_says_so(started: Started, rollout: Rollout, tmp_path: Path) -> None:
    lab = started("default", 6)
    node = stopped_at(lab, tmp_path, "draining", "--max-unavailable", "1")
    run = run_of(lab)
    ended = rollout(lab, "abort", "--yes", "--force-unlock", run)
    assert ended.code == 0, ended.stderr
    (event,) = node_events(lab, node, "GivenBack")
    assert event["type"] == "Normal"
    assert event["involvedObject"]["uid"]
    assert event["message"].startswith("Given back in phase ")
    assert event["message"].endswith(f"; it is uncordoned (rollout {run})")
    assert "Given back in phase" in described(lab, tmp_path, node)
    assert not node_events(lab, node, "RolloutFailed")
