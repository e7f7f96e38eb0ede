"""Pods that are held back: by a budget, as a real run shows it everywhere, and by what an operator
calls critical.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rollout.errors import ExitCode
from rollout.lab.api.resources import BUDGETS, EVENTS, PODS
from rollout.lab.api.store import Change
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout, Started, command
from tests.execution.drains import KUBECTL
from tests.waiting import wait_until

BUDGET = "shop/ledger"


def events(lab: Lab) -> list[dict[str, Any]]:
    return lab.call(
        lambda: [event for event in lab.store.items(EVENTS) if event["reason"] == "DrainBlocked"]
    )


def test_a_budget_is_told_in_a_log_as_json_and_on_the_node(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("budget-never", 7)
    pods = lab.call(
        lambda: [
            pod for pod in lab.store.items(PODS) if pod["metadata"]["name"].startswith("ledger")
        ]
    )
    held = min(pods, key=lambda pod: str(pod["metadata"]["name"]))
    (owner,) = held["metadata"]["ownerReferences"]
    node = held["spec"]["nodeName"]
    name = held["metadata"]["name"]
    of = f"{owner['kind']}/{owner['name']}"
    flags = ("apply", "--yes", "--node", node, "--allow", "blocked", "--settle-timeout", "1s")

    ended = rollout(lab, *flags, "--drain-timeout", "2s").ends(4)
    line = (
        rf"shop/{name} \({of}\): eviction blocked by PDB {BUDGET} \(needs 2 healthy,"
        r" has 2\) · drain times out in (\d+)s"
    )
    assert re.search(rf"^[\dTZ:-]+ {node}: {line}$", ended.stderr, re.MULTILINE), ended.stderr
    assert re.search(
        rf"1 pod left after --drain-timeout 2s: .* blocked by {BUDGET}, which needs 2",
        ended.stderr,
    )

    earlier = [event["metadata"]["uid"] for event in events(lab)]

    def written() -> list[dict[str, Any]]:
        """Of this run: the store has them by names, which differ with the run, not by age."""
        return [event for event in events(lab) if event["metadata"]["uid"] not in earlier]

    process = command(lab, tmp_path, *flags, "--drain-timeout", "90s", "-o", "json")
    wait_until(lambda: written() or process.poll() is not None, 60)
    why = f"Eviction of shop/{name} is blocked by PDB {BUDGET}: needs 2 healthy pods and has 2 (rollout "
    (event,) = written()
    assert event["message"].startswith(why)
    assert event["type"] == "Warning"
    assert event["involvedObject"]["name"] == node
    lab.call(lambda: lab.store.remove(BUDGETS, "ledger", "shop"))
    stdout, stderr = process.communicate(timeout=90)
    assert process.returncode == 0, stderr
    lines = [json.loads(line) for line in stdout.splitlines()]
    told = [line for line in lines if line["type"] == "blocked"]
    expected = {
        "node": node,
        "pod": f"shop/{name}",
        "budget": BUDGET,
        "needs": 2,
        "has": 2,
        "owner": of,
    }
    assert expected.items() <= told[0].items()
    assert told[0]["since"] <= told[0]["at"]
    assert 0 < told[0]["seconds_left"] < 90
    released = [
        (line["pod"], line["budget"], line["since"]) for line in lines if line["type"] == "released"
    ]
    assert released == [(f"shop/{name}", BUDGET, told[0]["since"])]
    described = subprocess.run(
        [KUBECTL, "describe", "node", node],
        env={"HOME": str(tmp_path), **lab.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "DrainBlocked" in described.stdout


# A Deployment of the lab that has no budget.
APP = "thumbnails"
RULE = f"critical/shop/app={APP}"


def running(lab: Lab) -> list[dict[str, Any]]:
    """Its pods that are Ready, and not told to go."""
    pods = [
        pod for pod in lab.store.items(PODS) if pod["metadata"].get("labels", {}).get("app") == APP
    ]
    ready = {"type": "Ready", "status": "True"}.items()
    return [
        pod
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
        and any(
            ready <= condition.items() for condition in pod.get("status", {}).get("conditions", ())
        )
    ]


def rules(directory: Path, least: int, app: str = APP) -> tuple[str, str]:
    path = directory / "own.toml"
    path.write_text(
        f'[[critical]]\nnamespace = "shop"\nselector = "app={app}"\nmin-available = {least}\n'
    )
    return "--config", str(path)


@pytest.fixture
def lab(started: Started) -> Lab:
    return started("default", 9)


def test_a_run_evicts_no_more_of_them_at_a_time_than_the_rule_lets_go(
    lab: Lab, rollout: Rollout, tmp_path: Path
) -> None:
    number = lab.call(lambda: len(running(lab)))
    fewest = list[int]()
    assert number > 2

    def observe(change: Change) -> None:
        if change.resource is PODS:
            fewest.append(len(running(lab)))

    lab.call(lambda: lab.store.subscribe(observe))
    workers = ("--yes", "--max-unavailable", "4", "--control-plane", "exclude", "-o", "json")
    rollout(lab, "apply", *workers, *rules(tmp_path, number - 1)).ends(ExitCode.OK)
    assert min(fewest) == number - 1


def test_the_plan_names_the_rule_that_never_lets_go_and_the_drain_waits_for_it_in_vain(
    lab: Lab, rollout: Rollout, tmp_path: Path
) -> None:
    pods = lab.call(lambda: running(lab))
    node = pods[0]["spec"]["nodeName"]
    file = rules(tmp_path, len(pods))
    plan = json.loads(rollout(lab, "plan", "-o", "json", *file).stdout)
    found = {(blocker["node"], blocker["kind"], blocker["object"]) for blocker in plan["blockers"]}
    assert found == {(pod["spec"]["nodeName"], "budget-never", RULE) for pod in pods}
    assert "[[critical]]" in rollout(lab, "plan", "-o", "wide", *file).stdout
    forced = (
        *("apply", "--yes", "--node", node, "--allow", "blocked", "--drain-timeout", "2s"),
        *file,
    )
    ended = rollout(lab, *forced).ends(ExitCode.PARTIAL)
    assert (
        f"blocked by {RULE}, which needs {len(pods)} healthy pods and has {len(pods)}"
        in ended.stderr
    )
    assert f"kubectl get pods -n shop -l app={APP}" in ended.stdout
    assert [pod["metadata"]["uid"] for pod in lab.call(lambda: running(lab))] == [
        p["metadata"]["uid"] for p in pods
    ]
    ended = rollout(lab, *forced, "--disable-eviction").ends(ExitCode.OK)


def test_a_rule_that_covers_nothing_is_told(lab: Lab, rollout: Rollout, tmp_path: Path) -> None:
    plan = json.loads(rollout(lab, "plan", "-o", "json", *rules(tmp_path, 1, "thumbnail")).stdout)
    told = [(warning["kind"], warning["object"]) for warning in plan["warnings"]]
    assert ("nothing-critical", "critical/shop/app=thumbnail") in told
