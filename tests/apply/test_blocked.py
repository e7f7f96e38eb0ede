"""A pod that its budget holds back, as it is seen in a real run: on a terminal, in a log, as JSON, and on the Node."""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rollout.errors import ExitCode
from rollout.lab.api.resources import BUDGETS, EVENTS, PODS
from rollout.lab.hostplan import scale
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from tests.apply.conftest import Rollout, Started, command
from tests.apply.test_resume import stopped_at
from tests.ended import Ended
from tests.execution.drains import KUBECTL
from tests.state import run_of
from tests.waiting import wait_until

BUDGET = "shop/ledger"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    directory = tmp_path_factory.mktemp("lab")
    with Lab.start(scale(load_scenario("budget-never"), 7), directory=directory, speed=30) as running:
        yield running


@pytest.fixture(scope="module")
def held(lab: Lab) -> dict[str, Any]:
    """The first pod under the budget."""
    pods = lab.call(lambda: [pod for pod in lab.store.items(PODS) if pod["metadata"]["name"].startswith("ledger")])
    return min(pods, key=lambda pod: str(pod["metadata"]["name"]))


@pytest.fixture
def flags(held: dict[str, Any]) -> Callable[[str], tuple[str, ...]]:
    """Only its node is drained, whatever the plan says."""

    def given(timeout: str) -> tuple[str, ...]:
        node = held["spec"]["nodeName"]
        return (
            "apply",
            "--yes",
            "--node",
            node,
            "--allow",
            "blocked",
            "--drain-timeout",
            timeout,
            "--settle-timeout",
            "1s",
        )

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
    described = subprocess.run(
        [KUBECTL, "describe", "node", node],
        env={"HOME": str(tmp_path), **lab.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "DrainBlocked" in described.stdout


def events(lab: Lab) -> list[dict[str, Any]]:
    return lab.call(lambda: [event for event in lab.store.items(EVENTS) if event["reason"] == "DrainBlocked"])


QUICK = (
    *("--max-unavailable", "3", "--control-plane", "exclude", "--drain-timeout", "5s"),
    *("--reboot-timeout", "20s", "--ready-timeout", "20s", "--settle-timeout", "20s"),
)


# Real seconds within which each blocker is certain: half a minute of the lab's time, and a busy machine's planning.
LONG = 60


DESPITE = ("--yes", "-o", "json", "--allow", "blocked", "--max-failures", "99")


@contextmanager
def lab_of(scenario: str, nodes: int, directory: Path) -> Iterator[Lab]:
    with Lab.start(scale(load_scenario(scenario), nodes), directory=directory / "lab", speed=30) as lab:
        yield lab


def blocked(plan: Mapping[str, Any]) -> dict[str, set[str]]:
    """The kinds of blockers by node."""
    found: dict[str, set[str]] = {}
    for blocker in plan["blockers"]:
        found.setdefault(blocker["node"], set()).add(blocker["kind"])
    return found


def planned(rollout: Rollout, lab: Lab, *flags: str) -> dict[str, Any]:
    ended = rollout(lab, "plan", "-o", "json", *QUICK, *flags)
    document: dict[str, Any] = json.loads(ended.stdout)
    assert ended.code == (ExitCode.BLOCKED if document["blockers"] else ExitCode.OK), ended.stderr
    return document


def failed(ended: Ended) -> set[str]:
    """The nodes that failed, all of them while draining."""
    assert {entry["phase"] for entry in ended.summary["failed"]} <= {"draining"}
    return {entry["node"] for entry in ended.summary["failed"]}


def wait_until_long_unready(rollout: Rollout, lab: Lab, kind: str, *flags: str) -> dict[str, Any]:
    """Plans until a kind of blocker shows that needs a while to be certain."""
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        plan = planned(rollout, lab, *flags)
        if any(kind in kinds for kinds in blocked(plan).values()):
            return plan
    pytest.fail(f"{kind} was not foreseen within {LONG} s")


@pytest.mark.exhaustive
def test_each_kind_of_blocker_is_foreseen_and_comes_true(tmp_path: Path, rollout: Rollout) -> None:
    with lab_of("forecast", 12, tmp_path) as lab:
        plan = wait_until_long_unready(rollout, lab, "budget-unhealthy")
        assert blocked(plan) == {
            "worker-1": {"budget-never"},
            "worker-2": {"two-budgets"},
            "worker-3": {"unmanaged-pod"},
            "worker-4": {"budget-unhealthy"},
            "worker-5": {"fits-nowhere"},
            "worker-8": {"daemonset-gone"},
            "worker-9": {"budget-never"},
        }
        refused = rollout(lab, "apply", "--yes", *QUICK)
        assert refused.code == 6
        assert "--allow blocked" in refused.stderr

        ended = rollout(lab, "apply", *DESPITE, *QUICK)

        assert ended.code == 4
        assert failed(ended) == set(blocked(plan))
        assert set(ended.summary["succeeded"]) == {"worker-6", "worker-7"}
        assert lab.scoreboard().cordons_left == ()
        assert lab.scoreboard().budgets_broken == ()


@pytest.mark.exhaustive
@pytest.mark.sample
@pytest.mark.parametrize("scenario", ["default", "mixed"])
def test_no_alarm_where_all_goes_well(scenario: str, tmp_path: Path, rollout: Rollout) -> None:
    with lab_of(scenario, 11, tmp_path) as lab:
        assert blocked(planned(rollout, lab)) == {}
        ended = rollout(lab, "apply", *DESPITE, *QUICK[:4], "--drain-timeout", "60s", "--reboot-timeout", "60s")
        assert failed(ended) == set()


# What stands on a node once its rollout was undone: for whoever asks the cluster, and has never heard of rollout.


def node_events(lab: Lab, node: str, reason: str) -> list[dict[str, Any]]:
    found = lab.call(lambda: list(lab.store.items(EVENTS)))
    ours = [event for event in found if event["source"].get("component") == "node-rollout"]
    return [event for event in ours if event["involvedObject"]["name"] == node and event["reason"] == reason]


def described(lab: Lab, home: Path, node: str) -> str:
    environment = {"HOME": str(home), **lab.environment}
    told = subprocess.run(
        [KUBECTL, "describe", "node", node], env=environment, capture_output=True, text=True, check=True
    )
    return told.stdout


def test_each_node_that_is_given_back_says_so(started: Started, rollout: Rollout, tmp_path: Path) -> None:
    lab = started("default", 6)
    node = stopped_at(lab, tmp_path, "draining", "--max-unavailable", "1")
    run = run_of(lab)
    ended = rollout(lab, "abort", "--yes", "--force-unlock", run)
    assert ended.code == 0, ended.stderr
    (event,) = node_events(lab, node, "GivenBack")
    assert event["type"] == "Normal"
    assert event["involvedObject"]["uid"]
    assert event["message"].startswith("Undone by rollout abort in phase ")
    assert event["message"].endswith(f"; it is uncordoned (rollout {run})")
    assert "Undone by rollout abort" in described(lab, tmp_path, node)
    assert not node_events(lab, node, "RolloutFailed")
