"""What an operator calls critical, through the real program: foreseen by the plan, and kept by the run."""

import json
from pathlib import Path
from typing import Any

import pytest

from rollout.errors import ExitCode
from rollout.lab.api.resources import PODS
from rollout.lab.api.store import Change
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout, Started

# A Deployment of the lab that has no budget.
APP = "thumbnails"
RULE = f"critical/shop/app={APP}"


def running(lab: Lab) -> list[dict[str, Any]]:
    """Its pods that are Ready, and not told to go."""
    pods = [pod for pod in lab.store.items(PODS) if pod["metadata"].get("labels", {}).get("app") == APP]
    ready = {"type": "Ready", "status": "True"}.items()
    return [
        pod
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
        and any(ready <= condition.items() for condition in pod.get("status", {}).get("conditions", ()))
    ]


def rules(directory: Path, least: int, app: str = APP) -> tuple[str, str]:
    path = directory / "own.toml"
    path.write_text(f'[[critical]]\nnamespace = "shop"\nselector = "app={app}"\nmin-available = {least}\n')
    return "--config", str(path)


@pytest.fixture
def lab(started: Started) -> Lab:
    return started("default", 9)


def test_a_run_evicts_no_more_of_them_at_a_time_than_the_rule_lets_go(
    lab: Lab, rollout: Rollout, tmp_path: Path
) -> None:
    number, fewest = lab.call(lambda: len(running(lab))), list[int]()
    assert number > 2

    def observe(change: Change) -> None:
        if change.resource is PODS:
            fewest.append(len(running(lab)))

    lab.call(lambda: lab.store.subscribe(observe))
    workers = ("--yes", "--max-unavailable", "4", "--control-plane", "exclude", "-o", "json")
    ended = rollout(lab, "apply", *workers, *rules(tmp_path, number - 1))
    assert ended.code == ExitCode.OK, ended.stderr
    assert min(fewest) == number - 1


def test_the_plan_names_the_rule_that_never_lets_go_and_the_drain_waits_for_it_in_vain(
    lab: Lab, rollout: Rollout, tmp_path: Path
) -> None:
    pods = lab.call(lambda: running(lab))
    node, file = pods[0]["spec"]["nodeName"], rules(tmp_path, len(pods))
    plan = json.loads(rollout(lab, "plan", "-o", "json", *file).stdout)
    found = {(blocker["node"], blocker["kind"], blocker["object"]) for blocker in plan["blockers"]}
    assert found == {(pod["spec"]["nodeName"], "budget-never", RULE) for pod in pods}
    assert "[[critical]]" in rollout(lab, "plan", "-o", "wide", *file).stdout
    forced = ("apply", "--yes", "--node", node, "--allow", "blocked", "--drain-timeout", "5s", *file)
    ended = rollout(lab, *forced)
    assert ended.code == ExitCode.PARTIAL
    assert f"held back by {RULE}, which needs {len(pods)} healthy pods and has {len(pods)}" in ended.stderr
    assert f"kubectl get pods -n shop -l app={APP}" in ended.stdout
    assert [pod["metadata"]["uid"] for pod in lab.call(lambda: running(lab))] == [p["metadata"]["uid"] for p in pods]
    ended = rollout(lab, *forced, "--disable-eviction")
    assert ended.code == ExitCode.OK, ended.stderr


def test_a_rule_that_covers_nothing_is_told(lab: Lab, rollout: Rollout, tmp_path: Path) -> None:
    plan = json.loads(rollout(lab, "plan", "-o", "json", *rules(tmp_path, 1, "thumbnail")).stdout)
    told = [(warning["kind"], warning["object"]) for warning in plan["warnings"]]
    assert ("nothing-critical", "critical/shop/app=thumbnail") in told
